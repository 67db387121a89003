"""The conversation with MindIO's controller: one table of (state, event, guard, effect, next).

MindIO tolerates no wrong call: a call that its phase does not expect remains as a wake-up and ends the controller at
the next fault, a second `stop_train` or a second naming silences it for good, and a late answer reaches a controller
that has left. So every phase is a state, every call is in exactly one place, and an event that the table does not list
gets no answer (docs/protocols/sidecar.md, "The conversation with MindIO").

Pure: time comes in with the event, calls go out as values.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.conversation.states import BLIND, GATHERS, State

MEMORY_FAULT, PROCESS_FAULT, COMMUNICATION_FAULT = 0, 1, 2
"""MindIO's kinds of faults (docs/protocols/mindio.md)."""
SAVE_LEFT, FAILED_FOR_GOOD = 406, 499
"""MindIO's results of a failed recovery: 406 leaves only a checkpoint, 499 only a new start."""
# MindIO may only be busy with the call before, and a recovery waits for each of these tenths.
RETRY_DELAY_SECONDS = 0.1
# Five seconds of them: what is refused for longer is refused for another reason, and each refusal is in the log.
MAX_QUICK_RETRIES = 50
SLOW_RETRY_SECONDS = 2.0


class EventKind(StrEnum):
    """Kinds of events in the conversation."""

    SERVES = "serves"
    TAKEN_UP = "taken up"  # a controller serves and carries out `strategy`
    GONE = "gone"
    TAKEN_OVER = "taken over"  # another controller knows every rank
    ENDED = "ended"  # every rank is ended by order
    FAULT = "report_fault_ranks"
    STOP_OK = "report_stop_complete 0"
    STOP_FAILED = "report_stop_complete other"
    OFFER = "report_strategies"
    SUCCESS = "report_result 0"
    ISOLATED = "report_result 201"
    RETRY_REFUSED = "report_result 405"
    OPEN_FAILURE = "report_result 406"
    FAILURE = "report_result other"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    STEP = "step"
    FINISH = "finish"
    LOOK = "look"


@dataclass(frozen=True)
class MindIOEvent:
    """One event. `ranks`: rank -> fault type; `codes`: rank -> MindIO's error code."""

    kind: EventKind
    ranks: Mapping[int, int] = field(default_factory=dict)
    codes: Mapping[int, str] = field(default_factory=dict)
    code: int = 0
    text: str = ""
    strategies: tuple[str, ...] = ()
    strategy: str = ""
    call: str = ""


@dataclass(frozen=True)
class Desired:
    """Decision for MindIO at this moment, made from the operator's order and the successors at the gates.

    `strategy` is MindIO's word, "" when nothing may be chosen yet. `names`: the ranks for on_global_rank.
    `ready`: every rank of `names` that has to come back stands at its gate. `again`: the replay repeats a decision, so
    its preconditions held then.
    """

    strategy: str
    names: Mapping[int, int] = field(default_factory=dict)
    ready: bool = True
    parameters: str = ""
    seconds: int = 1
    again: bool = False


@dataclass(frozen=True)
class HostCall:
    """Call a function of the controller host."""

    name: str
    arguments: Mapping[str, object]


@dataclass(frozen=True)
class Admit:
    """Let the successors of these ranks, which MindIO has named, pass the gate."""

    ranks: frozenset[int]


@dataclass(frozen=True)
class TellMilestone:
    """Report a milestone of the incident."""

    kind: pb.MilestoneKind
    event: MindIOEvent = MindIOEvent(EventKind.LOOK)


@dataclass(frozen=True)
class Found:
    """Report ranks that MindIO itself found faulty."""

    ranks: Mapping[int, int]
    codes: Mapping[int, str]
    text: str = "found by MindIO"


@dataclass(frozen=True)
class EndRanks:
    """End these ranks, because no other component does; None means every rank."""

    ranks: frozenset[int] | None


@dataclass(frozen=True)
class Left:
    """Report that the controller has left or is in an unknown state, without an order that led to it."""

    text: str


@dataclass(frozen=True)
class Unexpected:
    """Report an event that no row of this state answers. `number`: how many there have been."""

    event: MindIOEvent
    state: State
    number: int


Command = HostCall | Admit | TellMilestone | Found | EndRanks | Left | Unexpected


@dataclass
class ConversationMemory:
    """State that the conversation keeps between two events."""

    answer_seconds: float
    desired: Desired | None = None
    lost: dict[int, int] = field(default_factory=dict)  # died before the naming: will be named
    late: dict[int, int] = field(default_factory=dict)  # died after the naming: cannot be named any more
    named: dict[int, int] = field(default_factory=dict)
    renewed: set[int] = field(default_factory=set)  # named ranks with a new process that must be admitted
    offered: tuple[str, ...] = ()
    strategy: str = ""
    came_from: State = State.SERVING
    accepted: bool = False  # whether the last call was accepted
    refusals: int = 0
    hold_until: float = 0.0
    due: float | None = None
    now: float = 0.0
    problem: str = ""
    saved: bool = False
    unexpected: int = 0


Guard = Callable[[ConversationMemory, MindIOEvent], bool]
Effect = Callable[[ConversationMemory, MindIOEvent], list[Command]]


@dataclass(frozen=True)
class ConversationRow:
    """One row of the table; `following` None means the state in which the last call was made."""

    state: State
    event: EventKind
    guard: Guard
    effect: Effect
    following: State | None


class Conversation:
    """State machine of the table. Feed it events in the order in which they happened."""

    def __init__(self, rows: Mapping[tuple[State, EventKind], list[ConversationRow]], answer_seconds: float) -> None:
        self._rows = rows
        self.state = State.OFFLINE
        self.memory = ConversationMemory(answer_seconds)

    @property
    def is_blind(self) -> bool:
        """Whether the controller misses the next fault for another reason than that all was saved and ended."""
        return self.state in BLIND and not (self.state is State.CLOSED and self.memory.saved)

    def feed_event(self, event: MindIOEvent, now: float) -> list[Command]:
        """Take in one event, decide on the state then known, and return the commands in order."""
        commands = self.hear_event(event, now)
        while event.kind is not EventKind.ACCEPTED and (decided := self.make_decision()) is not None:
            commands += decided
        return commands

    def hear_event(self, event: MindIOEvent, now: float) -> list[Command]:
        """Take in one event without deciding; return the commands in order."""
        memory = self.memory
        memory.now = now
        memory.accepted = memory.accepted or event.kind is EventKind.ACCEPTED
        row = self._matching_row(event)
        if row is not None:
            return self._apply_row(row, event)
        if event.kind in QUIET:
            return []
        memory.unexpected += 1
        return [Unexpected(event, self.state, memory.unexpected)]

    def make_decision(self) -> list[Command] | None:
        """Make one decision on the known state; return None when there is none to make."""
        row = self._matching_row(LOOK)
        return self._apply_row(row, LOOK) if row is not None else None

    def would_answer(self, event: MindIOEvent) -> bool:
        """Return whether this event of the controller would be answered with a call at once."""
        row = self._matching_row(event)
        commands = row.effect(copy.deepcopy(self.memory), event) if row is not None else ()
        return any(isinstance(one, HostCall) for one in commands)

    def lose_ranks(self, ranks: Mapping[int, int], now: float) -> list[Command]:
        """Take in dead or given-up registered ranks: stop the training, or add them to the lost ones."""
        self.miss_ranks(ranks)
        return self.feed_event(LOOK, now)

    def miss_ranks(self, ranks: Mapping[int, int]) -> None:
        """Remember these ranks as lost. The fault type of a process that died is never lowered."""
        into = self.memory.lost if self.state in GATHERS else self.memory.late
        for rank, kind in ranks.items():
            into[rank] = max(kind, into.get(rank, kind)) if into.get(rank) != PROCESS_FAULT else PROCESS_FAULT

    def pursue_decision(self, desired: Desired | None, now: float) -> list[Command]:
        """Follow a changed decision, or a changed readiness of its ranks."""
        self.memory.desired = desired
        return self.feed_event(LOOK, now)

    def suppose_decision(self, desired: Desired | None) -> None:
        """Set an earlier coordinator's decision, which the replay follows one call at a time."""
        self.memory.desired = desired

    def note_renewed_rank(self, rank: int) -> None:
        """Note that another process is the rank now; one that MindIO waits for is let in when it stands at its gate."""
        if self.state is State.EXPANDING and rank in self.memory.named:
            self.memory.renewed.add(rank)

    def unname_ranks(self, ranks: Iterable[int]) -> None:
        """Remove ranks that were named for a move and have lost nothing."""
        for rank in ranks:
            self.memory.named.pop(rank, None)

    def _matching_row(self, event: MindIOEvent) -> ConversationRow | None:
        for row in self._rows.get((self.state, event.kind), ()):
            if row.guard(self.memory, event):
                return row
        return None

    def _apply_row(self, row: ConversationRow, event: MindIOEvent) -> list[Command]:
        commands = row.effect(self.memory, event)
        calls = any(isinstance(command, HostCall) for command in commands)
        came_from, self.state = self.state, row.following or self.memory.came_from
        if calls:
            self.memory.came_from, self.memory.accepted = came_from, False
        return commands


LOOK = MindIOEvent(EventKind.LOOK)
QUIET = frozenset({EventKind.LOOK, EventKind.STEP, EventKind.FINISH, EventKind.GONE})
"""Events that most states ignore."""
