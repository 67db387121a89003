"""The open incident, what is still expected of the one before, and the numbers. Only this module changes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from hajob.protocol import sidecar_pb2 as pb


@dataclass(slots=True)
class OpenIncident:
    """One outage, from the first loss to MindIO's success report."""

    incarnation: int
    opened: float
    planned: bool = False  # nothing was lost: a move, a pause, growing
    joined: int = 0  # the highest number of an order that is part of it
    strategy_sent: float | None = None
    resumed: bool = False
    standing: pb.Action = pb.ACTION_UNSPECIFIED  # what the coordinator has decided by itself
    told: dict[pb.MilestoneKind, frozenset[int]] = field(default_factory=dict)  # of its replacements

    @property
    def highest_number(self) -> int:
        """The highest number that belongs to it."""
        return max(self.incarnation, self.joined)

    def is_after_strategy(self, at: float) -> bool:
        """Return whether what happened at `at` follows from the strategy."""
        return self.strategy_sent is not None and at > self.strategy_sent

    def join_order(self, incarnation: int) -> None:
        """Add an order of this number to the incident."""
        self.joined = max(self.joined, incarnation)

    def note_sent_strategy(self, at: float) -> None:
        """Note when the strategy was sent: a step that ends later ends the outage."""
        self.strategy_sent = at

    def note_resumed(self) -> None:
        """Note that the first step has ended."""
        self.resumed = True

    def forget_strategy(self) -> None:
        """Forget the chosen strategy, which went with a controller: no step ends the outage before the next choice."""
        self.strategy_sent, self.resumed = None, False

    def note_standing_action(self, action: pb.Action) -> None:
        """Note the action on which the coordinator has decided."""
        self.standing = action

    def is_new_milestone(self, kind: pb.MilestoneKind, ranks: frozenset[int]) -> bool:
        """Return whether this kind was not told of exactly these replacements before, and note that it is told now."""
        before, self.told[kind] = self.told.get(kind), ranks
        return before != ranks


@dataclass(slots=True)
class Incidents:
    """The open incident, of which there is one at a time, and the numbers that are taken."""

    incarnation: int = 0  # the highest known
    concluded: int = 0  # orders up to this number have been carried out
    current: OpenIncident | None = None
    unresumed: OpenIncident | None = None  # over for MindIO before a step had ended: it repaired from a checkpoint

    def note_taken_number(self, incarnation: int) -> None:
        """Note that a number is taken."""
        self.incarnation = max(self.incarnation, incarnation)

    def conclude_up_to(self, incarnation: int) -> None:
        """Close whatever was ordered up to this number."""
        self.note_taken_number(incarnation)
        self.concluded = max(self.concluded, incarnation)

    def open_incident(
        self, incarnation: int, now: float, *, planned: bool, ordered: int = 0, first: int = 0
    ) -> OpenIncident:
        """Return the open incident, or open one: under the order's number, or the next one when there is no order yet.

        A planned action that a fault disturbs is over; the fault is another incident. One that failed may be followed
        by a checkpoint under its own number. `ordered`: the number of an order that waits for an incident. `first`: the
        number under which another coordinator has opened that order's incident, 0: none has.
        """
        incident = self.current
        if incident is not None and incident.planned and not planned:
            if 0 < incarnation <= incident.highest_number:
                incident.planned = False
            else:
                self.conclude_incident()
                incident = None
        if incident is None:
            self.unresumed = None
            number = incarnation or ordered or self.incarnation + 1
            self.note_taken_number(number)
            incident = self.current = OpenIncident(min(first or number, number), now, planned)
            incident.join_order(number)
        incident.join_order(incarnation)
        return incident

    def conclude_incident(self, *, unresumed: bool = False) -> None:
        """Close the incident; the orders that belong to it are carried out.

        `unresumed`: the first step is still to come.
        """
        incident, self.current = self.current, None
        if incident is None:
            return
        self.concluded = max(self.concluded, incident.highest_number)
        if unresumed and not incident.resumed:
            self.unresumed = incident

    def abandon_incident(self) -> None:
        """Forget the incident: every rank is ended, and nothing is expected of it."""
        self.current = None

    def note_late_resumption(self) -> None:
        """Note that the first step after a repair from a checkpoint has ended."""
        self.unresumed = None
