"""Events are a courtesy: posted in the background, shortened, dropped when nothing helps."""

from __future__ import annotations

import asyncio

import pytest

from hajob.api.job import HATrainingJob
from hajob.kube.client import ApiError
from hajob.kube.events import Announcer
from tests.rigs.fake_clock import FakeClock
from tests.rigs.fake_kube import FakeKube, unreachable

JOB = HATrainingJob.from_object(
    {
        "metadata": {"name": "job", "namespace": "default", "uid": "u"},
        "spec": {
            "accelerator": {"product": "A2"},
            "numNodes": 1,
            "parallelism": {"tensor": 8},
            "checkpoint": {"path": "/ckpt"},
            "template": {"spec": {"containers": [{"name": "trainer"}]}},
        },
    }
)


async def test_an_event_is_posted_once_the_server_is_back() -> None:
    clock = FakeClock()
    kube = FakeKube(clock)
    announcer = Announcer(kube, clock, "operator-1")
    task = asyncio.create_task(announcer.post_queued())
    kube.fail(unreachable(), unreachable())
    announcer.queue_event(JOB.metadata, "Replaced", "x" * 3000, warning=True)
    await clock.advance(10)
    (posted,) = [body for verb, resource, body in kube.writes if resource == "events"]
    assert (posted["type"], posted["reason"], posted["involvedObject"]["uid"]) == ("Warning", "Replaced", "u")
    assert len(posted["message"].encode()) == 1024
    times = {posted["firstTimestamp"], posted["lastTimestamp"], posted["eventTime"][:19] + "Z"}
    assert len(times) == 1, "kubectl sorts by the last one"
    task.cancel()


async def test_a_refused_event_is_dropped_and_the_next_one_passes() -> None:
    clock = FakeClock()
    kube = FakeKube(clock)
    announcer = Announcer(kube, clock, "operator-1")
    task = asyncio.create_task(announcer.post_queued())
    kube.fail(ApiError(403, "Forbidden", "no"))
    announcer.queue_event(JOB.metadata, "One", "refused")
    announcer.queue_event(JOB.metadata, "Two", "accepted")
    for _ in range(2000):
        announcer.queue_event(JOB.metadata, "Many", "too many")
    await clock.advance(10)
    reasons = [body["reason"] for _, _, body in kube.writes]
    assert "One" not in reasons
    assert "Two" in reasons
    assert len(reasons) <= 1000
    task.cancel()


async def test_an_error_of_this_program_costs_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    kube = FakeKube(clock)
    announcer = Announcer(kube, clock, "operator-1")
    task = asyncio.create_task(announcer.post_queued())

    async def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(kube, "create_object", fail)
        announcer.queue_event(JOB.metadata, "One", "lost")
        await clock.advance(1)
    announcer.queue_event(JOB.metadata, "Two", "posted")
    await clock.advance(1)
    assert [body["reason"] for _, _, body in kube.writes] == ["Two"]
    task.cancel()
