"""The chart in a namespace of one test."""

from __future__ import annotations

from typing import Any

from e2e.cluster.control_plane import ControlPlane
from tests.integration.chart.helm import helm

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/hatrainingjobs.training.hajob.io"
TAKE = ("--take-ownership", "--force-conflicts")
"""Other tests apply the CRD by kubectl on the same server, and it may be of another version."""
PATHS_OF_POLICIES = {
    "admission-policy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "job-defaults": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
}
"""Sets of values that not every server can take."""


class Release:
    """The chart in a namespace of this test."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace

    def helm(self, *arguments: str) -> str:
        where = ("--namespace", self.namespace, "--kubeconfig", str(self.plane.kubeconfig))
        return helm(*arguments, *where, environment=self.plane.run.environment({})).stdout

    def deployment(self) -> Any:
        return self.plane.api.find(f"/apis/apps/v1/namespaces/{self.namespace}/deployments/hajob-operator")

    def schema(self) -> Any:
        (version,) = self.plane.api.get(CRD)["spec"]["versions"]
        return version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
