"""What an event leaves to be sent: requests to the controller host, orders for agents, news for the operator.

Only this module changes it. The shell takes it after each event.
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


@dataclass(frozen=True, slots=True)
class HostRequest:
    """One line for the controller host. `order`: the highest number of an order that it is part of, for the log."""

    call: str
    arguments: dict[str, object]
    order: int = 0


@dataclass
class _Item:
    message: pb.Fact | pb.Milestone
    at: float
    sequence: int = 0  # of the report it travelled in last; 0: in none on this stream


class ReportOutbox:
    """Queue of the facts and milestones that the operator has not acknowledged.

    They are numbered by report, and repeated on a new stream. Each keeps its time by this machine's clock and leaves
    with its age, because wall clocks of different machines are not compared. A fact, known by its id, is taken in once.
    """

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


class Effects:
    """What the core wants sent: reports, requests and orders, collected until the shell takes them."""

    def __init__(self) -> None:
        self.outbox = ReportOutbox()
        self.requests: list[HostRequest] = []
        self.dirty: dict[str, None] = {}  # UIDs of pods to be looked at, in order
        self.urgent = False  # a report is due at once
        self.changed = False  # a report is due soon
        self.refused_inputs = 0
        self._facts = 0
        self._held: tuple[float, float] | None = None  # since when, until when facts and milestones are held back

    def request_call(self, call: str, arguments: dict[str, object], order: int = 0) -> None:
        """Ask the controller host for a call."""
        self.requests.append(HostRequest(call, arguments, order))

    def take_requests(self) -> list[HostRequest]:
        """Take out the requests to the controller host, in order."""
        requests, self.requests = self.requests, []
        return requests

    def touch_pods(self, *uids: str) -> None:
        """Mark the pods whose agents may have to be told something new; an empty UID is no pod's."""
        self.dirty.update((uid, None) for uid in uids if uid)

    def take_touched_pods(self, limit: int) -> list[str]:
        """Take out at most `limit` of the pods that were touched; the others stay."""
        taken = list(self.dirty)[:limit] if len(self.dirty) > limit else list(self.dirty)
        for uid in taken:
            del self.dirty[uid]
        return taken

    def note_change(self, *, changed: bool = True, urgent: bool = False) -> None:
        """Note that the state differs from the last report."""
        self.changed |= changed
        self.urgent |= urgent

    def refuse_input(self) -> None:
        """Count an input that makes no sense here."""
        self.refused_inputs += 1
        self.note_change()

    def next_fact_number(self) -> int:
        """Count one more fact of the coordinator's own; return its number."""
        self._facts += 1
        return self._facts

    def queue_fact(self, fact: pb.Fact, at: float) -> None:
        """Queue a fact for the operator."""
        if self.outbox.add_fact(fact, at):
            self.urgent = True

    def queue_milestone(self, milestone: pb.Milestone, at: float) -> None:
        """Queue a milestone for the operator."""
        self.outbox.add_milestone(milestone, at)
        self.urgent = True

    # -- what is held back ---------------------------------------------------------------------------------------------

    @property
    def held_since(self) -> float | None:
        """Since when facts and milestones are held back; None: they are not."""
        return self._held[0] if self._held is not None else None

    def hold_back(self, now: float, seconds: float) -> None:
        """Hold facts and milestones back for `seconds` from now; a hold that has begun is not prolonged."""
        if self._held is None:
            self._held = (now, now + seconds)
            self.outbox.hold_back()

    def queue_milestone_ahead(self, milestone: pb.Milestone, at: float) -> None:
        """Queue a milestone before what is held back."""
        self.outbox.add_milestone(milestone, at, ahead=True)

    def release_held(self) -> None:
        """Send everything that is held back."""
        self._held = None
        self.outbox.release_held()
        self.urgent = True

    def release_overdue(self, now: float) -> None:
        """Send everything that was held back for long enough."""
        if self._held is not None and now >= self._held[1]:
            self.release_held()

    def next_report(self, state: pb.CoordinatorState, now: float) -> pb.Report:
        """Build the next report to the operator."""
        self.urgent = self.changed = False
        return self.outbox.next_report(state, now)
