"""The rows of the conversation with MindIO's controller.

Read one block per state. `LOOK` rows decide on what is remembered (the wish, the lost ranks, the time); the others
react to the controller. The first row whose guard holds is taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain

from trainer_sidecar.coordinator.conversation import (
    Conversation,
    Guard,
    Kind,
    Row,
)
from trainer_sidecar.coordinator.conversation_effects import (
    admit,
    admit_second,
    cancel_switch,
    choose,
    close,
    close_given_up,
    close_nothing_left,
    close_overdue,
    close_pause_failed,
    close_stop_failed,
    close_unexpected,
    expand,
    found,
    found_and_stop,
    isolated,
    lose_controller,
    mark_accepted,
    name,
    nothing,
    offered,
    open_failure,
    pause,
    pause_failed,
    paused,
    prepare_switch,
    retry_refused,
    save_now,
    saved,
    serve,
    stay_small,
    stop,
    stopped,
    success,
    take_up,
    try_again,
)
from trainer_sidecar.coordinator.conversation_guards import (
    accepted,
    always,
    can_name,
    can_name_again,
    cannot_save,
    carries_out,
    given_up,
    growing,
    has_lost,
    of_the_growth,
    of_the_pause,
    of_the_pause_accepted,
    only_the_end,
    overdue,
    successor_lost,
    wants,
    wants_nobody_back,
    wants_offered,
    wants_others,
)
from trainer_sidecar.coordinator.conversation_states import CARRIES_OUT, OVER, TRAINING, State

S, K = State, Kind

CALLBACKS = (
    K.FAULT,
    K.STOP_OK,
    K.STOP_FAILED,
    K.OFFER,
    K.SUCCESS,
    K.ISOLATED,
    K.RETRY_REFUSED,
    K.OPEN_FAILURE,
    K.FAILURE,
)


def _calm(state: State, refused: State) -> Iterable[Row]:
    """At rest: a loss or a report of MindIO's own begins an incident. `refused`: where a refused call is made again."""
    return (
        Row(state, K.LOOK, has_lost, stop, S.STOPPING),
        Row(state, K.FAULT, always, found_and_stop, S.STOPPING),
        Row(state, K.REFUSED, always, try_again, refused),
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
    yield from _calm(S.SERVING, S.SERVING)
    yield Row(S.SERVING, K.LOOK, wants("dump"), save_now, S.SAVING)
    yield Row(S.SERVING, K.LOOK, wants("pause"), pause, S.PAUSING)
    yield Row(S.SERVING, K.LOOK, wants("migration"), prepare_switch, S.SWITCHING)
    yield Row(S.SERVING, K.FINISH, always, nothing, S.FINISHING)

    yield Row(S.STOPPING, K.FAULT, always, found, S.STOPPING)
    yield Row(S.STOPPING, K.STOP_OK, always, stopped, S.STOPPED)
    yield Row(S.STOPPING, K.STOP_FAILED, always, close_stop_failed, S.CLOSED)
    yield Row(S.STOPPING, K.REFUSED, always, try_again, None)
    yield Row(S.STOPPING, K.OPEN_FAILURE, of_the_pause_accepted, nothing, S.SERVING)
    yield Row(S.STOPPING, K.OPEN_FAILURE, of_the_pause, nothing, S.STOPPING)
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
    yield Row(S.CHOOSING, K.LOOK, only_the_end, close_nothing_left, S.CLOSED)
    yield Row(S.CHOOSING, K.LOOK, wants_offered("recover"), choose, S.RECOVERING)
    yield Row(S.CHOOSING, K.LOOK, wants_offered("retry"), choose, S.RETRYING)
    yield Row(S.CHOOSING, K.LOOK, wants_offered("dump"), choose, S.SAVING)
    yield Row(S.CHOOSING, K.LOOK, wants_offered("downgrade"), choose, S.SHRINKING)
    yield Row(S.CHOOSING, K.LOOK, wants_offered("migration"), choose, S.MIGRATING)
    yield Row(S.CHOOSING, K.LOOK, given_up, close_given_up, S.CLOSED)
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
    yield Row(S.CONFIRMING, K.FAULT, always, close_unexpected, S.CLOSED)  # it comes as 406 before the success
    yield from _closing(S.CONFIRMING)

    yield Row(S.FAILED_OPEN, K.LOOK, overdue, close_overdue, S.CLOSED)
    yield Row(S.FAILED_OPEN, K.LOOK, cannot_save, close_nothing_left, S.CLOSED)
    yield Row(S.FAILED_OPEN, K.LOOK, wants_offered("dump"), choose, S.SAVING)
    yield from _closing(S.FAILED_OPEN)

    yield Row(S.SAVING, K.SUCCESS, of_the_growth, save_now, S.SAVING)  # the word may have been dropped with it
    yield Row(S.SAVING, K.SUCCESS, always, saved, S.CLOSED)
    yield Row(S.SAVING, K.FAULT, always, found, S.SAVING)
    yield Row(S.SAVING, K.REFUSED, always, try_again, None)
    yield from _closing(S.SAVING)


def _sizes() -> Iterable[Row]:
    """Fewer data-parallel ranks, and all of them again."""
    yield Row(S.SHRINKING, K.ISOLATED, always, isolated, S.SHRINKING)
    yield Row(S.SHRINKING, K.FAULT, always, close_unexpected, S.CLOSED)  # as in CONFIRMING
    yield Row(S.SHRINKING, K.SUCCESS, always, success, S.SHRUNK)
    yield Row(S.SHRINKING, K.REFUSED, always, try_again, None)
    yield from _closing(S.SHRINKING)

    yield from _calm(S.SHRUNK, S.SHRUNK)
    yield Row(S.SHRUNK, K.LOOK, wants("upgrade"), expand, S.EXPANDING)
    yield Row(S.SHRUNK, K.LOOK, wants("dump"), save_now, S.SAVING)
    yield Row(S.SHRUNK, K.FINISH, always, nothing, S.FINISHING)
    yield Row(S.SHRUNK, K.SUCCESS, growing, success, S.SERVING)  # it was given up too late
    yield Row(S.SHRUNK, K.OPEN_FAILURE, growing, open_failure, S.FAILED_OPEN)

    yield Row(S.EXPANDING, K.LOOK, wants("dump"), save_now, S.SAVING)
    yield Row(S.EXPANDING, K.LOOK, wants_nobody_back, stay_small, S.SHRUNK)
    yield Row(S.EXPANDING, K.LOOK, wants_others, expand, S.EXPANDING)
    yield Row(S.EXPANDING, K.SUCCESS, always, success, S.SERVING)
    yield Row(S.EXPANDING, K.REFUSED, always, try_again, None)
    yield Row(S.EXPANDING, K.FAULT, always, found_and_stop, S.STOPPING)
    yield from _closing(S.EXPANDING)


def _planned() -> Iterable[Row]:
    """Pause, continue, hot switch."""
    yield Row(S.PAUSING, K.STOP_OK, always, paused, S.PAUSED)
    yield Row(S.PAUSING, K.STOP_FAILED, always, close_pause_failed, S.CLOSED)
    yield Row(S.PAUSING, K.OPEN_FAILURE, always, pause_failed, S.SERVING)
    yield Row(S.PAUSING, K.REFUSED, always, try_again, None)

    yield Row(S.PAUSED, K.LOOK, has_lost, stop, S.STOPPING)
    yield Row(S.PAUSED, K.LOOK, wants("continue"), choose, S.CONTINUING)
    yield Row(S.PAUSED, K.OPEN_FAILURE, always, pause_failed, S.SERVING)
    yield Row(S.PAUSED, K.FAULT, always, found_and_stop, S.STOPPING)
    yield Row(S.PAUSED, K.REFUSED, always, try_again, S.PAUSED)

    yield Row(S.CONTINUING, K.SUCCESS, always, success, S.SERVING)
    yield Row(S.CONTINUING, K.OPEN_FAILURE, accepted, pause_failed, S.SERVING)  # else it lies there as a wake-up
    yield Row(S.CONTINUING, K.REFUSED, always, try_again, None)

    yield from _calm(S.SWITCHING, S.SERVING)
    yield Row(S.SWITCHING, K.LOOK, wants("continue"), cancel_switch, S.SERVING)
    yield Row(S.SWITCHING, K.ACCEPTED, always, admit_second, S.SWITCHING)
    yield Row(S.SWITCHING, K.OFFER, always, offered, S.CHOOSING)


def _everywhere() -> Iterable[Row]:
    for state in TRAINING:
        for kind in CALLBACKS:
            yield Row(state, kind, always, close_unexpected, S.CLOSED)
    for state in S:
        yield Row(state, K.ACCEPTED, always, mark_accepted, state)
        yield Row(state, K.SERVES, always, serve, S.SERVING)
        yield Row(state, K.GONE, always, lose_controller, state if state in OVER else S.LOST)
        yield Row(state, K.ENDED, always, nothing, S.CLOSED)
    for strategy, state in CARRIES_OUT.items():
        yield Row(S.SERVING, K.TAKEN_UP, carries_out(strategy), take_up, state)


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
