"""The rights in deploy/hajob.yaml are enough for all that the operator asks, and not for more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from e2e.cluster.control_plane import ControlPlane
from e2e.harness.operator import NAME, manifests
from hajob.api import constants as names
from hajob.api.crd import CRD_NAME
from hajob.api.crd_difference import CrdDifference, difference
from hajob.api.job import HATrainingJob
from hajob.api.status import HATrainingJobStatus
from hajob.objects.naming import budget_name, tls_secret_name
from hajob.objects.rank_pod import rank_pod
from hajob.objects.settings import PodSettings
from hajob.objects.tls_secret import tls_secret
from hajob.runtime.announcements import EventType, event
from hajob.runtime.clock import SystemClock
from hajob.runtime.credentials import ApiCredentials, from_service_account
from hajob.runtime.disruption_budgets import DisruptionBudgets
from hajob.runtime.frontend import Frontend
from hajob.runtime.http_kube import HttpKube
from hajob.runtime.kube import ApiError, PatchKind
from hajob.runtime.status_writer import operations
from hajob.scheduling.drains import Budgets
from tests.unit.runtime.fresh_certificates import certificates_of

Job = dict[str, Any]


@pytest.fixture
def operator(control_plane: ControlPlane, namespace: str, tmp_path: Any) -> ApiCredentials:
    """The operator's service account as installed, without its Deployment."""
    control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mindx-dl"}})
    control_plane.apply(*(each for each in manifests(namespace) if each["kind"] != "Deployment"))
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{NAME}/token"
    token = control_plane.api.create(path, {"spec": {}})["status"]["token"]
    (tmp_path / "token").write_text(token)
    (tmp_path / "ca.crt").write_bytes(control_plane.ca_file.read_bytes())
    host, _, port = control_plane.server.removeprefix("https://").rpartition(":")
    return from_service_account(str(tmp_path), {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port})


@pytest.fixture
async def limited(operator: ApiCredentials) -> AsyncIterator[HttpKube]:
    async with HttpKube(operator) as made:
        yield made


async def test_the_rights_are_enough(limited: HttpKube, crd: Job, job: Job, namespace: str, kube: HttpKube) -> None:
    made = HATrainingJob.from_object(await kube.create(names.PLURAL, "default", job))
    for resource in ("pods", "nodes", "resourcequotas", names.PLURAL, names.QUARANTINES):
        assert [page async for page in limited.pages(resource)]
    name, uid = made.metadata.name, made.metadata.uid
    patch = operations({}, HATrainingJobStatus(fence=1).to_json(), uid)
    await limited.patch(names.PLURAL, "default", name, patch, kind=PatchKind.JSON, subresource="status")
    pod = rank_pod(made, 0, 1, PodSettings("hajob/sidecar:dev"))
    await limited.create("pods", "default", pod, dry_run=True)
    stored = await limited.create("pods", "default", pod)
    await limited.get("pods", "default", stored["metadata"]["name"])
    await limited.delete("pods", "default", stored["metadata"]["name"], uid=stored["metadata"]["uid"], grace_seconds=0)
    await limited.create("secrets", "default", tls_secret(made, certificates_of(uid)))
    secret = await limited.get("secrets", "default", tls_secret_name(made))
    await limited.replace("secrets", "default", secret)
    for least in (1, 0):
        await DisruptionBudgets(limited, SystemClock(), lambda: None).follow(made, Budgets(least, least))
        budget = await kube.get("poddisruptionbudgets", "default", budget_name(made, names.ROLE_RANK))
        assert budget["spec"]["minAvailable"] == least
    told = event(made, 1_795_255_200_000, "Test", "a note", type_=EventType.NORMAL, instance="test")
    await limited.create("events", "default", told)
    assert difference(await limited.get("customresourcedefinitions", "", CRD_NAME)) == CrdDifference()
    assert await limited.pod_of_token("nonsense", names.COORDINATOR_TOKEN_AUDIENCE) is None
    lease = await limited.create("leases", namespace, {"metadata": {"name": "hajob-operator"}, "spec": {}})
    await limited.replace("leases", namespace, lease)
    await limited.delete(names.PLURAL, "default", name, uid=uid)


@pytest.mark.parametrize("watched", ["", "default"])
async def test_the_frontend_needs_no_more(
    limited: HttpKube, operator: ApiCredentials, crd: Job, job: Job, kube: HttpKube, watched: str
) -> None:
    seen, gone = asyncio.Event(), asyncio.Event()

    class Intake:
        def job_seen(self, raw: Job) -> None:
            if raw["metadata"]["name"] == job["metadata"]["name"] and raw["metadata"].get("finalizers"):
                seen.set()

        def job_gone(self, _: str) -> None:
            gone.set()

        async def job_released(self, _: str) -> None:
            return None

    await kube.create(names.PLURAL, "default", job)
    frontend = Frontend(limited, operator, SystemClock(), watched)
    frontend.start(Intake())
    async with asyncio.timeout(60):
        await seen.wait()
        await kube.delete(names.PLURAL, "default", job["metadata"]["name"])
        await gone.wait()
    await frontend.stop()


@pytest.mark.parametrize("resource", ["secrets", "configmaps", "namespaces", "poddisruptionbudgets"])
async def test_nothing_else_can_be_listed(limited: HttpKube, resource: str) -> None:
    async def read() -> None:
        async for _ in limited.pages(resource):
            pass

    with pytest.raises(ApiError) as refused:
        await read()
    assert refused.value.status == 403


async def test_leases_only_where_the_operator_runs(limited: HttpKube) -> None:
    with pytest.raises(ApiError) as refused:
        await limited.get("leases", "default", "any")
    assert refused.value.status == 403
