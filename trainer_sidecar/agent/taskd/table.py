"""What a TaskD manager takes at which moment: one table of (hold, call, guard, signals before it, next hold).

A manager has one slot for signals, and plugins that keep the stream to themselves; what comes at the wrong moment is
dropped without a word (docs/protocols/mindcluster.md, "TaskD", "Traps"). So each row says what has to be sent before a
call, and what holds the stream after it. A call that no row lists is not sent.

Pure: time comes in, signals go out as values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from trainer_sidecar.agent.taskd.signals import (
    NOBODY_EXITS,
    RELEASE,
    STRATEGY,
    SWITCH,
    TURN_OVER,
    Call,
    Signal,
    signal_of_call,
)

APART_SECONDS = 0.12
"""Between two signals: the slot is read every 0.1 s, and a second signal within it makes the first one unseen."""
EXIT_STRATEGY = "exit"
SHRINKS, GROWS = "downgrade", "upgrade"


class Hold(StrEnum):
    """What keeps the manager's stream of signals."""

    FREE = "free"
    STOPPED = "stopped"  # a stopTrain: nothing but globalFault and changeStrategy is heard
    RESIZED = "resized"  # a downgrade: an upgrade is taken for its repetition until another signal came between


@dataclass
class StreamMemory:
    """State kept between two signals."""

    hold: Hold = Hold.FREE
    switched: str = ""  # the action of the last hot switch that no other one has followed


Guard = Callable[[StreamMemory, Call], bool]


def always_applies(_memory: StreamMemory, _call: Call) -> bool:
    """Return True: the row always applies."""
    return True


def repeats_switch(memory: StreamMemory, call: Call) -> bool:
    """Return whether the call has the action of the last hot switch, whatever its ranks."""
    return memory.switched == call.arguments.get("action")


def chooses_one_of(*strategies: str) -> Guard:
    """Return a guard: whether the call chooses one of these strategies."""
    return lambda _memory, call: call.strategy in strategies


@dataclass(frozen=True)
class SignalRow:
    """One row. `sent` False: Hajob does by itself what the call would, because TaskD's way of it does harm."""

    hold: Hold
    call: str
    guard: Guard = always_applies
    before: tuple[Signal, ...] = ()
    following: Hold = Hold.FREE
    sent: bool = True


def _rows_of_all_calls() -> Iterator[SignalRow]:
    yield SignalRow(Hold.FREE, "stop_train", following=Hold.STOPPED)
    yield SignalRow(Hold.RESIZED, "stop_train", following=Hold.STOPPED)
    # A second stopTrain, with whatever uuid, is swallowed while the first one holds the stream.
    yield SignalRow(Hold.STOPPED, "stop_train", before=(RELEASE,), following=Hold.STOPPED)
    yield SignalRow(Hold.FREE, "pause", following=Hold.STOPPED)
    yield SignalRow(Hold.RESIZED, "pause", following=Hold.STOPPED)
    yield SignalRow(Hold.STOPPED, "pause", before=(RELEASE,), following=Hold.STOPPED)
    for hold in Hold:
        yield SignalRow(hold, "on_global_rank")
        # An exit keeps the stream until every agent that exits has registered again; Hajob ends the pods itself.
        yield SignalRow(hold, "change_strategy", chooses_one_of(EXIT_STRATEGY), following=hold, sent=False)
        # killMaster is swallowed behind a stopTrain, else repeated every tick, and ends agent 0 alone; the pods are
        # deleted in its place.
        yield SignalRow(hold, "end", following=hold, sent=False)
    yield SignalRow(
        Hold.RESIZED,
        "change_strategy",
        chooses_one_of(SHRINKS, GROWS),
        before=(NOBODY_EXITS,),
        following=Hold.RESIZED,
    )
    for hold in Hold:
        yield SignalRow(hold, "change_strategy", chooses_one_of(SHRINKS, GROWS), following=Hold.RESIZED)
        yield SignalRow(hold, "change_strategy")
    yield SignalRow(Hold.FREE, "dump")
    yield SignalRow(Hold.RESIZED, "dump")
    yield SignalRow(Hold.STOPPED, "dump", before=(RELEASE,))
    yield SignalRow(Hold.STOPPED, "prepare_action", repeats_switch, before=(RELEASE, TURN_OVER))
    yield SignalRow(Hold.STOPPED, "prepare_action", before=(RELEASE,))
    for hold in (Hold.FREE, Hold.RESIZED):
        # The second of two switches with the same action is dropped, be it for other ranks.
        yield SignalRow(hold, "prepare_action", repeats_switch, before=(TURN_OVER,))
        yield SignalRow(hold, "prepare_action")
    # MindIO has told which ranks leave. TaskD has to hear of it, even where Hajob lets their pods go by itself.
    yield SignalRow(Hold.RESIZED, "isolated", before=(NOBODY_EXITS,), sent=False)
    for hold in (Hold.FREE, Hold.STOPPED):  # of a downgrade that something else has followed already
        yield SignalRow(hold, "isolated", following=hold, sent=False)


ROWS = tuple(_rows_of_all_calls())


def row_of_call(memory: StreamMemory, call: Call) -> SignalRow | None:
    """Return the first row whose guard holds; None: no signal stands for the call now."""
    rows = (row for row in ROWS if (row.hold, row.call) == (memory.hold, call.name))
    return next((row for row in rows if row.guard(memory, call)), None)


@dataclass
class SignalStream:
    """The signals that are to be sent, in their order, and what the manager's stream is kept by after them."""

    ranks_per_node: int
    memory: StreamMemory = field(default_factory=StreamMemory)
    _waiting: deque[Signal] = field(default_factory=deque)
    _sent_at: float = float("-inf")

    def queue_signals_of_call(self, call: Call) -> None:
        """Queue the signals of a call.

        Raises:
            ValueError: no row lists it.
        """
        row = row_of_call(self.memory, call)
        if row is None:
            raise ValueError(f"TaskD takes no {call.name} while its stream is {self.memory.hold}")
        own = (signal_of_call(call, self.ranks_per_node),) if row.sent else ()
        for signal in (*row.before, *own):
            self._waiting.append(signal)
            self._note_signal(signal)
        self.memory.hold = row.following

    def _note_signal(self, signal: Signal) -> None:
        if signal.kind == SWITCH:
            self.memory.switched = signal.actions[0]
        elif signal.kind == STRATEGY and signal.strategy == "migration":
            self.memory.switched = ""

    def take_due_signal(self, now: float) -> Signal | None:
        """Return the next signal; None: there is none, or the one before it may not have been read yet."""
        if not self._waiting or now < self._sent_at + APART_SECONDS:
            return None
        self._sent_at = now
        return self._waiting.popleft()

    @property
    def backlog_seconds(self) -> float:
        """How long the signals that wait take at least."""
        return APART_SECONDS * len(self._waiting)

    def wait_seconds(self, now: float) -> float | None:
        """Return how long until the next signal is due; None: there is none."""
        return max(0.0, self._sent_at + APART_SECONDS - now) if self._waiting else None
