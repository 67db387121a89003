"""The conversation with MindIO's controller: one table of (state, event, guard, effect, next).

MindIO forgives nothing here: a call that its phase does not ask for stays behind as a wake-up and ends the controller
at the next fault, a second `stop_train` or a second naming silences it for good, and an answer that comes too late
meets a controller that has left. So every phase is a state, every call is in exactly one place, and what the table
does not list is never answered (docs/protocols/sidecar.md, "The conversation with MindIO").

Pure: time comes in with the event, calls go out as values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hajob.protocol import sidecar_pb2 as pb

PROCESS_FAULT = 1
RETRY_DELAY_SECONDS = 0.1
MAX_QUICK_RETRIES = 50
SLOW_RETRY_SECONDS = 2.0


class State(StrEnum):
    """Where the conversation stands. Reported to the operator under these names."""

    OFFLINE = "Offline"  # no controller serves
    SERVING = "Serving"  # MindIO is at rest, nothing is asked
    FINISHING = "Finishing"  # a rank has left in order: MindIO will not recover anything any more
    STOPPING = "Stopping"  # stop_train went out
    STOPPED = "Stopped"  # the step is locked, not stopped; everything that dies is gathered
    RETRY_REFUSED = "RetryRefused"  # 405: wants a naming once more, will not report the ranks again
    NAMING = "Naming"  # on_global_rank went out
    CHOOSING = "Choosing"  # strategies are offered
    RECOVERING = "Recovering"
    RETRYING = "Retrying"
    CONFIRMING = "Confirming"  # steps are finished again, MindIO's own success report is still to come
    FAILED_OPEN = "FailedOpen"  # 406: a checkpoint may be chosen
    SAVING = "Saving"
    SHRINKING = "Shrinking"
    SHRUNK = "Shrunk"  # trains with fewer data-parallel ranks
    EXPANDING = "Expanding"
    PAUSING = "Pausing"
    PAUSED = "Paused"
    CONTINUING = "Continuing"
    SWITCHING = "Switching"  # a hot switch is prepared
    MIGRATING = "Migrating"
    CLOSED = "Closed"  # the controller has left or is leaving; nobody may be told anything through it
    LOST = "Lost"  # the controller's process is gone


class Kind(StrEnum):
    """What can happen in the conversation."""

    SERVES = "serves"
    GONE = "gone"
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
class Event:
    """One thing that happened. `ranks`: rank -> fault type; `codes`: rank -> MindIO's error code."""

    kind: Kind
    ranks: Mapping[int, int] = field(default_factory=dict)
    codes: Mapping[int, str] = field(default_factory=dict)
    code: int = 0
    text: str = ""
    strategies: tuple[str, ...] = ()
    strategy: str = ""
    call: str = ""


@dataclass(frozen=True)
class Wish:
    """What is wanted of MindIO now, made of the operator's order and of what stands at the gates.

    `strategy` is MindIO's word, "" when nothing may be chosen yet. `names`: what on_global_rank is to name.
    `ready`: every rank of `names` that has to come back stands at its gate.
    """

    strategy: str
    names: Mapping[int, int] = field(default_factory=dict)
    ready: bool = True
    parameters: str = ""
    seconds: int = 1


@dataclass(frozen=True)
class Call:
    """Call a function of the controller host."""

    name: str
    arguments: Mapping[str, object]


@dataclass(frozen=True)
class Admit:
    """MindIO has named these ranks: their successors may pass the gate."""

    ranks: frozenset[int]


@dataclass(frozen=True)
class Mark:
    """A milestone of the incident."""

    kind: pb.MilestoneKind
    event: Event = Event(Kind.LOOK)


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

    event: Event
    state: State
    number: int


Command = Call | Admit | Mark | Found | EndRanks | Left | Unexpected


@dataclass
class Memory:
    """What the conversation has to remember between two events."""

    answer_seconds: float
    wish: Wish | None = None
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


Guard = Callable[[Memory, Event], bool]
Effect = Callable[[Memory, Event], list[Command]]


@dataclass(frozen=True)
class Row:
    """One line of the table; `following` None means the state the last call was made from."""

    state: State
    event: Kind
    guard: Guard
    effect: Effect
    following: State | None


class Conversation:
    """Walks the table. Feed it events in the order in which they happened."""

    def __init__(self, rows: Mapping[tuple[State, Kind], list[Row]], answer_seconds: float) -> None:
        self._rows = rows
        self.state = State.OFFLINE
        self.memory = Memory(answer_seconds)

    @property
    def is_blind(self) -> bool:
        """Whether the next fault goes by the controller, and not because everything was saved and is ended."""
        left = self.state is State.CLOSED and not self.memory.saved
        return left or self.state in (State.OFFLINE, State.LOST)

    def feed(self, event: Event, now: float) -> list[Command]:
        """Take one event in; what is to be done, in order."""
        self.memory.now = now
        self.memory.accepted = self.memory.accepted or event.kind is Kind.ACCEPTED
        commands = self._step(event)
        while event.kind is not Kind.ACCEPTED and (row := self._match(Event(Kind.LOOK))) is not None:
            commands += self._take(row, Event(Kind.LOOK))
        return commands

    def lose(self, ranks: Mapping[int, int], now: float) -> list[Command]:
        """Registered ranks are known to be dead or are given up: stop, or gather."""
        memory = self.memory
        into = memory.lost if self.state in GATHERS else memory.late
        for rank, kind in ranks.items():
            into[rank] = max(kind, into.get(rank, kind)) if into.get(rank) != PROCESS_FAULT else PROCESS_FAULT
        return self.feed(Event(Kind.LOOK), now)

    def want(self, wish: Wish | None, now: float) -> list[Command]:
        """The decision, or the readiness of the ranks it waits for, has changed."""
        self.memory.wish = wish
        return self.feed(Event(Kind.LOOK), now)

    def _step(self, event: Event) -> list[Command]:
        row = self._match(event)
        if row is not None:
            return self._take(row, event)
        if event.kind in QUIET:
            return []
        self.memory.unexpected += 1
        return [Unexpected(event, self.state, self.memory.unexpected)]

    def _match(self, event: Event) -> Row | None:
        rows = self._rows.get((self.state, event.kind), [])
        return next((row for row in rows if row.guard(self.memory, event)), None)

    def _take(self, row: Row, event: Event) -> list[Command]:
        commands = row.effect(self.memory, event)
        calls = any(isinstance(command, Call) for command in commands)
        came_from, self.state = self.state, row.following or self.memory.came_from
        if calls:
            self.memory.came_from, self.memory.accepted = came_from, False
        return commands


GATHERS = frozenset(
    {
        State.OFFLINE,
        State.SERVING,
        State.FINISHING,
        State.STOPPING,
        State.STOPPED,
        State.RETRY_REFUSED,
        State.SHRUNK,
        State.PAUSING,
        State.PAUSED,
        State.CONTINUING,
        State.SWITCHING,
        State.CLOSED,
        State.LOST,
    }
)
"""States in which a death can still be named, or needs no naming."""

QUIET = frozenset({Kind.LOOK, Kind.STEP, Kind.FINISH, Kind.GONE})
"""Events that most states have nothing to do with."""
