"""Jobs that compete for nodes, with the real scheduler: one starts whole, the other holds nothing while it waits."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from e2e.cluster.control_plane import ControlPlane
from hajob.api import constants as names
from tests.integration.conftest import QUICKSTART, collection
from tests.integration.operator.bare_nodes import bare_nodes
from tests.integration.operator.test_operator_without_nodes import Served

Object = dict[str, Any]
JOBS = ("first", "second")


class Rivals:
    """Two jobs of four nodes each."""

    def __init__(self, served: Served, pool: str) -> None:
        self.served, self.plane, self.namespace = served, served.plane, served.namespace
        self.pool = pool

    def apply(self, **scheduling: str) -> None:
        for name in JOBS:
            body = deepcopy(QUICKSTART)
            body["metadata"] = {"name": name, "namespace": self.namespace}
            body["spec"]["scheduling"] = scheduling
            body["spec"]["template"]["spec"]["nodeSelector"] = {"pool": self.pool}
            body["spec"]["coordinator"] = {"nodeSelector": {"pool": self.pool}}
            self.plane.api.create(collection(self.namespace), body)

    def pods(self, job: str) -> list[Object]:
        selector = f"{names.LABEL_JOB_NAME}={job},{names.LABEL_ROLE}={names.ROLE_RANK}"
        found = self.plane.api.items(f"/api/v1/namespaces/{self.namespace}/pods", labelSelector=selector)
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def placed(self, job: str) -> int:
        return sum(bool(pod["spec"].get("nodeName")) for pod in self.pods(job))

    def gated(self, job: str) -> int:
        return sum(bool(pod["spec"].get("schedulingGates")) for pod in self.pods(job))

    def scheduled(self, job: str) -> Object:
        found = self.plane.api.get(f"{collection(self.namespace)}/{job}")
        conditions = (found.get("status") or {}).get("conditions") or []
        return next((one for one in conditions if one["type"] == "Scheduled"), {})

    def delete(self, job: str) -> None:
        self.plane.api.delete(f"{collection(self.namespace)}/{job}")


@pytest.fixture
def rivals(control_plane: ControlPlane, crd: Object, namespace: str) -> Iterator[Rivals]:
    assert crd
    served = Served(control_plane, namespace)
    served.start_operator()
    yield Rivals(served, namespace)
    served.kill_operators()
    for name in JOBS:
        if control_plane.api.find(f"{collection(namespace)}/{name}"):
            control_plane.api.merge(f"{collection(namespace)}/{name}", {"metadata": {"finalizers": None}})


def test_two_jobs_that_need_more_than_half_start_one_by_one(rivals: Rivals, control_plane: ControlPlane) -> None:
    with bare_nodes(control_plane, rivals.pool, 7):
        rivals.apply()
        control_plane.wait("one job to have all its nodes", lambda: 4 in map(rivals.placed, JOBS))
        control_plane.wait("the other to stand behind its gates", lambda: 4 in map(rivals.gated, JOBS))
        first, second = sorted(JOBS, key=rivals.gated)
        assert (rivals.placed(first), rivals.placed(second)) == (4, 0)
        told = "4 pods ask for no node yet"
        control_plane.wait("the wait to be told", lambda: told in rivals.scheduled(second).get("message", ""))
        assert rivals.scheduled(second)["reason"] == "WaitingForCapacity"
        rivals.delete(first)
        force_gone(rivals, first)
        control_plane.wait("the other to start whole", lambda: rivals.placed(second) == 4)
        rivals.delete(second)
        force_gone(rivals, second)


def force_gone(rivals: Rivals, job: str) -> None:
    """No kubelet is there to end the pods of a deleted job."""
    selector = f"{names.LABEL_JOB_NAME}={job}"
    path = f"/api/v1/namespaces/{rivals.namespace}/pods"
    rivals.plane.wait(
        "the pods to be deleted",
        lambda: all(
            "deletionTimestamp" in pod["metadata"] for pod in rivals.plane.api.items(path, labelSelector=selector)
        ),
    )
    for pod in rivals.plane.api.items(path, labelSelector=selector):
        rivals.plane.api.delete(f"{path}/{pod['metadata']['name']}", gracePeriodSeconds=0)
