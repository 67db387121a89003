"""Where a conversation stands, read from the controller host's log.

The log holds every call and callback since MindIO last was at rest. A coordinator that was restarted alone, beside a
living controller, goes on from there; what it would be wrong about, it would answer wrongly, and that is fatal. So each
entry is read here as the conversation's table answers it, and a fault report that nobody has answered is handed back,
to be answered by that table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer_sidecar.coordinator.clock import NANOSECONDS
from trainer_sidecar.coordinator.conversation import PROCESS_FAULT, Conversation, Event, Kind, Memory, State
from trainer_sidecar.coordinator.conversation_effects import NAMED_FOR_NOBODY

Entry = Mapping[str, Any]

CHOSEN = {
    "recover": State.RECOVERING,
    "retry": State.RETRYING,
    "dump": State.SAVING,
    "downgrade": State.SHRINKING,
    "upgrade": State.EXPANDING,
    "migration": State.MIGRATING,
    "continue": State.CONTINUING,
}
CALLED = {
    "stop_train": State.STOPPING,
    "pause": State.PAUSING,
    "on_global_rank": State.NAMING,
    "dump": State.SAVING,
}
REPAIRED = frozenset({State.RECOVERING, State.RETRYING, State.MIGRATING})
ASKED_IN = frozenset(
    {
        State.SERVING,
        State.SHRUNK,
        State.SWITCHING,
        State.PAUSED,
        State.CONFIRMING,
        State.SHRINKING,
        State.EXPANDING,
    }
)
"""States in which a fault report is a question: stop_train is its answer."""

UNASKED_IN = frozenset({State.SERVING, State.SHRUNK, State.SWITCHING, State.PAUSING, State.PAUSED, State.CONTINUING})
WAITING = frozenset({State.STOPPED, State.CHOOSING, State.RETRY_REFUSED, State.FAILED_OPEN})
LEFT_TEXT = "MindIO's controller has left, or said what nobody asked it for; the next fault cannot be recovered"


@dataclass(frozen=True)
class Resumed:
    """What the log tells.

    The state, the number of the incident it is in (0: the log does not say), whether that was planned, the last result
    as a milestone's fields, the ranks dropped by a shrink, the ranks of which MindIO knows that second processes come,
    and a fault report that waits for its answer.
    """

    state: State
    incarnation: int
    result: dict[str, Any] | None
    dropped: frozenset[int] = frozenset()
    planned: bool = False
    expected: frozenset[int] = frozenset()
    asked: Event | None = None

    @property
    def moved(self) -> bool:
        """Whether the last thing that succeeded was a move."""
        return self.result is not None and (self.result["result_code"], self.result["strategy"]) == (0, "migration")


def resume(conversation: Conversation, log: Sequence[Entry], now: float) -> Resumed:
    """Bring the conversation where `log` ends; fills its memory on the way."""
    reading = _Reading(conversation.memory)
    for entry in _taken(log):
        if "called" in entry:
            reading.call(entry["called"], entry.get("arguments", {}))
        elif "answer" in entry:
            reading.accepted(entry.get("call", ""))
        elif "event" in entry:
            reading.event(entry["event"], entry["arguments"])
            if entry["event"] != "report_fault_ranks":  # what MindIO finds besides does not move its own wait
                reading.asked_at = entry["t"] / NANOSECONDS if "t" in entry else None
    memory = conversation.memory
    if reading.state in WAITING:
        since = reading.asked_at if reading.asked_at is not None else now - memory.answer_seconds / 2
        memory.due = since + memory.answer_seconds
    if reading.state is State.CLOSED and not memory.saved:
        memory.problem = LEFT_TEXT
    conversation.state = reading.state
    return reading.resumed()


def _taken(log: Sequence[Entry]) -> Iterator[Entry]:
    """The log without the calls that were refused. An answer without an `id` belongs to the last call of its name."""
    calls: list[int] = []
    refused: set[int] = set()
    for index, entry in enumerate(log):
        if "called" in entry:
            calls.append(index)
        elif entry.get("code", 0) != 0 and "answer" in entry:
            refused.update([call for call in reversed(calls) if _is_answer(entry, log[call])][:1])
            refused.add(index)
    return (entry for index, entry in enumerate(log) if index not in refused)


def _is_answer(answer: Entry, call: Entry) -> bool:
    if answer["answer"] is None:
        return bool(answer.get("call") == call["called"])
    return bool(answer["answer"] == call.get("id"))


class _Reading:
    """The log so far."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.state = State.SERVING
        self.asked_at: float | None = None  # when MindIO spoke last, in seconds; None: the log does not say
        self._incarnation = 0
        self._planned = False
        self._result: dict[str, Any] | None = None
        self._dropped: frozenset[int] = frozenset()
        self._expected: frozenset[int] = frozenset()
        self._asked: Event | None = None

    def resumed(self) -> Resumed:
        """Everything but what is in the memory."""
        return Resumed(
            self.state, self._incarnation, self._result, self._dropped, self._planned, self._expected, self._asked
        )

    def call(self, name: str, arguments: Mapping[str, Any]) -> None:
        """A call that was not refused, or not yet."""
        memory = self._memory
        memory.came_from, memory.accepted = self.state, False
        self._incarnation = arguments.get("incarnation", self._incarnation)
        if name == "prepare_action":
            self._prepare(arguments)
        elif name == "change_strategy":
            self._choose(str(arguments["strategy"]))
        elif name in CALLED:
            self.state = CALLED[name]
        if name == "stop_train":
            memory.lost = dict(arguments["ranks"]) or (dict(NAMED_FOR_NOBODY) if self._asked else {})
            self._asked, self._planned = None, False
        elif name == "on_global_rank":
            memory.named = dict(arguments["ranks"])
        elif name in ("dump", "pause"):
            self._planned = True
            memory.strategy = "dump" if name == "dump" else ""

    def _prepare(self, arguments: Mapping[str, Any]) -> None:
        begins = arguments.get("action") == "hot switch"
        self.state = State.SWITCHING if begins else State.SERVING
        self._memory.named = dict(arguments.get("ranks", [])) if begins else {}
        self._planned, self._expected = begins, frozenset()

    def _choose(self, strategy: str) -> None:
        self._memory.strategy = strategy
        if strategy == "upgrade":
            self._planned, self._incarnation = True, 0
            self._memory.named = dict.fromkeys(self._dropped, PROCESS_FAULT)
            self._memory.offered = ("upgrade", "dump")
        self.state = CHOSEN.get(strategy, self.state)

    def accepted(self, name: str) -> None:
        """MindIO took the last call."""
        self._memory.accepted = True
        if name == "prepare_action" and self.state is State.SWITCHING:
            self._expected = frozenset(self._memory.named)

    def event(self, name: str, arguments: Sequence[Any]) -> None:
        """A callback."""
        if name == "report_fault_ranks":
            self._faults(arguments)
        elif name == "report_stop_complete":
            self._stopped(arguments)
        elif name == "report_strategies":
            self._offered(arguments)
        elif name == "report_result":
            self._take_result(*arguments)

    def _faults(self, arguments: Sequence[Any]) -> None:
        if self.state in REPAIRED:
            self.state = State.CONFIRMING  # a repair that is not over is answered with 406 first
        if self.state in ASKED_IN:
            codes = dict(arguments[1]) if len(arguments) > 1 else {}
            self._asked = Event(Kind.FAULT, dict(arguments[0]), codes)
        elif self.state is State.STOPPING:
            self._memory.lost = {**dict(arguments[0]), **self._memory.lost}
        elif self.state in UNASKED_IN:
            self.state = State.CLOSED

    def _stopped(self, arguments: Sequence[Any]) -> None:
        if arguments[0] != 0:
            self.state = State.CLOSED
        elif self.state is State.PAUSING:
            self.state = State.PAUSED
        elif self.state is State.STOPPING:
            self._memory.lost = {**dict(arguments[2]), **self._memory.lost}
            self.state = State.STOPPED
        elif self.state in UNASKED_IN:
            self.state = State.CLOSED

    def _offered(self, arguments: Sequence[Any]) -> None:
        if self.state is State.SWITCHING:
            self._expected = frozenset(self._memory.named)
        elif self.state in UNASKED_IN:
            self.state = State.CLOSED
            return
        self._memory.offered = tuple(arguments[1])
        self.state = State.CHOOSING

    def _take_result(self, code: int, text: str, ranks: Sequence[Sequence[int]], strategy: str) -> None:
        self._result = {"result_code": code, "text": text, "strategy": strategy}
        if strategy == "downgrade":
            self._dropped = frozenset(rank for rank, _ in ranks)
        if code == 0:
            self._succeed(strategy)
        elif code == 201:
            self.state = State.SHRINKING
        elif code == 405:
            self._memory.lost.update({rank: PROCESS_FAULT for rank, _ in ranks})
            self._memory.named = {}
            self.state = State.RETRY_REFUSED
        elif code == 406:
            self.state = self._after_open_failure()
        else:
            self.state = State.CLOSED

    def _succeed(self, strategy: str) -> None:
        memory = self._memory
        memory.lost, memory.named, memory.offered, memory.strategy = {}, {}, (), ""
        memory.saved = strategy == "dump"
        self._incarnation, self._planned, self._expected, self._asked = 0, False, frozenset(), None
        self.state = {"dump": State.CLOSED, "downgrade": State.SHRUNK}.get(strategy, State.SERVING)

    def _after_open_failure(self) -> State:
        """The end of a pause, whoever spoke at that moment, or a failure after which a checkpoint can be saved."""
        if self.state in (State.PAUSING, State.PAUSED):
            return State.SERVING
        if self.state is State.CONTINUING:
            return State.SERVING if self._memory.accepted else State.CLOSED
        if self.state is State.STOPPING and self._memory.came_from is State.PAUSED:
            return State.SERVING if self._memory.accepted else State.STOPPING
        return State.CLOSED if self.state in UNASKED_IN else State.FAILED_OPEN
