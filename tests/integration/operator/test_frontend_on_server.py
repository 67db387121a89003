"""kopf in its own thread, against a real server: objects handed over, finalizer, release, and starting again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from e2e.cluster.control_plane import ControlPlane
from e2e.harness.operator import NAME, install_rights
from hajob.api import constants as names
from hajob.app.core import OperatorCore
from hajob.app.frontend import Frontend
from hajob.clock import SystemClock
from hajob.kube.client import ApiError
from hajob.kube.credentials import ApiCredentials, from_service_account
from hajob.kube.http import HttpKube
from tests.rigs.metrics import sample

Job = dict[str, Any]


class Intake:
    """A core that remembers what it was told and releases when it is allowed to."""

    def __init__(self) -> None:
        self.seen: list[Job] = []
        self.gone: list[str] = []
        self.asked = asyncio.Event()
        self.may_release = asyncio.Event()
        self.refusals = 1
        self.thread = threading.current_thread()
        self._news = asyncio.Event()

    def handle_job(self, raw: Job) -> None:
        assert threading.current_thread() is self.thread
        self.seen.append(raw)
        self._news.set()

    def handle_deleted_job(self, uid: str) -> None:
        self.gone.append(uid)
        self._news.set()

    async def release_job(self, uid: str) -> None:
        self.asked.set()
        await self.may_release.wait()
        if self.refusals:
            self.refusals -= 1
            raise ApiError(500, "InternalError", "once more")

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(90):
            while not condition():
                self._news.clear()
                await self._news.wait()


@pytest.fixture
async def intake() -> Intake:
    return Intake()


@pytest.fixture
async def frontend(
    kube: HttpKube, credentials: ApiCredentials, intake: Intake, crd: Job, where: str
) -> AsyncIterator[Frontend]:
    """It serves one namespace: it would protect, and let go, the jobs of other tests as well."""
    made = Frontend(kube, credentials, SystemClock(), (where,))
    made.start_serving(cast("OperatorCore", intake))
    yield made
    await made.stop_serving()


def _finalizers(raw: Job) -> list[str]:
    return list(raw["metadata"].get("finalizers") or [])


async def test_a_job_is_handed_over_protected_held_and_let_go(
    kube: HttpKube, frontend: Frontend, intake: Intake, job: Job, where: str
) -> None:
    made = await kube.create_object(names.PLURAL, where, job)
    name, uid = made["metadata"]["name"], made["metadata"]["uid"]

    def mine(raw: Job) -> bool:
        return bool(raw["metadata"]["uid"] == uid)

    await intake.until(lambda: any(_finalizers(raw) == [names.FINALIZER] for raw in intake.seen if mine(raw)))
    await kube.patch_object(names.PLURAL, where, name, {"spec": {"suspend": True}})
    await intake.until(lambda: any(raw["spec"]["suspend"] for raw in intake.seen if mine(raw)))
    await kube.delete_object(names.PLURAL, where, name)
    async with asyncio.timeout(90):
        await intake.asked.wait()
    held = await kube.get_object(names.PLURAL, where, name)
    assert _finalizers(held) == [names.FINALIZER]
    assert "annotations" not in held["metadata"]
    managers = {one["manager"] for one in held["metadata"]["managedFields"]}
    assert managers <= {names.OPERATOR_NAME, "hajob-operator"}, "kopf writes by the operator's name"
    intake.may_release.set()
    await intake.until(lambda: uid in intake.gone)
    with pytest.raises(ApiError) as gone:
        await kube.get_object(names.PLURAL, where, name)
    assert gone.value.status == 404


async def test_a_job_deleted_while_nobody_was_there_is_held_too(
    kube: HttpKube, credentials: ApiCredentials, intake: Intake, crd: Job, job: Job, where: str
) -> None:
    job["metadata"]["finalizers"] = [names.FINALIZER]
    made = await kube.create_object(names.PLURAL, where, job)
    await kube.delete_object(names.PLURAL, where, made["metadata"]["name"])
    frontend = Frontend(kube, credentials, SystemClock(), (where,))
    frontend.start_serving(cast("OperatorCore", intake))
    async with asyncio.timeout(90):
        await intake.asked.wait()
    assert _finalizers(await kube.get_object(names.PLURAL, where, made["metadata"]["name"])) == [names.FINALIZER]
    intake.may_release.set()
    await intake.until(lambda: made["metadata"]["uid"] in intake.gone)
    await frontend.stop_serving()


async def test_kopf_is_started_again_after_refused_credentials(
    kube: HttpKube,
    control_plane: ControlPlane,
    namespace: str,
    intake: Intake,
    crd: Job,
    job: Job,
    where: str,
    tmp_path: Path,
) -> None:
    install_rights(control_plane, namespace)
    token = control_plane.api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{NAME}/token", {"spec": {}})
    (tmp_path / "ca.crt").write_bytes(control_plane.ca_file.read_bytes())
    (tmp_path / "token").write_text("nonsense")
    host, _, port = control_plane.server.removeprefix("https://").rpartition(":")
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    before = sample("hajob_frontend_restarts_total")
    frontend = Frontend(kube, from_service_account(str(tmp_path), environment), SystemClock(), (where,))
    frontend.start_serving(cast("OperatorCore", intake))
    async with asyncio.timeout(90):
        while sample("hajob_frontend_restarts_total") == before:  # noqa: ASYNC110 - a counter has no event
            await asyncio.sleep(0.05)
    made = await kube.create_object(names.PLURAL, where, job)
    (tmp_path / "token").write_text(token["status"]["token"])
    await intake.until(lambda: any(raw["metadata"]["uid"] == made["metadata"]["uid"] for raw in intake.seen))
    await frontend.stop_serving()
    await kube.patch_object(names.PLURAL, where, made["metadata"]["name"], {"metadata": {"finalizers": None}})


async def test_after_a_stop_another_one_hands_everything_over_again(
    kube: HttpKube, credentials: ApiCredentials, intake: Intake, crd: Job, job: Job, where: str
) -> None:
    made = await kube.create_object(names.PLURAL, where, job)
    uid = made["metadata"]["uid"]
    for _ in range(2):
        intake.seen.clear()
        frontend = Frontend(kube, credentials, SystemClock(), (where,))
        frontend.start_serving(cast("OperatorCore", intake))
        await intake.until(lambda: any(raw["metadata"]["uid"] == uid for raw in intake.seen))
        await frontend.stop_serving()
        assert not [thread for thread in threading.enumerate() if thread.name == "frontend"]
    assert intake.gone == []
    await kube.patch_object(names.PLURAL, where, made["metadata"]["name"], {"metadata": {"finalizers": None}})
