"""The rows of the conversation with MindIO's controller.

Read one block per state. `LOOK` rows decide on what is remembered (the wish, the lost ranks, the time); the others
react to the controller. The first row whose guard holds is taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain

from trainer_sidecar.coordinator.conversation import (
    MAX_QUICK_RETRIES,
    PROCESS_FAULT,
    RETRY_DELAY_SECONDS,
    SLOW_RETRY_SECONDS,
    Admit,
    Call,
    Command,
    Conversation,
    Effect,
    EndRanks,
    Event,
    Found,
    Guard,
    Kind,
    Mark,
    Memory,
    Row,
    State,
)
from trainer_sidecar.protocol import sidecar_pb2 as pb

MARKED_CALLS = {
    "stop_train": pb.STOP_ACCEPTED,
    "pause": pb.STOP_ACCEPTED,
    "on_global_rank": pb.NAMED,
    "change_strategy": pb.STRATEGY_SENT,
    "dump": pb.STRATEGY_SENT,
}

# -- guards -----------------------------------------------------------------------------------------------------------


def always(_memory: Memory, _event: Event) -> bool:
    return True


def may_call(memory: Memory, _event: Event) -> bool:
    return memory.now >= memory.hold_until


def has_lost(memory: Memory, event: Event) -> bool:
    return bool(memory.lost) and may_call(memory, event)


def overdue(memory: Memory, _event: Event) -> bool:
    return memory.due is not None and memory.now >= memory.due


def can_name(memory: Memory, event: Event) -> bool:
    """Named once, so everything that is known dead must be in; a checkpoint needs nobody back."""
    wish = memory.wish
    if wish is None or not wish.strategy or not may_call(memory, event):
        return False
    if wish.strategy in ("dump", "exit"):
        return True
    return wish.ready and memory.lost.keys() <= wish.names.keys()


def can_name_again(memory: Memory, event: Event) -> bool:
    """After 405 the retry is no longer offered: only another decision may be named."""
    return can_name(memory, event) and memory.wish is not None and memory.wish.strategy != "retry"


def wants(*strategies: str) -> Guard:
    def guard(memory: Memory, event: Event) -> bool:
        wish = memory.wish
        return wish is not None and wish.ready and wish.strategy in strategies and may_call(memory, event)

    return guard


def wants_offered(*strategies: str) -> Guard:
    """A strategy outside the list is accepted by MindIO and then answered with 499 and the end."""
    wanted = wants(*strategies)

    def guard(memory: Memory, event: Event) -> bool:
        return wanted(memory, event) and memory.wish is not None and memory.wish.strategy in memory.offered

    return guard


def wants_end(memory: Memory, _event: Event) -> bool:
    return memory.wish is not None and memory.wish.strategy == "exit"


def successor_lost(*strategies: str) -> Guard:
    """A named rank died again: MindIO waits for it for ten minutes, and may be told something else meanwhile."""
    wanted = wants_offered(*strategies)

    def guard(memory: Memory, event: Event) -> bool:
        return wanted(memory, event) and bool(memory.late.keys() & memory.named.keys())

    return guard


# -- effects ----------------------------------------------------------------------------------------------------------


def nothing(_memory: Memory, _event: Event) -> list[Command]:
    return []


def serve(memory: Memory, _event: Event) -> list[Command]:
    """A new controller process knows nothing of what was."""
    memory.lost.clear()
    memory.late.clear()
    memory.named.clear()
    memory.offered, memory.strategy, memory.wish = (), "", None
    memory.due, memory.saved, memory.problem, memory.refusals, memory.hold_until = None, False, "", 0, 0.0
    return []


def stop(memory: Memory, _event: Event) -> list[Command]:
    return [Call("stop_train", {"ranks": _pairs(memory.lost)})]


def found(memory: Memory, event: Event) -> list[Command]:
    """What MindIO found and nobody had said before."""
    new = {rank: kind for rank, kind in event.ranks.items() if rank not in memory.lost}
    memory.lost.update(new)
    return [Found(new, event.codes)] if new else []


def found_and_stop(memory: Memory, event: Event) -> list[Command]:
    return [*found(memory, event), *stop(memory, event)]


def stopped(memory: Memory, event: Event) -> list[Command]:
    memory.refusals = 0
    _expect_answer(memory)
    return [*found(memory, event), Mark(pb.STOPPED, event)]


def paused(_memory: Memory, event: Event) -> list[Command]:
    return [Mark(pb.STOPPED, event)]


def name(memory: Memory, _event: Event) -> list[Command]:
    wish = memory.wish
    assert wish is not None
    memory.named = {**memory.lost, **wish.names}
    memory.due = None
    return [Call("on_global_rank", {"ranks": _pairs(memory.named), "time": min(max(wish.seconds, 1), 3600)})]


def admit(memory: Memory, _event: Event) -> list[Command]:
    return [Admit(frozenset(memory.named))]


def offered(memory: Memory, event: Event) -> list[Command]:
    memory.offered = event.strategies
    memory.refusals = 0
    _expect_answer(memory)
    return [*admit(memory, event), Mark(pb.STRATEGIES, event)]


def choose(memory: Memory, _event: Event) -> list[Command]:
    wish = memory.wish
    assert wish is not None
    memory.strategy, memory.due = wish.strategy, None
    return [Call("change_strategy", {"strategy": wish.strategy, "parameters": wish.parameters})]


def expand(memory: Memory, event: Event) -> list[Command]:
    """The dropped ranks are known to the controller already: they need no naming."""
    assert memory.wish is not None
    memory.named = dict(memory.wish.names)
    memory.offered = ("upgrade",)
    return [Admit(frozenset(memory.named)), *choose(memory, event)]


def save_now(memory: Memory, _event: Event) -> list[Command]:
    memory.strategy = "dump"
    return [Call("dump", {})]


def pause(memory: Memory, _event: Event) -> list[Command]:
    assert memory.wish is not None
    return [Call("pause", {"timeout": max(memory.wish.seconds, 1)})]


def prepare_switch(memory: Memory, _event: Event) -> list[Command]:
    assert memory.wish is not None
    return [Call("prepare_action", {"action": "hot switch", "ranks": [[r, 0] for r in sorted(memory.wish.names)]})]


def cancel_switch(_memory: Memory, _event: Event) -> list[Command]:
    return [Call("prepare_action", {"action": "stop switch", "ranks": []})]


def admit_second(memory: Memory, event: Event) -> list[Command]:
    """MindIO knows now that second processes come."""
    memory.named = dict(memory.wish.names) if memory.wish is not None else {}
    return [Admit(frozenset(memory.named)), *mark_accepted(memory, event)]


def mark_accepted(_memory: Memory, event: Event) -> list[Command]:
    kind = MARKED_CALLS.get(event.call)
    return [] if kind is None else [Mark(kind, event)]


def try_again(memory: Memory, event: Event) -> list[Command]:
    """A refused call changes nothing at the controller: a rank was not registered yet, most likely."""
    memory.refusals += 1
    quick = memory.refusals <= MAX_QUICK_RETRIES
    memory.hold_until = memory.now + (RETRY_DELAY_SECONDS if quick else SLOW_RETRY_SECONDS)
    memory.problem = f"MindIO refused {event.call}: {event.text or event.code} ({memory.refusals} times)"
    return []


def result(_memory: Memory, event: Event) -> list[Command]:
    return [Mark(pb.RESULT, event)]


def pause_failed(memory: Memory, event: Event) -> list[Command]:
    """The training goes on; asking again is a new decision. A fault that broke the pause is reported next."""
    memory.wish = None
    return result(memory, event)


def success(memory: Memory, event: Event) -> list[Command]:
    """At rest again. What died after the naming is the beginning of the next incident."""
    memory.lost = dict(memory.late)
    memory.late = {}
    memory.named, memory.offered, memory.strategy, memory.wish, memory.problem = {}, (), "", None, ""
    memory.due, memory.refusals, memory.hold_until = None, 0, 0.0
    return result(memory, event)


def saved(memory: Memory, event: Event) -> list[Command]:
    """The ranks would leave by themselves only after MindIO's long wait."""
    memory.saved = True
    return [Mark(pb.RESULT, event), EndRanks(None)]


def isolated(memory: Memory, event: Event) -> list[Command]:
    """Dropped ranks stay blocked for ever; nobody but us ends them."""
    return [Mark(pb.RESULT, event), EndRanks(frozenset(event.ranks.keys() - memory.named.keys()))]


def retry_refused(memory: Memory, event: Event) -> list[Command]:
    memory.lost.update(dict.fromkeys(event.ranks, PROCESS_FAULT) | memory.late)
    memory.late = {}
    memory.wish = None
    _expect_answer(memory)
    return result(memory, event)


def open_failure(memory: Memory, event: Event) -> list[Command]:
    _expect_answer(memory)
    return result(memory, event)


def close(memory: Memory, event: Event) -> list[Command]:
    memory.due = None
    return result(memory, event) if event.kind is not Kind.LOOK else []


def close_overdue(memory: Memory, _event: Event) -> list[Command]:
    memory.due = None
    memory.problem = "nobody decided before MindIO's wait was over; its controller has left"
    return []


def close_stop_failed(memory: Memory, event: Event) -> list[Command]:
    memory.problem = f"MindIO could not stop the training: {event.code} {event.text}"
    return [Mark(pb.STOPPED, event)]


def _expect_answer(memory: Memory) -> None:
    memory.due = memory.now + memory.answer_seconds


def _pairs(ranks: dict[int, int]) -> list[list[int]]:
    return [[rank, kind] for rank, kind in sorted(ranks.items())]


# -- the table --------------------------------------------------------------------------------------------------------

S, K = State, Kind


def _calm(state: State) -> Iterable[Row]:
    """At rest: a loss or a report of MindIO's own begins an incident."""
    return (
        Row(state, K.LOOK, has_lost, stop, S.STOPPING),
        Row(state, K.FAULT, always, found_and_stop, S.STOPPING),
        Row(state, K.REFUSED, always, try_again, state),
    )


def _closing(state: State) -> Iterable[Row]:
    return (
        Row(state, K.FAILURE, always, close, S.CLOSED),
        Row(state, K.OPEN_FAILURE, always, open_failure, S.FAILED_OPEN),
    )


def _gathering(state: State, may_name: Guard) -> Iterable[Row]:
    return (
        Row(state, K.LOOK, overdue, close_overdue, S.CLOSED),
        Row(state, K.LOOK, may_name, name, S.NAMING),
        *_closing(state),
    )


def _front() -> Iterable[Row]:
    """From the first loss to the strategies."""
    yield from _calm(S.SERVING)
    yield Row(S.SERVING, K.LOOK, wants("dump"), save_now, S.SAVING)
    yield Row(S.SERVING, K.LOOK, wants("pause"), pause, S.PAUSING)
    yield Row(S.SERVING, K.LOOK, wants("migration"), prepare_switch, S.SWITCHING)
    yield Row(S.SERVING, K.FINISH, always, nothing, S.FINISHING)

    yield Row(S.STOPPING, K.FAULT, always, found, S.STOPPING)
    yield Row(S.STOPPING, K.STOP_OK, always, stopped, S.STOPPED)
    yield Row(S.STOPPING, K.STOP_FAILED, always, close_stop_failed, S.CLOSED)
    yield Row(S.STOPPING, K.REFUSED, always, try_again, None)
    yield from _closing(S.STOPPING)

    yield from _gathering(S.STOPPED, can_name)
    yield from _gathering(S.RETRY_REFUSED, can_name_again)

    yield Row(S.NAMING, K.FAULT, always, admit, S.NAMING)
    yield Row(S.NAMING, K.OFFER, always, offered, S.CHOOSING)
    yield Row(S.NAMING, K.REFUSED, always, try_again, None)
    yield from _closing(S.NAMING)


def _repairs() -> Iterable[Row]:
    """What is chosen, and how it ends."""
    yield Row(S.CHOOSING, K.LOOK, overdue, close_overdue, S.CLOSED)
    yield Row(S.CHOOSING, K.LOOK, wants_offered("recover"), choose, S.RECOVERING)
    yield Row(S.CHOOSING, K.LOOK, wants_offered("retry"), choose, S.RETRYING)
    yield Row(S.CHOOSING, K.LOOK, wants_offered("dump"), choose, S.SAVING)
    yield Row(S.CHOOSING, K.LOOK, wants_offered("downgrade"), choose, S.SHRINKING)
    yield Row(S.CHOOSING, K.LOOK, wants_offered("migration"), choose, S.MIGRATING)
    yield Row(S.CHOOSING, K.LOOK, wants_end, close, S.CLOSED)
    yield from _closing(S.CHOOSING)

    for state in (S.RECOVERING, S.RETRYING, S.MIGRATING):
        yield Row(state, K.STEP, always, nothing, S.CONFIRMING)
        yield Row(state, K.SUCCESS, always, success, S.SERVING)
        yield Row(state, K.REFUSED, always, try_again, None)
        yield from _closing(state)
    yield Row(S.RECOVERING, K.LOOK, successor_lost("dump"), choose, S.SAVING)
    yield Row(S.RECOVERING, K.LOOK, successor_lost("downgrade"), choose, S.SHRINKING)
    yield Row(S.RETRYING, K.RETRY_REFUSED, always, retry_refused, S.RETRY_REFUSED)

    yield Row(S.CONFIRMING, K.SUCCESS, always, success, S.SERVING)
    yield Row(S.CONFIRMING, K.FAULT, always, found_and_stop, S.STOPPING)
    yield from _closing(S.CONFIRMING)

    yield Row(S.FAILED_OPEN, K.LOOK, overdue, close_overdue, S.CLOSED)
    yield Row(S.FAILED_OPEN, K.LOOK, wants_offered("dump"), choose, S.SAVING)
    yield Row(S.FAILED_OPEN, K.LOOK, wants_end, close, S.CLOSED)
    yield from _closing(S.FAILED_OPEN)

    yield Row(S.SAVING, K.SUCCESS, always, saved, S.CLOSED)
    yield Row(S.SAVING, K.FAULT, always, found, S.SAVING)
    yield Row(S.SAVING, K.REFUSED, always, try_again, None)
    yield from _closing(S.SAVING)


def _sizes() -> Iterable[Row]:
    """Fewer data-parallel ranks, and all of them again."""
    yield Row(S.SHRINKING, K.ISOLATED, always, isolated, S.SHRINKING)
    yield Row(S.SHRINKING, K.FAULT, always, found_and_stop, S.STOPPING)
    yield Row(S.SHRINKING, K.SUCCESS, always, success, S.SHRUNK)
    yield Row(S.SHRINKING, K.REFUSED, always, try_again, None)
    yield from _closing(S.SHRINKING)

    yield from _calm(S.SHRUNK)
    yield Row(S.SHRUNK, K.LOOK, wants("upgrade"), expand, S.EXPANDING)
    yield Row(S.SHRUNK, K.LOOK, wants("dump"), save_now, S.SAVING)
    yield Row(S.SHRUNK, K.FINISH, always, nothing, S.FINISHING)

    yield Row(S.EXPANDING, K.SUCCESS, always, success, S.SERVING)
    yield Row(S.EXPANDING, K.REFUSED, always, try_again, None)
    yield Row(S.EXPANDING, K.FAULT, always, found_and_stop, S.STOPPING)
    yield from _closing(S.EXPANDING)


def _planned() -> Iterable[Row]:
    """Pause, continue, hot switch."""
    yield Row(S.PAUSING, K.STOP_OK, always, paused, S.PAUSED)
    yield Row(S.PAUSING, K.STOP_FAILED, always, pause_failed, S.SERVING)
    yield Row(S.PAUSING, K.OPEN_FAILURE, always, pause_failed, S.SERVING)
    yield Row(S.PAUSING, K.REFUSED, always, try_again, None)

    yield Row(S.PAUSED, K.LOOK, has_lost, stop, S.STOPPING)
    yield Row(S.PAUSED, K.LOOK, wants("continue"), choose, S.CONTINUING)
    yield Row(S.PAUSED, K.OPEN_FAILURE, always, pause_failed, S.SERVING)
    yield Row(S.PAUSED, K.FAULT, always, found_and_stop, S.STOPPING)
    yield Row(S.PAUSED, K.REFUSED, always, try_again, S.PAUSED)

    yield Row(S.CONTINUING, K.SUCCESS, always, success, S.SERVING)
    yield Row(S.CONTINUING, K.OPEN_FAILURE, always, pause_failed, S.SERVING)
    yield Row(S.CONTINUING, K.REFUSED, always, try_again, None)

    yield from _calm(S.SWITCHING)
    yield Row(S.SWITCHING, K.LOOK, wants("continue"), cancel_switch, S.SERVING)
    yield Row(S.SWITCHING, K.ACCEPTED, always, admit_second, S.SWITCHING)
    yield Row(S.SWITCHING, K.OFFER, always, offered, S.CHOOSING)


def _everywhere() -> Iterable[Row]:
    for state in S:
        yield Row(state, K.ACCEPTED, always, mark_accepted, state)
        yield Row(state, K.SERVES, always, serve, S.SERVING)
        over = state in (S.CLOSED, S.FINISHING, S.OFFLINE)
        yield Row(state, K.GONE, always, nothing, state if over else S.LOST)


def build_table() -> dict[tuple[State, Kind], list[Row]]:
    """The rows by state and event, in the order in which they are tried."""
    table: dict[tuple[State, Kind], list[Row]] = defaultdict(list)
    for row in chain(_front(), _repairs(), _sizes(), _planned(), _everywhere()):
        table[row.state, row.event].append(row)
    return dict(table)


TABLE = build_table()


def new_conversation(answer_seconds: float) -> Conversation:
    """A conversation that has not begun. `answer_seconds`: MindIO's wait for an answer, less a margin."""
    return Conversation(TABLE, answer_seconds)


__all__ = ["TABLE", "Effect", "build_table", "new_conversation"]
