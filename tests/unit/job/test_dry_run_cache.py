"""Jobs that are alike are asked about once: a sweep of a hundred costs the API server no hundred dry runs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.server import MemoryServer
from hajob.api.conditions import Reason
from hajob.api.job import HATrainingJob
from hajob.job.admission import Admission
from hajob.job.dry_run_cache import SERVES_SECONDS, DryRunCache
from hajob.kube.client import ApiError
from hajob.pki.authority_store import AuthorityStore
from hajob.pods.settings import PodSettings
from tests.rigs.fake_clock import FakeClock
from tests.rigs.malformed_templates import job_with

SETTINGS = PodSettings(sidecar_image="hajob/sidecar:dev")


class Sweep:
    """Jobs of one operator, and the pods that the server was asked about."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = FakeClock()
        self.kube = MemoryKube(MemoryServer(self.clock))
        self.store = AuthorityStore(self.kube, self.clock, "hajob-system", timedelta(days=365))
        self.dry_runs = DryRunCache()
        self.asked: list[str] = []
        self.refuses = ""
        create = self.kube.create_object

        async def watched(resource: str, namespace: str, body: Any, *, dry_run: bool = False) -> Any:
            if dry_run:
                self.asked.append(body["metadata"]["name"])
                await asyncio.sleep(0)
                if self.refuses:
                    raise ApiError(403, "Forbidden", f"{body['metadata']['name']}: {self.refuses}")
            return await create(resource, namespace, body, dry_run=dry_run)

        monkeypatch.setattr(self.kube, "create_object", watched)

    async def ask(self, name: str, namespace: str = "default", priority: str = "a") -> Admission:
        body = job_with(("priorityClassName",), priority)
        body["metadata"] = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
        admission = Admission(self.kube, self.clock, SETTINGS, self.store, self.dry_runs)
        await admission.evaluate_job(HATrainingJob.from_object(body))
        return admission


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch) -> Sweep:
    return Sweep(monkeypatch)


async def test_alike_jobs_are_asked_about_once(sweep: Sweep) -> None:
    found = await asyncio.gather(*(sweep.ask(f"job-{number:02}") for number in range(20)))
    assert all(one.is_admitted for one in found)
    assert len(sweep.asked) == 2  # a rank pod and a coordinator


async def test_another_template_or_namespace_is_asked_about(sweep: Sweep) -> None:
    await sweep.kube.create_object(
        "namespaces", "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
    )
    await asyncio.gather(sweep.ask("job-1"), sweep.ask("job-2", namespace="other"), sweep.ask("job-3", priority="b"))
    assert len(sweep.asked) == 6


async def test_a_longer_name_is_asked_about(sweep: Sweep) -> None:
    await asyncio.gather(sweep.ask("job-9"), sweep.ask("job-10"))
    assert len(sweep.asked) == 4


async def test_a_consent_grows_old(sweep: Sweep) -> None:
    await sweep.ask("job-1")
    await sweep.clock.advance(SERVES_SECONDS)
    sweep.refuses = "a policy that came since"
    assert (await sweep.ask("job-2")).reason is Reason.POD_REFUSED


async def test_each_refused_job_hears_of_its_own_pod(sweep: Sweep) -> None:
    sweep.refuses = "no"
    found = await asyncio.gather(*(sweep.ask(f"job-{number}") for number in range(1, 6)))
    assert [one.message[:5] for one in found] == [f"job-{number}" for number in range(1, 6)]


async def test_who_asked_and_went_leaves_nobody_waiting(sweep: Sweep) -> None:
    first, second = (asyncio.create_task(sweep.ask(name)) for name in ("job-1", "job-2"))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).is_admitted
