"""The frontend waits for the CRD, survives every end of kopf, and tells the core nothing it did not see."""

from __future__ import annotations

import asyncio
import copy
import itertools
from typing import Any, cast

import pytest

from hajob.api.base import Json
from hajob.runtime.backoff import Backoff
from hajob.runtime.clock import SystemClock
from hajob.runtime.credentials import ApiCredentials
from hajob.runtime.frontend import Frontend, JobIntake, kopf_settings
from hajob.runtime.kube import ApiError
from tests.rigs.fake_kube import FakeKube


class Ending(Frontend):
    """A frontend whose kopf ends at once."""

    def __init__(self, kube: FakeKube) -> None:
        super().__init__(kube, ApiCredentials("https://nowhere"), SystemClock())
        self.lives: asyncio.Queue[int] = asyncio.Queue()

    async def _run_thread(self) -> str:
        self.lives.put_nowait(1)
        return "it ends at once"


class Failing(Ending):
    """One that cannot even be begun."""

    async def _run_thread(self) -> str:
        await super()._run_thread()
        raise RuntimeError("can't start new thread")


class Stubborn(Ending):
    """One that meets an error while it is being ended."""

    async def _run_thread(self) -> str:
        try:
            await super()._run_thread()
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("Event loop is closed")


async def test_it_waits_for_the_crd_and_starts_kopf_again_and_again() -> None:
    kube = FakeKube()
    refused = kube.server.faults.refuse(ApiError(404, "NotFound", "the server could not find the requested resource"))
    controller = Ending(kube)
    controller.start(cast("JobIntake", None))
    async with asyncio.timeout(90):
        await controller.lives.get()
        assert refused.met == 1
        await controller.lives.get()
    await controller.stop()


async def test_no_error_ends_the_supervisor(caplog: pytest.LogCaptureFixture) -> None:
    controller = Failing(FakeKube())
    controller._backoff = Backoff(first=0.0)
    assert not controller.has_ended
    controller.start(cast("JobIntake", None))
    async with asyncio.timeout(90):
        for _ in range(3):
            await controller.lives.get()
    assert not controller.has_ended
    assert "can't start new thread" in caplog.text
    await controller.stop()
    assert not controller.has_ended


async def test_an_error_on_the_way_out_does_not_keep_it_alive() -> None:
    controller = Stubborn(FakeKube())
    controller.start(cast("JobIntake", None))
    async with asyncio.timeout(90):
        await controller.lives.get()
        await controller.stop()
    assert controller.lives.empty()


def test_delays_are_endless_and_can_be_read_again() -> None:
    delays = kopf_settings().networking.error_backoffs
    assert not isinstance(delays, float)
    first, second = (list(itertools.islice(delays, 100)) for _ in range(2))
    assert first == second
    assert max(first) == 5.0


class Intake:
    """Takes note of what it is told."""

    def __init__(self) -> None:
        self.seen: asyncio.Queue[Json] = asyncio.Queue()

    def job_seen(self, raw: Json) -> None:
        """An object."""
        self.seen.put_nowait(raw)


async def test_kopf_keeps_no_spec_and_no_status() -> None:
    """It holds the object of each job for as long as there is one: of a hundred jobs that is 10 MiB."""
    metadata = {"name": "llama", "uid": "u-1", "resourceVersion": "7", "finalizers": ["f"]}
    whole: dict[str, Any] = {
        "kind": "HATrainingJob",
        "metadata": metadata,
        "spec": {"numNodes": 2},
        "status": {"phase": "Running"},
    }
    raw = copy.deepcopy(whole)
    raw["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    intake, frontend = Intake(), Ending(FakeKube())
    frontend.start(cast("JobIntake", intake))
    await frontend._hand_over({"type": "MODIFIED", "object": raw})
    async with asyncio.timeout(90):
        assert await intake.seen.get() == whole
    assert raw == {"kind": "HATrainingJob", "metadata": metadata}
    await frontend.stop()


async def test_kopf_is_not_left_to_ask_for_the_user_s_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pod the user is a number; looking up its name ended kopf again and again."""
    given: dict[str, object] = {}

    async def operator(**arguments: object) -> None:
        given.update(arguments)

    monkeypatch.setattr("kopf.operator", operator)
    await Frontend(FakeKube(), ApiCredentials("https://nowhere"), SystemClock())._serve()
    assert given["identity"]
