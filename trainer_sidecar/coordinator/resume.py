"""Where a conversation stands, read from the controller host's log.

The log holds every call and callback since MindIO last was at rest. A coordinator that was restarted alone, beside a
living controller, goes on from there; what it would be wrong about, it would answer wrongly, and that is fatal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer_sidecar.coordinator.conversation import Conversation, Memory, State

Entry = Mapping[str, Any]

CHOSEN = {
    "recover": State.RECOVERING,
    "retry": State.RETRYING,
    "dump": State.SAVING,
    "downgrade": State.SHRINKING,
    "upgrade": State.EXPANDING,
    "migration": State.MIGRATING,
    "continue": State.CONTINUING,
    "exit": State.CLOSED,
}
CALLED = {
    "stop_train": State.STOPPING,
    "pause": State.PAUSING,
    "on_global_rank": State.NAMING,
    "dump": State.SAVING,
    "prepare_action": State.SWITCHING,
}
RESULTS = {201: State.SHRINKING, 405: State.RETRY_REFUSED, 406: State.FAILED_OPEN}


@dataclass(frozen=True)
class Resumed:
    """What the log tells: the state, the number of the incident it is in, the last result as a milestone's fields."""

    state: State
    incarnation: int
    result: dict[str, Any] | None
    dropped: frozenset[int] = frozenset()


def resume(conversation: Conversation, log: Sequence[Entry], now: float) -> Resumed:
    """Bring the conversation where `log` ends; fills its memory on the way."""
    memory = conversation.memory
    refused = {entry["answer"] for entry in log if "answer" in entry and entry.get("code", 0) != 0}
    state, incarnation, result = State.SERVING, 0, None
    dropped: frozenset[int] = frozenset()
    for entry in log:
        if "called" in entry and entry.get("id") not in refused:
            arguments = entry.get("arguments", {})
            incarnation = arguments.get("incarnation", incarnation)
            state = _after_call(entry["called"], arguments, memory, state)
        elif "event" in entry:
            state = _after_event(entry["event"], entry["arguments"], memory, state)
            if entry["event"] == "report_result":
                code, text, _, strategy = entry["arguments"]
                result = {"result_code": code, "text": text, "strategy": strategy}
                if strategy == "downgrade":
                    dropped = frozenset(rank for rank, _ in entry["arguments"][2])
    if state in (State.STOPPED, State.CHOOSING, State.RETRY_REFUSED, State.FAILED_OPEN):
        memory.due = now + memory.answer_seconds / 2  # how long the controller has waited already is not known
    conversation.state = state
    return Resumed(state, incarnation, result, dropped)


def _after_call(name: str, arguments: Mapping[str, Any], memory: Memory, state: State) -> State:
    if name == "stop_train":
        memory.lost = dict(arguments["ranks"])
    elif name == "on_global_rank":
        memory.named = dict(arguments["ranks"])
    elif name == "change_strategy":
        memory.strategy = str(arguments["strategy"])
        return CHOSEN.get(memory.strategy, state)
    elif name == "dump":
        memory.strategy = "dump"
    return CALLED.get(name, state)


def _after_event(name: str, arguments: Sequence[Any], memory: Memory, state: State) -> State:
    if name == "report_fault_ranks":
        if state is not State.NAMING:
            memory.lost.update(arguments[0])
        return state
    if name == "report_stop_complete":
        if arguments[0] != 0:
            return State.CLOSED
        memory.lost.update(arguments[2])
        return State.PAUSED if state is State.PAUSING else State.STOPPED
    if name == "report_strategies":
        memory.offered = tuple(arguments[1])
        return State.CHOOSING
    code, strategy = arguments[0], arguments[3]
    if code != 0:
        return RESULTS.get(code, State.CLOSED)
    return {"dump": State.CLOSED, "downgrade": State.SHRUNK}.get(strategy, State.SERVING)
