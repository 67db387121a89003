"""The frontend waits for the CRD, survives every end of kopf, and tells the core nothing it did not see."""

from __future__ import annotations

import asyncio
import copy
import itertools
import threading
from typing import Any, cast

import pytest

from hajob.api.base import Json
from hajob.app.core import OperatorCore
from hajob.app.frontend import Frontend, kopf_settings
from hajob.clock import SystemClock
from hajob.kube.client import ApiError
from hajob.kube.credentials import ApiCredentials
from tests.rigs.fake_kube import FakeKube
from tests.rigs.kopf_stand_in import KopfStandIn


@pytest.fixture
async def kopf(monkeypatch: pytest.MonkeyPatch) -> KopfStandIn:
    return KopfStandIn(monkeypatch)


def frontend_on(kube: FakeKube) -> Frontend:
    return Frontend(kube, ApiCredentials("https://nowhere"), SystemClock())


async def test_it_waits_for_the_crd_and_starts_kopf_again_and_again(kopf: KopfStandIn) -> None:
    kube = FakeKube()
    refused = kube.server.faults.refuse(ApiError(404, "NotFound", "the server could not find the requested resource"))
    frontend = frontend_on(kube)
    frontend.start_serving(cast("OperatorCore", None))
    await kopf.next_begin()
    assert refused.met == 1
    await kopf.next_begin()
    await frontend.stop_serving()


async def test_no_error_ends_the_supervisor(
    kopf: KopfStandIn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    genuine, failures = threading.Thread.start, 0

    def start(thread: threading.Thread) -> None:
        nonlocal failures
        if thread.name == "frontend" and failures < 2:
            failures += 1
            raise RuntimeError("can't start new thread")
        genuine(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    frontend = frontend_on(FakeKube())
    assert not frontend.has_ended
    frontend.start_serving(cast("OperatorCore", None))
    await kopf.next_begin()
    assert (failures, frontend.has_ended) == (2, False)
    assert "can't start new thread" in caplog.text
    await frontend.stop_serving()
    assert not frontend.has_ended


async def test_an_error_on_the_way_out_does_not_keep_it_alive(
    kopf: KopfStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def closed(*_: object) -> None:
        raise RuntimeError("Event loop is closed")

    genuine = asyncio.to_thread
    monkeypatch.setattr(asyncio, "to_thread", closed)
    ending = threading.Event()
    kopf.life = lambda: asyncio.get_running_loop().run_in_executor(None, ending.wait)
    frontend = frontend_on(FakeKube())
    frontend.start_serving(cast("OperatorCore", None))
    await kopf.next_begin()
    async with asyncio.timeout(90):
        await frontend.stop_serving()
    assert kopf.begun.empty()
    ending.set()
    for thread in threading.enumerate():
        if thread.name == "frontend":
            await genuine(thread.join)


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

    def handle_job(self, raw: Json) -> None:
        """An object."""
        self.seen.put_nowait(raw)


async def test_kopf_keeps_no_spec_and_no_status(kopf: KopfStandIn) -> None:
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
    intake, frontend = Intake(), frontend_on(FakeKube())
    frontend.start_serving(cast("OperatorCore", intake))
    await kopf.next_begin()
    assert kopf.seen is not None
    await kopf.seen(event={"type": "MODIFIED", "object": raw})
    async with asyncio.timeout(90):
        assert await intake.seen.get() == whole
    assert raw == {"kind": "HATrainingJob", "metadata": metadata}
    await frontend.stop_serving()


async def test_kopf_is_not_left_to_ask_for_the_user_s_name(kopf: KopfStandIn) -> None:
    """In a pod the user is a number; looking up its name ended kopf again and again."""
    frontend = frontend_on(FakeKube())
    frontend.start_serving(cast("OperatorCore", None))
    assert (await kopf.next_begin())["identity"]
    await frontend.stop_serving()
