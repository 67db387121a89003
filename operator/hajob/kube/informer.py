"""A cache of one kind of object that is kept current by list and watch.

Guarantees (docs/decisions says why kopf does not provide them):

- an object that vanished while the watch was away is reported as deleted after the next list, and an object that was
  made again under the same name is reported as deleted and added;
- it never gives up, and never storms: whatever ends a watch, a pause precedes the next, a longer one each time
  until a watch has lived for a while or delivered something; 410 in the stream or as HTTP status leads to a new list.
  An API server under load ends watches that it finds slow after some seconds or less, in the middle of a thousand
  events: an unconditional backoff would delay it most when most events arrive;
- a watch on which nothing is heard, not even a bookmark, is followed by a new list. A server that was restored from a
  snapshot is older than the watch's version: it would say nothing until its own versions have passed that;
- large resources are listed in a stream, where the server can do that: one object is decoded at a time, which
  costs a fifth of the processor time of pages of a hundred and nothing of their memory. Elsewhere, page by page;
- objects are projected when they are decoded, and a change that the projection does not show is not reported;
- the handler is a plain function, called in the loop without a queue; every 32 events the loop gets its turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from sys import intern
from typing import Final, Generic, TypeVar

from hajob.api.base import Json
from hajob.backoff import Backoff
from hajob.clock import Clock, give_way, timeout
from hajob.kube.client import NO_STREAMS, SILENT, ApiError, Kube, WatchEvent, is_end_of_list

log = logging.getLogger(__name__)

T = TypeVar("T")

# A list of thousands of pods must not keep the loop from answering a coordinator, whose report may need an order within
# milliseconds; a turn of 32 takes about one.
EVENTS_PER_TURN: Final = 32
# The server has compacted the version from which the watch would go on: only a new list helps.
GONE: Final = 410
REFUSALS: Final = frozenset({401, 403, 404})
STEADY_SECONDS: Final = 1.0
"""A watch that lived for so long was a good one: the next pause is the shortest again. As in client-go."""
PATIENCE_SECONDS: Final = 10.0
"""So long a start of the operator waits for lists that it can do without: what they list may not be installed yet."""


async def wait_for_lists(clock: Clock, lists: Iterable[asyncio.Event]) -> bool:
    """Wait for `PATIENCE_SECONDS` at most; return whether all of these have come (`Informer.synced`, `answered`)."""
    try:
        async with timeout(clock, PATIENCE_SECONDS):
            await asyncio.gather(*(one.wait() for one in lists))
    except TimeoutError:
        return False
    return True


class ChangeType(StrEnum):
    """The kind of a change."""

    ADDED = "Added"
    MODIFIED = "Modified"
    DELETED = "Deleted"


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """A change of one object.

    Attributes:
        type: added, modified or deleted.
        value: the projection now; of a deleted object: as it was last known.
        previous: the projection before; None for a new object.
    """

    type: ChangeType
    value: T
    previous: T | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects an informer keeps.

    Attributes:
        resource: plural, such as `pods`.
        namespace: empty for all.
        label_selector: empty for all.
        large: whether there may be thousands.
    """

    resource: str
    namespace: str = ""
    label_selector: str = ""
    large: bool = False


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    uid: str
    value: T


class Informer(Generic[T]):
    """Keeps the projections of all selected objects.

    Args:
        kube: the API.
        clock: for ages and backoff.
        selection: which objects.
        project: makes the cached value from a raw object; an exception drops that one object, with a log line.
        handler: called for every change, in order; its exceptions are logged and lose nothing.

    Attributes:
        resource: plural.
        namespace: empty for all.
        synced: whether a first list was handled.
        refused: whether the server forbids reading it, or does not serve it.
        answered: whether a first list was handled or refused.
        on_list: called with a list's resourceVersion after the handler was called for all that it adds and removes.
        on_older_list: called when a list is older than what was heard before.
        backoff: between attempts.
    """

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        selection: Selection,
        project: Callable[[Json], T],
        handler: Callable[[Change[T]], None],
    ) -> None:
        self.resource, self.namespace = selection.resource, selection.namespace
        self.synced, self.answered = asyncio.Event(), asyncio.Event()
        self.refused = False
        self._kube = kube
        self._clock = clock
        self._project = project
        self._handler = handler
        self._selector = selection.label_selector
        self._streams_list = selection.large
        self.on_list: Callable[[str], None] = lambda _: None
        self.on_older_list: Callable[[], None] = lambda: None
        self.backoff = Backoff()
        self._entries: dict[tuple[str, str], _Entry[T]] = {}
        self._version = ""
        self._newest = ""
        self._heard = self._active = clock.monotonic()
        self._events = self._events_before = 0
        self._again = False
        self._watching: asyncio.Task[None] | None = None

    def reproject_all(self) -> None:
        """Project every object anew, because `project` gives other results now; differences are reported as changes."""
        self._again = True
        if self._watching is not None:
            self._watching.cancel()

    def get_cached(self, namespace: str, name: str) -> T | None:
        """Return the cached object of that name; nodes have an empty namespace."""
        entry = self._entries.get((namespace, name))
        return None if entry is None else entry.value

    def cached_values(self) -> Iterator[T]:
        """Iterate over all cached objects."""
        return (entry.value for entry in list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def seconds_since_answer(self) -> float:
        """Return seconds since the server last answered; above some 70 the cache may be out of date."""
        return self._clock.monotonic() - self._heard

    def seconds_since_activity(self) -> float:
        """Return seconds since this cache was active: the server answered, or a request failed.

        A server that is away keeps it active; above some 85 it is stuck by an error of this program.
        """
        return self._clock.monotonic() - self._active

    async def list_and_watch(self) -> None:
        """List and watch until cancelled."""
        while True:
            began = self._clock.monotonic()
            try:
                if not self._version and not self._streams_list:
                    await self._list_all()
                    began = self._clock.monotonic()
                self._events_before = self._events
                await self._watch_until_asked()
            except ApiError as error:
                if self._cannot_stream(error):
                    continue
                log.warning("%s: %s; trying again", self.resource, error)
                self.refused = error.status in REFUSALS
                if self.refused:
                    self.answered.set()
                if error.status == GONE or error.reason == SILENT:
                    self._version = ""
            except Exception:
                log.exception("%s: the watch is started again after an unexpected error", self.resource)
                self._version = ""
            await self._pause_before_next(began)

    def _cannot_stream(self, error: ApiError) -> bool:
        """Whether that is why a streaming list was refused; if so, read in pages from now on."""
        if not self._streams_list or self._version or error.status not in NO_STREAMS:
            return False
        log.info("%s: the server does not stream lists (%s): they are read in pages", self.resource, error)
        self._streams_list = False
        return True

    async def _pause_before_next(self, began: float) -> None:
        self._active = self._clock.monotonic()
        has_told = self._events > self._events_before and bool(self._version)
        if has_told or self._active - began >= STEADY_SECONDS:
            self.backoff.reset_delay()
        await self._clock.sleep(self.backoff.next_delay())

    def _note_answer(self) -> None:
        self._heard = self._active = self._clock.monotonic()
        self.refused = False

    async def _list_all(self) -> None:
        """Read everything page by page, then report the missing objects as deleted."""
        seen: set[tuple[str, str]] = set()
        version = ""
        async with aclosing(self._kube.list_pages(self.resource, self.namespace, self._selector)) as pages:  # type: ignore[type-var]
            async for page in pages:
                for raw in page.items:
                    seen.add(_key_of_object(raw))
                    self._store_object(raw)
                    await self._yield_now_and_then()
                version = page.resource_version
                self._note_answer()
        await self._complete_list(seen, version)

    async def _complete_list(self, seen: Collection[tuple[str, str]], version: str) -> None:
        """Report the known objects that a complete list lacks as deleted."""
        for key in [key for key in self._entries if key not in seen]:
            self._drop_object(key)
            await self._yield_now_and_then()
        self._version, before, self._newest = version, self._newest, version
        if version.isdecimal() and before.isdecimal() and int(version) < int(before):
            log.error("%s: the server was at version %s and is at %s: it was restored", self.resource, before, version)
            self.on_older_list()
        self.synced.set()
        self.answered.set()
        self.on_list(version)

    async def _watch_until_asked(self) -> None:
        """Follow the stream until it ends, or `reproject_all` is called."""
        if not self._again:
            self._watching = asyncio.create_task(self._follow_stream(), name=f"stream of {self.resource}")
            try:
                await self._watching
            except asyncio.CancelledError:
                self._watching.cancel()
                if not self._again or _is_task_cancelled():
                    raise
            finally:
                self._watching = None
        if self._again:
            self._again, self._version = False, ""

    async def _follow_stream(self) -> None:
        """Follow the stream until it ends; the version moves with every event and bookmark.

        Without a version the stream begins with the existing objects. If it breaks before their end, it begins anew.
        """
        seen: set[tuple[str, str]] | None = None if self._version else set()
        stream = self._kube.watch_objects(
            self.resource, self.namespace, self._selector, self._version, with_list=seen is not None
        )
        async with aclosing(stream) as events:  # type: ignore[type-var]
            async for event in events:
                self._note_answer()
                self._apply_event(event)
                version = event.object["metadata"]["resourceVersion"]
                if seen is None:
                    self._version = self._newest = version
                elif is_end_of_list(event):
                    await self._complete_list(seen, version)
                    seen = None
                elif event.type != "BOOKMARK":
                    # A streaming list may carry changes among the existing objects, deletions too.
                    (seen.discard if event.type == "DELETED" else seen.add)(_key_of_object(event.object))
                await self._yield_now_and_then()

    def _apply_event(self, event: WatchEvent) -> None:
        if event.type == "ERROR":
            raise _error_of_stream(event.object)
        if event.type == "DELETED":
            self._drop_object(_key_of_object(event.object), event.object)
        elif event.type != "BOOKMARK":
            self._store_object(event.object)

    def _store_object(self, raw: Json) -> None:
        """Store an object as it is now, and report the change."""
        key, uid = _key_of_object(raw), str(raw["metadata"].get("uid", ""))
        try:
            value = self._project(raw)
        except Exception:
            log.exception("%s %s/%s cannot be read and is left out", self.resource, *key)
            return
        # Another UID under the same name is another object: its predecessor was deleted while the watch was away.
        old = self._entries.get(key)
        if old is not None and old.uid != uid:
            self._drop_object(key)
            old = None
        self._entries[key] = _Entry(uid, value)
        if old is None:
            self._report_change(Change(ChangeType.ADDED, value))
        elif old.value != value:
            self._report_change(Change(ChangeType.MODIFIED, value, old.value))

    def _drop_object(self, key: tuple[str, str], raw: Json | None = None) -> None:
        """Remove a deleted object; ignore a late event about a predecessor of the same name."""
        entry = self._entries.get(key)
        if entry is None or (raw is not None and entry.uid != str(raw["metadata"].get("uid", ""))):
            return
        del self._entries[key]
        self._report_change(Change(ChangeType.DELETED, entry.value, entry.value))

    def _report_change(self, change: Change[T]) -> None:
        try:
            self._handler(change)
        except Exception:
            log.exception("%s: the handler of a change failed", self.resource)

    async def _yield_now_and_then(self) -> None:
        self._events += 1
        if self._events % EVENTS_PER_TURN == 0:
            await give_way()


def _is_task_cancelled() -> bool:
    """Whether this task itself is being cancelled, and not only what it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _key_of_object(raw: Json) -> tuple[str, str]:
    metadata = raw["metadata"]
    return intern(str(metadata.get("namespace", ""))), str(metadata["name"])


def _error_of_stream(status: Json) -> ApiError:
    return ApiError(int(status.get("code") or 500), str(status.get("reason", "")), str(status.get("message", "")))
