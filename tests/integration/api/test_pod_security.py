"""A user's restricted pod stays one with what Hajob adds: in a namespace that enforces it, on the real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from e2e.cluster.control_plane import ControlPlane
from hajob.api.job import HATrainingJob
from hajob.kube.client import ApiError
from hajob.kube.credentials import from_kubeconfig
from hajob.kube.http import HttpKube
from hajob.pods.coordinator_pod import coordinator_pod
from hajob.pods.rank_pod import build_rank_pod
from hajob.pods.settings import PodSettings
from tests.rigs.jobs_on_server import QUICKSTART

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture
async def kube(control_plane: ControlPlane, namespace: str) -> AsyncIterator[HttpKube]:
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    control_plane.api.merge(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": label}})
    async with HttpKube(await from_kubeconfig(str(control_plane.kubeconfig))) as made:
        yield made


def job(namespace: str, **trainer: object) -> HATrainingJob:
    spec = {**QUICKSTART["spec"]}
    container = {**spec["template"]["spec"]["containers"][0], **trainer}
    volumes = [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": "training"}}]
    spec["template"] = {"spec": {"containers": [container], "volumes": volumes}}
    uid = "7f9e7fc7-74d5-4678-88e6-1dfe8cb6055f"
    return HATrainingJob.from_object({"metadata": {"name": "job", "namespace": namespace, "uid": uid}, "spec": spec})


async def test_the_pods_of_a_restricted_job_are_admitted(kube: HttpKube, namespace: str) -> None:
    made, settings = job(namespace, securityContext=RESTRICTED), PodSettings("hajob/sidecar:dev")
    for pod in (build_rank_pod(made, 0, 1, settings), coordinator_pod(made, 1, settings)):
        await kube.create_object("pods", namespace, pod, dry_run=True)


async def test_the_server_names_only_the_users_container(kube: HttpKube, namespace: str) -> None:
    made, settings = job(namespace), PodSettings("hajob/sidecar:dev")
    with pytest.raises(ApiError, match='violates PodSecurity "restricted') as refused:
        await kube.create_object("pods", namespace, build_rank_pod(made, 0, 1, settings), dry_run=True)
    assert "trainer" in refused.value.message
    assert not any(name in refused.value.message for name in ("install", "agent"))
