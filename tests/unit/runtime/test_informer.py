"""The cache under everything a server can do to a watch."""

from __future__ import annotations

import asyncio

import pytest

from hajob.api.base import Json
from hajob.runtime.backoff import Backoff
from hajob.runtime.informer import Change, ChangeType, Informer
from hajob.runtime.kube import ApiError
from tests.unit.runtime.runtime_fakes import FakeClock, FakeKube, settle, unreachable

ADDED, MODIFIED, DELETED = ChangeType


class World:
    def __init__(self, project: object = None) -> None:
        self.kube, self.clock = FakeKube(), FakeClock()
        self.changes: list[tuple[ChangeType, str]] = []
        self.lists: list[tuple[str, int]] = []
        self.informer: Informer[str] = Informer(
            self.kube,
            self.clock,
            "pods",
            self._project,
            self._take,
            listed=lambda version: self.lists.append((version, len(self.changes))),
            backoff=Backoff(rand=lambda: 1.0),
        )

    def _project(self, raw: Json) -> str:
        return str(raw["value"])

    def _take(self, change: Change[str]) -> None:
        self.changes.append((change.type, change.value))

    def put(self, name: str, value: str) -> Json:
        return self.kube.put("pods", "ns", {"metadata": {"name": name}, "value": value})

    async def started(self) -> None:
        self.task = asyncio.create_task(self.informer.run())
        await settle()
        assert self.informer.synced.is_set()
        self.changes.clear()


async def test_pages_are_put_together() -> None:
    world = World()
    for number in range(7):
        world.put(f"p{number}", str(number))
    await world.started()
    assert sorted(world.informer.values()) == [str(number) for number in range(7)]
    assert world.informer.get("ns", "p3") == "3"
    assert len(world.informer) == 7


async def test_a_change_that_the_projection_does_not_show_is_none() -> None:
    world = World()
    pod = world.put("a", "1")
    await world.started()
    world.kube.send("MODIFIED", {**pod, "noise": 1})
    world.kube.send("MODIFIED", {**pod, "value": "2"})
    await settle()
    assert world.changes == [(MODIFIED, "2")]


@pytest.mark.parametrize("how", ["in the stream", "as an HTTP status"])
async def test_410_leads_to_a_new_list_that_tells_what_was_missed(how: str) -> None:
    world = World()
    world.put("stays", "1")
    world.put("goes", "2")
    world.put("anew", "3")
    await world.started()
    del world.kube.objects["pods", "ns", "goes"]
    world.put("anew", "4")
    if how == "in the stream":
        world.kube.send("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})
    else:
        world.kube.fail(ApiError(410, "Expired", "too old"))
        world.kube.break_watch()
    await settle()
    assert sorted(world.changes) == sorted([(DELETED, "2"), (DELETED, "3"), (ADDED, "4")])
    assert world.kube.lists == 2


async def test_the_version_of_a_list_is_told_after_all_that_it_holds_and_lacks() -> None:
    world = World()
    world.put("goes", "1")
    await world.started()
    assert world.lists == [("101", 1)]
    del world.kube.objects["pods", "ns", "goes"]
    world.put("comes", "2")
    world.kube.break_watch(ApiError(410, "Expired", "too old"))
    await settle()
    assert world.lists == [("101", 1), ("102", len(world.changes))]
    assert sorted(world.changes) == sorted([(ADDED, "2"), (DELETED, "1")])


@pytest.mark.parametrize(
    "error",
    [
        unreachable(),
        ApiError(401, "Unauthorized", ""),
        ApiError(403, "", ""),
        ApiError(500, "", ""),
        ApiError(429, "", ""),
    ],
)
async def test_every_other_error_is_waited_out_and_the_watch_goes_on(error: ApiError) -> None:
    world = World()
    pod = world.put("a", "1")
    await world.started()
    world.kube.fail(*[error] * 20)
    world.kube.break_watch(error)
    await world.clock.advance(300)
    assert not world.task.done()
    assert world.kube.lists == 1
    world.kube.send("MODIFIED", {**pod, "value": "2"})
    await settle()
    assert world.changes == [(MODIFIED, "2")]


async def test_delays_grow_to_a_cap_and_start_again_after_a_success() -> None:
    backoff = Backoff(first=0.1, longest=1.0, rand=lambda: 1.0)
    assert [backoff.delay() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.reset()
    assert Backoff(first=0.1, rand=lambda: 0.0).delay() == pytest.approx(0.05)
    assert backoff.delay() == 0.1


async def test_the_age_tells_of_silence_and_a_bookmark_ends_it() -> None:
    world = World()
    pod = world.put("a", "1")
    await world.started()
    await world.clock.advance(50)
    assert world.informer.age() == 50
    world.kube.send("BOOKMARK", pod)
    await settle()
    assert world.informer.age() == 0


async def test_a_late_deletion_of_a_predecessor_is_none() -> None:
    world = World()
    old = world.put("a", "1")
    await world.started()
    world.kube.send("ADDED", world.put("a", "2"))
    world.kube.send("DELETED", old)
    await settle()
    assert world.changes == [(DELETED, "1"), (ADDED, "2")]


async def test_an_object_that_cannot_be_read_and_a_handler_that_fails_stop_nothing() -> None:
    world = World()
    await world.started()
    world.informer._handler = lambda _: (_ for _ in ()).throw(RuntimeError("handler"))
    world.kube.send("ADDED", {"metadata": {"name": "bad", "namespace": "ns", "uid": "u", "resourceVersion": "1"}})
    world.kube.send("ADDED", world.put("good", "2"))
    await settle()
    assert list(world.informer.values()) == ["2"]
    assert not world.task.done()
