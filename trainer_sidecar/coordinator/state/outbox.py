"""The outbox of facts and milestones: numbered by report, repeated on a new stream until acknowledged.

Each keeps its time by this machine's clock and leaves with its age, because wall clocks of different machines are not
compared. An observation, known by its id, is taken in once.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.known_ids import KnownIds
from trainer_sidecar.units import NANOSECONDS

log = logging.getLogger(__name__)

# Far more than incidents leave in days: it only bounds the memory while no operator is there to take anything in.
KEPT_ITEMS = 8192


@dataclass
class _Item:
    message: pb.Fact | pb.Milestone
    at: float
    sequence: int = 0  # of the report it travelled in last; 0: in none on this stream


class ReportOutbox:
    """Queue of the facts and milestones that the operator has not acknowledged."""

    def __init__(self) -> None:
        self._items: list[_Item] = []
        self._held: list[_Item] | None = None  # what goes out only when it is released
        self._known = KnownIds()
        self._sequence = 0

    def add_fact(self, fact: pb.Fact, at: float) -> bool:
        """Queue a fact; False when it is known already."""
        if not self._known.is_new_id(fact.id):
            return False
        self._append_item(_Item(fact, at))
        return True

    def add_milestone(self, milestone: pb.Milestone, at: float, *, ahead: bool = False) -> None:
        """Queue a milestone that was reached at `at`; `ahead`: before everything that is held back."""
        self._append_item(_Item(milestone, at), ahead=ahead)

    def hold_back(self) -> None:
        """Hold what is added from now on until it is released."""
        self._held = self._held or []

    def release_held(self) -> None:
        """Put what was held back into the next report, in its order."""
        held, self._held = self._held, None
        for item in held or ():
            self._append_item(item)

    def _append_item(self, item: _Item, *, ahead: bool = False) -> None:
        if self._held is not None and not ahead:
            self._held.append(item)
            return
        self._items.append(item)
        if len(self._items) > KEPT_ITEMS:
            log.error("no operator has taken in anything for %d items; dropped: %s", KEPT_ITEMS, self._items.pop(0))

    def waiting_milestones(self) -> list[pb.Milestone]:
        """Return the milestones that wait, oldest first."""
        waiting = (*self._items, *(self._held or ()))
        return [item.message for item in waiting if isinstance(item.message, pb.Milestone)]

    @property
    def is_empty(self) -> bool:
        """Whether everything has gone out, as far as it may."""
        return all(item.sequence for item in self._items)

    def resend_unacknowledged(self) -> None:
        """Send everything unacknowledged again, on a new stream."""
        for item in self._items:
            item.sequence = 0

    def acknowledge_reports(self, sequence: int) -> None:
        """Remove what was sent up to this report: the operator has taken it in."""
        self._items = [item for item in self._items if not 0 < item.sequence <= sequence]

    def next_report(self, state: pb.CoordinatorState, now: float) -> pb.Report:
        """Build the next report: the state, and everything new on this stream."""
        self._sequence += 1
        report = pb.Report(sequence=self._sequence, state=state)
        for item in self._items:
            if item.sequence:
                continue
            item.sequence = self._sequence
            item.message.age_nanoseconds = max(0, int((now - item.at) * NANOSECONDS))
            if isinstance(item.message, pb.Fact):
                report.facts.append(item.message)
            else:
                report.milestones.append(item.message)
        return report
