"""Keeping what was in the rendezvous store when it is lost with the coordinator's pod before this one.

The agents tell what their processes have written; by the times of it the store is put together again, and only when
another one holds it may anybody reach that (docs/protocols/launcher.md, "The store").
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.store_protocol import DIALECTS, Dialect
from trainer_sidecar.units import NANOSECONDS

# All agents are asked at once. One that does not tell by then costs the store, never the takeover.
GATHER_SECONDS = 10.0
LARGEST_BYTES = 256 * 1024 * 1024

log = logging.getLogger(__name__)


class KeepingPhase(StrEnum):
    """Phases of the recovery of a lost store's content."""

    NONE = "none"  # nothing was lost
    GATHERING = "gathering"  # what agents tell
    GATHERED = "gathered"  # an empty store is waited for
    FILLING = "filling"
    KEPT = "kept"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Fill:
    """What a new store is filled with."""

    dialect: Dialect
    entries: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    value: bytes | None
    at: float


@dataclass(slots=True)
class _Key:
    """What pods have last made of a key: the last one that set or deleted it counts, and who has counted since."""

    written: _Entry | None = None
    counts: list[tuple[float, int]] = field(default_factory=list)  # none is both earlier and lower than another

    def add_count(self, at: float, number: int) -> None:
        """Add the number that a pod has heard last: others may have heard a higher one that it has not."""
        if not any(at <= other and number <= higher for other, higher in self.counts):
            self.counts = [one for one in self.counts if one[0] > at or one[1] > number] + [(at, number)]

    def value_of_key(self) -> bytes | None:
        """Return the value; None: the key was deleted."""
        before = self.written.at if self.written is not None else 0.0
        counts = [number for at, number in self.counts if self.written is None or at > before]
        if counts:
            return b"%d" % max(counts)
        return self.written.value if self.written is not None else None


@dataclass(slots=True)
class StoreKeeping:
    """The recovery from one loss of the store. Times in seconds."""

    phase: KeepingPhase = KeepingPhase.NONE
    problem: str = ""
    _since: float = 0.0
    _word: str = ""
    _dialect: str = ""
    _told: set[str] = field(default_factory=set)  # UIDs of the pods that have told everything
    _keys: dict[bytes, _Key] = field(default_factory=dict)
    _bytes: int = 0
    _is_due: bool = False
    _asked_at: float = -math.inf

    @property
    def is_store_held(self) -> bool:
        """Whether nobody may reach the store yet."""
        return self.phase in (KeepingPhase.GATHERING, KeepingPhase.GATHERED, KeepingPhase.FILLING)

    @property
    def is_store_kept(self) -> bool:
        """Whether the store holds what the one before it held."""
        return self.phase is KeepingPhase.KEPT

    @property
    def wanted_word(self) -> str:
        """The word by which agents are asked; empty: they are not."""
        return self._word if self.phase is KeepingPhase.GATHERING else ""

    def begin_gathering(self, word: str, now: float) -> None:
        """Begin to gather what was in the store, which is lost."""
        self.phase, self.problem, self._word, self._since = KeepingPhase.GATHERING, "", word, now
        self._dialect, self._told, self._keys, self._bytes = "", set(), {}, 0
        self._asked_at = -math.inf

    def add_content(self, uid: str, said: pb.StoreContent, now: float) -> None:
        """Take in what an agent has told: a part, or all."""
        if self.phase is not KeepingPhase.GATHERING or said.wanted != self._word:
            return
        if said.problem:
            self.give_up_store(said.problem)
            return
        if said.dialect and self._dialect not in ("", said.dialect):
            self.give_up_store("processes speak to the store in different ways")
            return
        self._dialect = self._dialect or said.dialect
        for one in said.entries:
            self._add_entry(one, now - one.age_nanoseconds / NANOSECONDS)
        if said.last:
            self._told.add(uid)
        if self._bytes > LARGEST_BYTES:
            self.give_up_store(f"more than {LARGEST_BYTES >> 20} MiB were written into it")

    def _add_entry(self, one: pb.StoreEntry, at: float) -> None:
        if one.key not in self._keys:
            self._keys[one.key] = _Key()
            self._bytes += len(one.key)
        key = self._keys[one.key]
        if one.counted:
            key.add_count(at, int(one.value))
        elif key.written is None or at > key.written.at:
            self._bytes += len(one.value) - len((key.written.value if key.written is not None else None) or b"")
            key.written = _Entry(None if one.deleted else one.value, at)

    def is_store_kept_for(self, uid: str) -> bool:
        """Return whether the store holds what this pod's processes had written: it may have been heard too late."""
        return self.is_store_kept and uid in self._told

    def finish_gathering(self, uids: Collection[str], now: float) -> None:
        """Finish the gathering when all these pods have told everything; give up when it takes too long."""
        if self.phase is not KeepingPhase.GATHERING:
            return
        if uids and self._told.issuperset(uids):
            self.phase = KeepingPhase.GATHERED if self._dialect else KeepingPhase.KEPT
            log.warning("the rendezvous store is lost; its %d keys are known", len(self._keys))
        elif now - self._since > GATHER_SECONDS:
            self.give_up_store("not every agent has told what its processes had written")

    def give_up_store(self, why: str) -> None:
        """Give up the store: the ranks that run cannot meet anew."""
        log.warning("the rendezvous store is lost with what was in it: %s", why)
        self.phase, self.problem, self._keys = KeepingPhase.LOST, why, {}

    def take_request_turn(self, now: float, again_seconds: float) -> bool:
        """Return whether to ask for an empty store now; again after `again_seconds` without an answer."""
        due = self.phase is KeepingPhase.GATHERED and now - self._asked_at >= again_seconds
        self._asked_at = now if due else self._asked_at
        return due

    def begin_filling(self) -> None:
        """Begin to fill: another store is there, and empty."""
        self.phase, self._is_due = KeepingPhase.FILLING, True

    def take_fill(self) -> Fill | None:
        """Take out what the new store is to be told now; None: nothing, or it is being told."""
        if not self._is_due:
            return None
        self._is_due = False
        values = ((key, one.value_of_key()) for key, one in sorted(self._keys.items()))
        return Fill(DIALECTS[self._dialect], tuple((key, value) for key, value in values if value is not None))

    def note_filled(self, problem: str) -> None:
        """Note that the store holds everything, or why it does not."""
        if self.phase is not KeepingPhase.FILLING:
            return
        if problem:
            self.give_up_store(problem)
        else:
            log.warning("another rendezvous store holds what the lost one held")
            self.phase, self._keys = KeepingPhase.KEPT, {}
