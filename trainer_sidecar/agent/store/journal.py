"""The keys that this pod's processes have written into the rendezvous store, kept to fill another store.

Of every key the last write of this pod counts; the coordinator merges those of all pods, by their times. Keys of pods
that are gone are lost: each repair rebuilds every group, by the ranks that are there.
docs/protocols/launcher.md#the-store
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent.clock import Clock
from trainer_sidecar.store_protocol import Answered, Request

# Addresses of peers and ids of groups are a few hundred bytes a rank: more means that a program stores its data there.
LARGEST_BYTES = 32 * 1024 * 1024
PART_BYTES = 512 * 1024
"""Of one message to the coordinator, whose limit is 4 MiB."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Written:
    """The last writing of a key: its value, None: it was deleted; `counted`: by adding to what others had added."""

    value: bytes | None
    at: int  # nanoseconds of this machine's clock
    counted: bool = False


class StoreJournal:
    """What this pod's processes have written into the store, by key.

    Attributes:
        dialect: How the clients of this pod speak; empty: none has said anything.
        problem: Why this is not all that was written; empty: it is.
    """

    def __init__(self, problem: str = "") -> None:
        self._written: dict[bytes, Written] = {}
        self._bytes = 0
        self.dialect = ""
        self.problem = problem

    def begin_store(self, problem: str = "") -> None:
        """Begin with another store, an empty one."""
        self._written, self._bytes, self.problem = {}, 0, problem

    def give_up_content(self, problem: str) -> None:
        """Give up: from here on the store's content is unknown."""
        if not self.problem:
            log.warning("what is in the rendezvous store is not known any more: %s", problem)
        self.problem = self.problem or problem
        self._written, self._bytes = {}, 0

    def note_request(self, request: Request, at: int) -> None:
        """Note a request passed on; those without a reply count as done."""
        strings = request.strings
        if request.operation.name in ("set", "multi_set"):
            for key, value in zip(strings[::2], strings[1::2], strict=True):
                self._record_key(key, Written(value, at))
        elif request.operation.name == "append":
            self.give_up_content("a process appends to a key, and so may others")
        elif request.operation.name == "queue_push":
            self.give_up_content("a process fills a queue, which others empty")

    def note_answer(self, answer: Answered) -> None:
        """Note the store's reply."""
        request, name, at = answer.request, answer.request.operation.name, answer.at
        if name == "add":
            self._record_key(request.strings[0], Written(b"%d" % answer.number, at, counted=True))
        elif name == "delete":
            self._record_key(request.strings[0], Written(None, at))
        elif name == "compare_set" and answer.value == request.strings[2] != request.strings[1]:
            self._record_key(request.strings[0], Written(answer.value, at))

    def _record_key(self, key: bytes, written: Written) -> None:
        if self.problem:
            return
        before = self._written.get(key)
        if before is not None:
            self._bytes -= len(before.value or b"")
        else:
            self._bytes += len(key)
        self._written[key] = written
        self._bytes += len(written.value or b"")
        if self._bytes > LARGEST_BYTES:
            self.give_up_content(f"its processes have written more than {LARGEST_BYTES >> 20} MiB")

    def content_messages(self, wanted: str, clock: Clock) -> Iterator[pb.StoreContent]:
        """Return all of it, in messages of bounded size; the last one is marked.

        An age counts from when a part is made: the one before it may have taken its time.
        """
        part = pb.StoreContent(wanted=wanted, dialect=self.dialect, problem=self.problem)
        size = 0
        for key, one in list(self._written.items()):
            age = max(0, clock.now() - one.at)
            entry = part.entries.add(key=key, value=one.value or b"", age_nanoseconds=age)
            entry.deleted, entry.counted = one.value is None, one.counted
            size += len(key) + len(entry.value)
            if size > PART_BYTES:
                yield part
                part, size = pb.StoreContent(wanted=wanted, dialect=self.dialect, problem=self.problem), 0
        part.last = True
        yield part
