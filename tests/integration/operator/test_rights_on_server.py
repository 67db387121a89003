"""The rights in deploy/hajob.yaml are enough for all that the operator asks, and not for more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.run import Run
from e2e.harness.fixtures import a_namespace
from e2e.harness.operator import install_crd, install_rights
from hajob.api import constants as names
from hajob.api.constants import CRD_NAME
from hajob.api.crd_difference import CrdDifference, compare_crd
from hajob.api.job import HATrainingJob
from hajob.api.status import HATrainingJobStatus
from hajob.app.core import OperatorCore
from hajob.app.frontend import Frontend
from hajob.capacity.drains import Budgets
from hajob.clock import SystemClock
from hajob.job.apply import carry_out_change
from hajob.job.policies.drains import budget_objects
from hajob.job.status_writer import patch_of_status
from hajob.kube.client import ApiError, PatchKind
from hajob.kube.credentials import ApiCredentials, from_kubeconfig
from hajob.kube.events import EventType, build_event
from hajob.kube.http import HttpKube
from hajob.pki.tls_secret import tls_secret
from hajob.pods.naming import budget_name, tls_secret_name
from hajob.pods.rank_pod import build_rank_pod
from hajob.pods.settings import PodSettings
from tests.rigs.certificates import certificates_of_a_job
from tests.rigs.jobs_on_server import QUICKSTART
from tests.rigs.operator_rights import operator_credentials

Job = dict[str, Any]


def installed(plane: ControlPlane, namespace: str, directory: Path) -> ApiCredentials:
    """The operator's service account as installed, without its Deployment."""
    install_rights(plane, namespace)
    return operator_credentials(plane, namespace, directory)


@pytest.fixture
def operator(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> ApiCredentials:
    return installed(control_plane, namespace, tmp_path)


@pytest.fixture
async def limited(operator: ApiCredentials) -> AsyncIterator[HttpKube]:
    async with HttpKube(operator) as made:
        yield made


async def test_the_rights_are_enough(
    limited: HttpKube, crd: Job, job: Job, where: str, namespace: str, kube: HttpKube
) -> None:
    made = HATrainingJob.from_object(await kube.create_object(names.PLURAL, where, job))
    for resource in ("pods", "nodes", "resourcequotas", names.PLURAL, names.QUARANTINES):
        assert [page async for page in limited.list_pages(resource)]
    name, uid = made.metadata.name, made.metadata.uid
    patch = patch_of_status({}, HATrainingJobStatus(fence=1).to_json(), uid)
    await limited.patch_object(names.PLURAL, where, name, patch, kind=PatchKind.JSON, subresource="status")
    pod = build_rank_pod(made, 0, 1, PodSettings("hajob/sidecar:dev"))
    pod["spec"]["schedulerName"] = "nobody"  # other tests have nodes
    await limited.create_object("pods", where, pod, dry_run=True)
    stored = await limited.create_object("pods", where, pod)
    await limited.get_object("pods", where, stored["metadata"]["name"])
    await limited.delete_object(
        "pods", where, stored["metadata"]["name"], uid=stored["metadata"]["uid"], grace_seconds=0
    )
    await limited.create_object("secrets", where, tls_secret(made, certificates_of_a_job(uid)))
    secret = await limited.get_object("secrets", where, tls_secret_name(made))
    await limited.replace_object("secrets", where, secret)
    for least in (1, 0):
        for budget in budget_objects(made, Budgets(least, least)):
            await carry_out_change(limited, budget)
        stored_budget = await kube.get_object("poddisruptionbudgets", where, budget_name(made, names.ROLE_RANK))
        assert stored_budget["spec"]["minAvailable"] == least
    told = build_event(made.metadata, 1_795_255_200_000, "Test", "a note", type_=EventType.NORMAL, instance="test")
    await limited.create_object("events", where, told)
    assert compare_crd(await limited.get_object("customresourcedefinitions", "", CRD_NAME)) == CrdDifference()
    assert await limited.pod_of_token("nonsense", names.COORDINATOR_TOKEN_AUDIENCE) is None
    lease = await limited.create_object("leases", namespace, {"metadata": {"name": "hajob-operator"}, "spec": {}})
    await limited.replace_object("leases", namespace, lease)
    await limited.delete_object(names.PLURAL, where, name, uid=uid)


async def protect_and_let_go(kube: HttpKube, operator: ApiCredentials, job: Job, watched: str) -> None:
    """A frontend with the operator's rights serves a job that `kube` creates and deletes."""
    seen, gone = asyncio.Event(), asyncio.Event()
    name, where = job["metadata"]["name"], job["metadata"]["namespace"]

    class Intake:
        def handle_job(self, raw: Job) -> None:
            if raw["metadata"]["name"] == name and raw["metadata"].get("finalizers"):
                seen.set()

        def handle_deleted_job(self, _: str) -> None:
            gone.set()

        async def release_job(self, _: str) -> None:
            return None

    await kube.create_object(names.PLURAL, where, job)
    async with HttpKube(operator) as limited, asyncio.timeout(60):
        frontend = Frontend(limited, operator, SystemClock(), (watched,))
        frontend.start_serving(cast("OperatorCore", Intake()))
        await seen.wait()
        await kube.delete_object(names.PLURAL, where, name)
        await gone.wait()
        await frontend.stop_serving()


async def test_a_frontend_of_one_namespace_needs_no_more(
    operator: ApiCredentials, crd: Job, job: Job, where: str, kube: HttpKube
) -> None:
    await protect_and_let_go(kube, operator, job, where)


async def test_a_frontend_of_all_namespaces_needs_no_more(tmp_path: Path) -> None:
    """On a server of its own: on the shared one it would let go the jobs of other tests."""
    run = Run.start("a frontend of all namespaces")
    try:
        plane = ControlPlane.start(run)
        install_crd(plane)
        with a_namespace(plane, "hajob-test") as namespace, a_namespace(plane, "jobs") as where:
            operator = installed(plane, namespace, tmp_path)
            job = {**QUICKSTART, "metadata": {"name": "job", "namespace": where}}
            async with HttpKube(await from_kubeconfig(str(plane.kubeconfig))) as kube:
                await protect_and_let_go(kube, operator, job, "")
    finally:
        run.close()


@pytest.mark.parametrize("resource", ["secrets", "configmaps", "namespaces", "poddisruptionbudgets"])
async def test_nothing_else_can_be_listed(limited: HttpKube, resource: str) -> None:
    async def read() -> None:
        async for _ in limited.list_pages(resource):
            pass

    with pytest.raises(ApiError) as refused:
        await read()
    assert refused.value.status == 403


async def test_leases_only_where_the_operator_runs(limited: HttpKube) -> None:
    with pytest.raises(ApiError) as refused:
        await limited.get_object("leases", "default", "any")
    assert refused.value.status == 403
