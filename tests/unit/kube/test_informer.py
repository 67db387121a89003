"""The cache under everything a server can do to a watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.requests import requests
from e2e.memory_api.server import MemoryServer
from e2e.memory_api.streams import Stream
from hajob.api.base import Json
from hajob.backoff import Backoff
from hajob.kube.client import ApiError, WatchEvent, silent_watch_error
from hajob.kube.informer import ChangeType, Informer, Selection
from tests.rigs.fake_clock import FakeClock, settle
from tests.rigs.fake_kube import unreachable

ADDED, MODIFIED, DELETED = ChangeType
NAMESPACE = "default"
GONE = ApiError(410, "Expired", "too old")


class World:
    """An informer of the ConfigMaps of a server."""

    def __init__(self, *, large: bool = False, streams: bool = True) -> None:
        self.clock = FakeClock()
        self.server = MemoryServer(self.clock, page_limit=2)
        self.server.streams_lists = streams
        self.kube = MemoryKube(self.server)
        self.changes: list[tuple[ChangeType, str]] = []
        self.lists: list[tuple[str, int]] = []
        self.restored = 0
        self.informer: Informer[str] = Informer(
            self.kube,
            self.clock,
            Selection("configmaps", large=large),
            lambda raw: str(raw["data"]["value"]),
            lambda change: self.handle(change.type, change.value),
        )
        self.informer.on_list = lambda version: self.lists.append((version, len(self.changes)))
        self.informer.on_older_list = self.went_back
        self.informer.backoff = Backoff(rand=lambda: 1.0)

    def handle(self, kind: ChangeType, value: str) -> None:
        self.changes.append((kind, value))

    def went_back(self) -> None:
        self.restored += 1

    async def put(self, name: str, value: str) -> Json:
        body: Json = {"metadata": {"name": name}, "data": {"value": value}}
        return await self.kube.create_object("configmaps", NAMESPACE, body)

    async def change(self, name: str, value: str) -> None:
        await self.kube.patch_object("configmaps", NAMESPACE, name, {"data": {"value": value}})

    async def delete(self, name: str) -> None:
        await self.kube.delete_object("configmaps", NAMESPACE, name)

    async def started(self) -> None:
        self.task = asyncio.create_task(self.informer.list_and_watch())
        await settle()
        assert self.informer.synced.is_set()
        self.changes.clear()

    def cut(self, error: ApiError | None = None) -> None:
        """The watch ends: with an error, or as a server ends it."""
        for stream in self.server.open_streams():
            stream.end(error)

    def asked(self, *, watch: bool) -> int:
        """Requests for a watch, or for a list from its beginning, so far."""
        log = [request for request in self.server.log if request.method == "GET" and "continue" not in request.query]
        return sum(request.is_watch is watch for request in log)


async def test_pages_are_put_together() -> None:
    world = World()
    for number in range(7):
        await world.put(f"p{number}", str(number))
    await world.started()
    assert sorted(world.informer.cached_values()) == [str(number) for number in range(7)]
    assert world.informer.get_cached(NAMESPACE, "p3") == "3"
    assert len(world.informer) == 7


async def test_a_change_that_the_projection_does_not_show_is_none() -> None:
    world = World()
    await world.put("a", "1")
    await world.started()
    await world.kube.patch_object("configmaps", NAMESPACE, "a", {"metadata": {"annotations": {"noise": "1"}}})
    await world.change("a", "2")
    await settle()
    assert world.changes == [(MODIFIED, "2")]


@pytest.mark.parametrize(("streams", "lists"), [(True, 0), (False, 1)], ids=["in a stream", "on an older server"])
async def test_a_large_list_and_what_follows(streams: bool, lists: int) -> None:
    world = World(large=True, streams=streams)
    for number in range(5):
        await world.put(f"p{number}", str(number))
    version = str(world.server.history.version)
    await world.started()
    assert sorted(world.informer.cached_values()) == [str(number) for number in range(5)]
    assert world.lists == [(version, 5)]
    await world.change("p1", "new")
    await world.delete("p2")
    await settle()
    assert world.changes == [(MODIFIED, "new"), (DELETED, "2")]
    assert (world.asked(watch=False), world.asked(watch=True)) == (lists, 1 + lists)


async def test_a_large_list_is_streamed_anew_after_410() -> None:
    world = World(large=True)
    for name in ("stays", "goes"):
        await world.put(name, name)
    await world.started()
    world.cut(GONE)
    await world.delete("goes")
    await world.put("comes", "comes")
    world.server.history.forget()
    await world.clock.advance(1.0)
    assert sorted(world.changes) == sorted([(DELETED, "goes"), (ADDED, "comes")])
    assert world.lists[-1] == (str(world.server.history.version), 2)
    assert world.asked(watch=False) == 0


async def test_a_broken_streamed_list_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a list tells neither that it is whole nor that the rest is gone."""
    world = World(large=True)
    first = await world.put("a", "a")
    await world.put("b", "b")
    await world.started()
    world.cut(GONE)
    await world.delete("b")
    monkeypatch.setattr(Stream, "open", _telling(WatchEvent("ADDED", first), unreachable()))
    await world.clock.advance(1.0)
    assert (list(world.informer.cached_values()), len(world.lists)) == (["a", "b"], 1)
    monkeypatch.undo()
    await world.clock.advance(5.0)
    assert (list(world.informer.cached_values()), len(world.lists)) == (["a"], 2)


async def test_what_goes_while_a_list_streams_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(large=True)
    await world.put("a", "a")
    body = await world.put("b", "b")
    await world.started()
    world.cut(GONE)
    await world.delete("b")
    monkeypatch.setattr(Stream, "open", _telling(WatchEvent("ADDED", body), WatchEvent("DELETED", body)))
    await world.clock.advance(1.0)
    assert (list(world.informer.cached_values()), world.changes) == (["a"], [(DELETED, "b")])


def _telling(*lines: WatchEvent | ApiError) -> Callable[..., None]:
    """How a stream opens that tells these lines before all others."""
    opened = Stream.open

    def open_after(stream: Stream, version: str, *, with_list: bool = False) -> None:
        for line in lines:
            stream.lines.put_nowait(line)
        opened(stream, version, with_list=with_list)

    return open_after


@pytest.mark.parametrize("how", ["in the stream", "as an HTTP status"])
async def test_410_leads_to_a_new_list_that_tells_what_was_missed(how: str) -> None:
    world = World()
    for name, value in (("stays", "1"), ("goes", "2"), ("anew", "3")):
        await world.put(name, value)
    await world.started()
    world.cut(unreachable())
    await world.delete("goes")
    await world.delete("anew")
    await world.put("anew", "4")
    world.server.history.forget()
    if how == "as an HTTP status":
        world.server.faults.refuse(GONE, matching=requests("configmaps", "GET"))
    await world.clock.advance(1.0)
    assert sorted(world.changes) == sorted([(DELETED, "2"), (DELETED, "3"), (ADDED, "4")])
    assert world.asked(watch=False) == 2


async def test_a_lists_version_is_told_after_all_it_holds_and_lacks() -> None:
    world = World()
    await world.put("goes", "1")
    first = str(world.server.history.version)
    await world.started()
    assert world.lists == [(first, 1)]
    world.cut(GONE)
    await world.delete("goes")
    await world.put("comes", "2")
    await world.clock.advance(1.0)
    assert world.lists == [(first, 1), (str(world.server.history.version), len(world.changes))]
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
    await world.put("a", "1")
    await world.started()
    world.server.faults.refuse(error, matching=requests("", "GET"), times=20)
    world.cut(error)
    await world.clock.advance(300)
    assert not world.task.done()
    assert world.asked(watch=False) == 1
    await world.change("a", "2")
    await settle()
    assert world.changes == [(MODIFIED, "2")]


@pytest.mark.parametrize("trouble", ["410 for every watch", "watches that end at once", "410 in every stream"])
async def test_watches_that_fail_at_once_are_asked_for_more_rarely(trouble: str) -> None:
    world = World()
    await world.put("a", "1")
    if trouble == "410 for every watch":
        world.server.faults.refuse(GONE, matching=lambda request: request.is_watch, times=None)
    elif trouble == "watches that end at once":
        world.server.faults.close_watches()
    await world.started()
    for _ in range(600):
        if trouble == "410 in every stream":
            for stream in world.server.open_streams():
                stream.refuse(GONE)
        await world.clock.advance(0.1)
    assert world.asked(watch=False) + world.asked(watch=True) <= 30
    world.server.faults.clear()
    await world.change("a", "2")
    await world.clock.advance(11)
    assert world.changes[-1] == (MODIFIED, "2")


async def test_a_watch_that_lived_is_followed_by_the_next_at_once() -> None:
    world = World()
    await world.started()
    for _ in range(20):
        await world.clock.advance(6)
        world.cut()
        await settle()
        await world.clock.advance(0.2)
        assert len(list(world.server.open_streams())) == 1


async def test_a_watch_that_told_something_is_followed_at_once() -> None:
    world = World()
    await world.put("a", "0")
    await world.started()
    for value in range(1, 21):
        await world.change("a", str(value))
        await settle()
        world.cut()
        await settle()
        await world.clock.advance(0.1)
        assert len(list(world.server.open_streams())) == 1, f"after the {value}th watch"
    assert world.asked(watch=False) == 1


async def test_delays_grow_to_a_cap_and_start_again_after_a_success() -> None:
    backoff = Backoff(first=0.1, longest=1.0, rand=lambda: 1.0)
    assert [backoff.next_delay() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.reset_delay()
    assert Backoff(first=0.1, rand=lambda: 0.0).next_delay() == pytest.approx(0.05)
    assert backoff.next_delay() == 0.1


async def test_the_age_tells_of_silence_and_a_bookmark_ends_it() -> None:
    world = World()
    await world.started()
    await world.clock.advance(50)
    assert world.informer.seconds_since_answer() == 50
    await world.clock.advance(11)
    assert world.informer.seconds_since_answer() < 2


async def test_an_absent_server_makes_an_informer_old_but_not_idle() -> None:
    world = World()
    await world.started()
    world.server.faults.hold(times=None)
    for stream in world.server.open_streams():
        stream.silent = True
    idle = []
    for _ in range(180):
        await world.clock.advance(10)
        idle.append(world.informer.seconds_since_activity())
    assert world.informer.seconds_since_answer() > 1700
    assert max(idle) < 85


async def test_a_late_deletion_of_a_predecessor_is_none() -> None:
    world = World()
    old = await world.put("a", "1")
    await world.started()
    await world.delete("a")
    await world.put("a", "2")
    await settle()
    (stream,) = world.server.open_streams()
    stream.lines.put_nowait(WatchEvent("DELETED", old))
    await settle()
    assert world.changes == [(DELETED, "1"), (ADDED, "2")]
    assert world.informer.get_cached(NAMESPACE, "a") == "2"


class FailingWorld(World):
    """Its handler fails."""

    def handle(self, kind: ChangeType, value: str) -> None:
        raise RuntimeError(f"{kind} {value}")


async def test_unreadable_objects_and_failing_handlers_stop_nothing() -> None:
    world = FailingWorld()
    await world.started()
    await world.kube.create_object("configmaps", NAMESPACE, {"metadata": {"name": "bad"}})
    await world.put("good", "2")
    await settle()
    assert list(world.informer.cached_values()) == ["2"]
    assert not world.task.done()


async def test_a_server_restored_from_a_snapshot_is_listed_anew() -> None:
    """It is older than the watch: it says nothing, not even a bookmark, until its versions pass the watch's."""
    world = World()
    await world.put("kept", "1")
    snapshot = world.server.history.version
    await world.put("lost", "2")
    await world.change("kept", "3")
    await world.started()
    world.server.history.go_back(snapshot)
    world.cut()
    await world.clock.advance(5)
    await world.put("new", "4")
    await settle()
    assert world.changes == []
    lists = world.asked(watch=False)
    world.cut(silent_watch_error("/api/v1/configmaps"))
    await world.clock.advance(5)
    assert world.asked(watch=False) == lists + 1
    assert sorted(world.informer.cached_values()) == ["1", "4"]
    assert sorted(world.changes) == [(ADDED, "4"), (DELETED, "2"), (MODIFIED, "1")]
    assert world.restored == 1
    await world.change("new", "5")
    await settle()
    assert world.changes[-1] == (MODIFIED, "5")
    world.cut(silent_watch_error("/api/v1/configmaps"))
    await world.clock.advance(5)
    assert world.restored == 1, "a list that is not older tells of nothing"
