"""The conversation with MindIO's controller: one table of (state, event, guard, effect, next).

MindIO forgives nothing here: a call that its phase does not ask for stays behind as a wake-up and ends the controller
at the next fault, a second `stop_train` or a second naming silences it for good, and an answer that comes too late
meets a controller that has left. So every phase is a state, every call is in exactly one place, and what the table
does not list is never answered (docs/protocols/sidecar.md, "The conversation with MindIO").

Pure: time comes in with the event, calls go out as values.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.conversation_states import BLIND, GATHERS, State

MEMORY_FAULT, PROCESS_FAULT, COMMUNICATION_FAULT = 0, 1, 2
"""MindIO's kinds of faults (docs/protocols/mindio.md)."""
SAVE_LEFT, FAILED_FOR_GOOD = 406, 499
"""MindIO's words for a recovery that has failed: what is left is a checkpoint, or only a start anew."""
RETRY_DELAY_SECONDS = 0.1
MAX_QUICK_RETRIES = 50
SLOW_RETRY_SECONDS = 2.0


class EventKind(StrEnum):
    """What can happen in the conversation."""

    SERVES = "serves"
    TAKEN_UP = "taken up"  # a controller serves, and carries out `strategy`
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
    """One thing that happened. `ranks`: rank -> fault type; `codes`: rank -> MindIO's error code."""

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
    """What is desired of MindIO now, made of the operator's order and of what stands at the gates.

    `strategy` is MindIO's word, "" when nothing may be chosen yet. `names`: what on_global_rank is to name.
    `ready`: every rank of `names` that has to come back stands at its gate. `again`: it was said before, so whatever
    had to be known for it was known.
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
    """MindIO has named these ranks: their successors may pass the gate."""

    ranks: frozenset[int]


@dataclass(frozen=True)
class TellMilestone:
    """A milestone of the incident."""

    kind: pb.MilestoneKind
    event: MindIOEvent = MindIOEvent(EventKind.LOOK)


@dataclass(frozen=True)
class Found:
    """MindIO found these ranks faulty by itself."""

    ranks: Mapping[int, int]
    codes: Mapping[int, str]
    text: str = "found by MindIO"


@dataclass(frozen=True)
class EndRanks:
    """Nobody else will end these ranks; None means every rank."""

    ranks: frozenset[int] | None


@dataclass(frozen=True)
class Left:
    """The controller has left, or nobody knows what it waits for; no order led to it, so nobody expects it."""

    text: str


@dataclass(frozen=True)
class Unexpected:
    """No row answers this event in this state. `number`: how many there have been."""

    event: MindIOEvent
    state: State
    number: int


Command = HostCall | Admit | TellMilestone | Found | EndRanks | Left | Unexpected


@dataclass
class ConversationMemory:
    """What the conversation has to remember between two events."""

    answer_seconds: float
    desired: Desired | None = None
    lost: dict[int, int] = field(default_factory=dict)  # before the naming: will be named
    late: dict[int, int] = field(default_factory=dict)  # after the naming: cannot be named any more
    named: dict[int, int] = field(default_factory=dict)
    renewed: set[int] = field(default_factory=set)  # of the named ones: another process comes, and is to be let in
    offered: tuple[str, ...] = ()
    strategy: str = ""
    came_from: State = State.SERVING
    accepted: bool = False  # the last call
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
    """One line of the table; `following` None means the state the last call was made from."""

    state: State
    event: EventKind
    guard: Guard
    effect: Effect
    following: State | None


class Conversation:
    """Walks the table. Feed it events in the order in which they happened."""

    def __init__(self, rows: Mapping[tuple[State, EventKind], list[ConversationRow]], answer_seconds: float) -> None:
        self._rows = rows
        self.state = State.OFFLINE
        self.memory = ConversationMemory(answer_seconds)

    @property
    def is_blind(self) -> bool:
        """Whether the next fault goes by the controller, and not because everything was saved and is ended."""
        return self.state in BLIND and not (self.state is State.CLOSED and self.memory.saved)

    def feed(self, event: MindIOEvent, now: float) -> list[Command]:
        """Take one event in, and decide on what is known then; what is to be done, in order."""
        commands = self.hear(event, now)
        while event.kind is not EventKind.ACCEPTED and (decided := self.look()) is not None:
            commands += decided
        return commands

    def hear(self, event: MindIOEvent, now: float) -> list[Command]:
        """Take one event in and decide on nothing; what is to be done, in order."""
        memory = self.memory
        memory.now = now
        memory.accepted = memory.accepted or event.kind is EventKind.ACCEPTED
        row = self._match(event)
        if row is not None:
            return self._take(row, event)
        if event.kind in QUIET:
            return []
        memory.unexpected += 1
        return [Unexpected(event, self.state, memory.unexpected)]

    def look(self) -> list[Command] | None:
        """Decide one thing on what is known; None when nothing is to be decided."""
        row = self._match(LOOK)
        return self._take(row, LOOK) if row is not None else None

    def answers(self, event: MindIOEvent) -> bool:
        """Whether the controller would be called at once if it said this."""
        row = self._match(event)
        commands = row.effect(copy.deepcopy(self.memory), event) if row is not None else ()
        return any(isinstance(one, HostCall) for one in commands)

    def lose(self, ranks: Mapping[int, int], now: float) -> list[Command]:
        """Registered ranks are known to be dead or are given up: stop, or gather."""
        self.miss(ranks)
        return self.feed(LOOK, now)

    def miss(self, ranks: Mapping[int, int]) -> None:
        """Remember that these ranks are lost. A process that has died is never less than that."""
        into = self.memory.lost if self.state in GATHERS else self.memory.late
        for rank, kind in ranks.items():
            into[rank] = max(kind, into.get(rank, kind)) if into.get(rank) != PROCESS_FAULT else PROCESS_FAULT

    def pursue(self, desired: Desired | None, now: float) -> list[Command]:
        """The decision, or the readiness of the ranks it waits for, has changed."""
        self.memory.desired = desired
        return self.feed(LOOK, now)

    def suppose(self, desired: Desired | None) -> None:
        """A decision that was made before and is followed now, one call at a time."""
        self.memory.desired = desired

    def wait_for(self, ranks: Iterable[int]) -> None:
        """Another process comes for these of the named ranks, and is to be let in."""
        self.memory.renewed.update(ranks)

    def unname(self, ranks: Iterable[int]) -> None:
        """These were named for a move, and have lost nothing."""
        for rank in ranks:
            self.memory.named.pop(rank, None)

    def _match(self, event: MindIOEvent) -> ConversationRow | None:
        for row in self._rows.get((self.state, event.kind), ()):
            if row.guard(self.memory, event):
                return row
        return None

    def _take(self, row: ConversationRow, event: MindIOEvent) -> list[Command]:
        commands = row.effect(self.memory, event)
        calls = any(isinstance(command, HostCall) for command in commands)
        came_from, self.state = self.state, row.following or self.memory.came_from
        if calls:
            self.memory.came_from, self.memory.accepted = came_from, False
        return commands


LOOK = MindIOEvent(EventKind.LOOK)
QUIET = frozenset({EventKind.LOOK, EventKind.STEP, EventKind.FINISH, EventKind.GONE})
"""Events that most states have nothing to do with."""
