"""Messages of public faults over time: a message reports a change, and not a state.

ClusterD's rules (docs/admin/faults.md, "Public faults"): a recovery ends a fault on all chips of its node; what happens
once stands for five seconds; a recovery that overtakes its fault counts for five seconds; no more than so many faults
stand; a sender that sends too many messages is not listened to. All times are milliseconds of one clock that never runs
back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import Final

from hajob.domain.hardware import ClusterFact
from hajob.sources.public_fault import beginning_of_id, sender_of_fault
from hajob.sources.reading import Reading, Rejection, RejectionReason

# ClusterD lets a fault that happens once stand for as long, and a recovery that overtakes its fault wait for as long.
ONCE_MS: Final = 5_000
OVERTAKES_MS: Final = 5_000
REMEMBERED_MS: Final = 600_000
"""So long it is known of a message that is read again that it is over; an older one is by its own time."""
# ClusterD's own limit: a sender that never takes a fault back must not use up the memory of the operator.
MOST_STANDING: Final = 50_000
BURST: Final = 100
"""So many messages a sender may send at once."""
REFILL_MS: Final = 1_000
"""One more each time that so long has passed."""


class ReadingTurns:
    """The order in which messages are read: of each sender a burst, then one a second.

    ClusterD drops what comes too fast. An object stays, so here it waits, in the order of the messages, the newest of
    each object.
    """

    def __init__(self) -> None:
        self._full_ms: dict[str, int] = {}
        self._waiting: dict[str, dict[str, Reading]] = {}

    def has_turn(self, origin: str, reading: Reading, now_ms: int) -> bool:
        """Return whether the message is read now; it waits otherwise."""
        sender = reading.sender
        waiting = self._waiting.get(sender, {})
        if not sender or (not waiting and self._take_token(sender, now_ms)):
            return True
        self._waiting.setdefault(sender, waiting)[origin] = reading
        return False

    def take_due(self, now_ms: int) -> list[tuple[str, Reading]]:
        """Return the objects whose turn has come."""
        found = []
        for sender, waiting in list(self._waiting.items()):
            while waiting and self._take_token(sender, now_ms):
                origin = next(iter(waiting))
                found.append((origin, waiting.pop(origin)))
            if not waiting:
                del self._waiting[sender]
        return found

    def drop_object(self, origin: str) -> None:
        """Forget the message of an object that is gone."""
        for sender in [sender for sender, waiting in self._waiting.items() if waiting.pop(origin, None)]:
            if not self._waiting[sender]:
                del self._waiting[sender]

    def wakes_in_ms(self, now_ms: int) -> int | None:
        """Return how long until the next message has its turn; None: none waits."""
        waits = [self._full_ms[sender] - (BURST - 1) * REFILL_MS - now_ms for sender in self._waiting]
        return max(min(waits), 0) if waits else None

    def _take_token(self, sender: str, now_ms: int) -> bool:
        """Take a token of a sender's bucket, which is stored as the time at which it is full again."""
        full_ms = max(self._full_ms.get(sender, now_ms), now_ms)
        if full_ms - now_ms > (BURST - 1) * REFILL_MS:
            return False
        self._full_ms[sender] = full_ms + REFILL_MS
        return True


class Messages:
    """The messages of all senders; every method costs what the message holds."""

    def __init__(self, most: int = MOST_STANDING) -> None:
        self._most = most
        self._num_standing = 0
        self._standing: dict[str, set[str]] = {}
        self._ends_ms: dict[str, int] = {}
        self._over_until_ms: dict[str, int] = {}
        self.turns = ReadingTurns()

    def accept_message(self, reading: Reading, now_ms: int) -> tuple[Reading, list[Rejection]]:
        """Return the valid part of a message, and what has no room; ended faults are given by whole ids."""
        over: list[str] = []
        for begins in reading.over:
            if begins in self._standing:
                over += self._end_fault(begins)
            else:
                self._over_until_ms.setdefault(begins, now_ms + OVERTAKES_MS)
        fresh = [fact for fact in reading.facts if self._over_until_ms.get(beginning_of_id(fact.id), now_ms) <= now_ms]
        taken = list(self._facts_with_room(fresh))
        for fact in taken:
            begins = beginning_of_id(fact.id)
            if begins not in self._standing and fact.happens_once:
                self._ends_ms[begins] = now_ms + ONCE_MS
            here = self._standing.setdefault(begins, set())
            self._num_standing += fact.id not in here
            here.add(fact.id)
        counted = dataclasses.replace(reading, facts=taken, over=over)
        refused = len(fresh) - len(taken)
        too_many = Rejection(RejectionReason.TOO_MANY, "faults", f"{refused} beyond {self._most} that stand")
        return counted, [too_many] if refused else []

    def _end_fault(self, begins: str) -> set[str]:
        """End a fault on all chips of its node; return the ids of the faults that stood there."""
        self._ends_ms.pop(begins, None)
        ended = self._standing.pop(begins)
        self._num_standing -= len(ended)
        return ended

    def _facts_with_room(self, facts: Iterable[ClusterFact]) -> Iterable[ClusterFact]:
        room = self._most - self._num_standing
        for fact in facts:
            known = fact.id in self._standing.get(beginning_of_id(fact.id), ())
            if known or room > 0:
                room -= not known
                yield fact

    def forget_faults(self, fault_ids: Iterable[str]) -> None:
        """Forget faults that ended because the object that told them is gone; ids of other sources are ignored."""
        for fault_id in fault_ids:
            here = self._standing.get(beginning_of_id(fault_id))
            if here is not None and fault_id in here:
                here.remove(fault_id)
                self._num_standing -= 1
                if not here:
                    self._end_fault(beginning_of_id(fault_id))

    def end_of_others(self, senders: Collection[str]) -> list[str]:
        """End the faults of all other senders; return their ids."""
        others = [begins for begins in self._standing if sender_of_fault(begins) not in senders]
        return [fault_id for begins in others for fault_id in self._end_fault(begins)]

    def take_ended(self, now_ms: int) -> list[str]:
        """Return the ids of one-time faults that are over now."""
        ended: list[str] = []
        for begins in [begins for begins, at in self._ends_ms.items() if at <= now_ms]:
            ended += self._end_fault(begins)
            self._over_until_ms[begins] = now_ms + REMEMBERED_MS
        for begins in [begins for begins, until in self._over_until_ms.items() if until <= now_ms]:
            del self._over_until_ms[begins]
        return ended

    def wakes_in_ms(self, now_ms: int) -> int | None:
        """Return how long until a fault ends by time alone, or a message has its turn; None: never."""
        waits = [max(min(self._ends_ms.values()) - now_ms, 0)] if self._ends_ms else []
        turn = self.turns.wakes_in_ms(now_ms)
        return min([*waits, turn] if turn is not None else waits, default=None)
