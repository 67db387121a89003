"""What messages of public faults mean over time: a message tells of a change, and not of what is.

ClusterD's rules (docs/faults.md, "Public faults"): what happens once stands for five seconds; a recovery that overtakes
its fault counts for five seconds; no more than so many faults stand. All times are milliseconds of one clock that never
runs back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final

from hajob.domain.hardware import ClusterFact
from hajob.sources.reading import Reading, Rejection, RejectionReason

ONCE_MS: Final = 5_000
OVERTAKES_MS: Final = 5_000
REMEMBERED_MS: Final = 600_000
"""So long it is known of a message that is read again that it is over; an older one is by its own time."""
MOST_STANDING: Final = 50_000


class Messages:
    """Of all senders together; every method costs what the message holds."""

    def __init__(self, most: int = MOST_STANDING) -> None:
        self._most = most
        self._standing: set[str] = set()
        self._ends_ms: dict[str, int] = {}
        self._over_until_ms: dict[str, int] = {}

    def heard(self, reading: Reading, now_ms: int) -> tuple[Reading, list[Rejection]]:
        """What of a message counts, and what has no room."""
        for fault in reading.over:
            if fault in self._standing:
                self._standing.discard(fault)
                self._ends_ms.pop(fault, None)
            else:
                self._over_until_ms.setdefault(fault, now_ms + OVERTAKES_MS)
        fresh = [fact for fact in reading.facts if self._over_until_ms.get(fact.id, now_ms) <= now_ms]
        taken = list(self._with_room(fresh))
        for fact in taken:
            if fact.id not in self._standing and fact.happens_once:
                self._ends_ms[fact.id] = now_ms + ONCE_MS
            self._standing.add(fact.id)
        counted = dataclasses.replace(reading, facts=taken)
        refused = len(fresh) - len(taken)
        too_many = Rejection(RejectionReason.TOO_MANY, "faults", f"{refused} beyond {self._most} that stand")
        return counted, [too_many] if refused else []

    def _with_room(self, facts: Iterable[ClusterFact]) -> Iterable[ClusterFact]:
        room = self._most - len(self._standing)
        for fact in facts:
            known = fact.id in self._standing
            if known or room > 0:
                room -= not known
                yield fact

    def take_ended(self, now_ms: int) -> list[str]:
        """Ids of what happened once, and is over now."""
        ended = [fault for fault, at in self._ends_ms.items() if at <= now_ms]
        for fault in ended:
            del self._ends_ms[fault]
            self._standing.discard(fault)
            self._over_until_ms[fault] = now_ms + REMEMBERED_MS
        for fault in [fault for fault, until in self._over_until_ms.items() if until <= now_ms]:
            del self._over_until_ms[fault]
        return ended

    def wakes_in_ms(self, now_ms: int) -> int | None:
        """How long until something is over by itself; None: nothing is."""
        return max(min(self._ends_ms.values()) - now_ms, 0) if self._ends_ms else None
