"""The rows of the conversation with MindIO's controller, one block per state.

`LOOK` rows decide on the memory (the desired strategy, the lost ranks, the time); all others react to the controller.
The first row whose guard holds is taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain

from trainer_sidecar.coordinator.conversation import effects as do
from trainer_sidecar.coordinator.conversation import guards as when
from trainer_sidecar.coordinator.conversation.conversation import Conversation, ConversationRow, EventKind, Guard
from trainer_sidecar.coordinator.conversation.states import CARRIES_OUT, OVER, TRAINING, State

S, K = State, EventKind

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


def _calm(state: State, refused: State) -> Iterable[ConversationRow]:
    """Return the rows of a state at rest: losses and faults open an incident. `refused`: state that repeats a call."""
    return (
        ConversationRow(state, K.LOOK, when.has_lost, do.stop, S.STOPPING),
        ConversationRow(state, K.FAULT, when.always, do.found_and_stop, S.STOPPING),
        ConversationRow(state, K.REFUSED, when.always, do.try_again, refused),
    )


def _closing(state: State) -> Iterable[ConversationRow]:
    return (
        ConversationRow(state, K.FAILURE, when.always, do.close, S.CLOSED),
        ConversationRow(state, K.OPEN_FAILURE, when.always, do.open_failure, S.FAILED_OPEN),
    )


def _gathering(state: State, may_name: Guard) -> Iterable[ConversationRow]:
    return (
        ConversationRow(state, K.LOOK, when.overdue, do.close_overdue, S.CLOSED),
        ConversationRow(state, K.LOOK, may_name, do.name, S.NAMING),
        *_closing(state),
    )


def _front() -> Iterable[ConversationRow]:
    """Yield the rows from the first loss to the offered strategies."""
    yield from _calm(S.SERVING, S.SERVING)
    yield ConversationRow(S.SERVING, K.LOOK, when.desires("dump"), do.save_now, S.SAVING)
    yield ConversationRow(S.SERVING, K.LOOK, when.desires("pause"), do.pause, S.PAUSING)
    yield ConversationRow(S.SERVING, K.LOOK, when.desires("migration"), do.prepare_switch, S.SWITCHING)
    yield ConversationRow(S.SERVING, K.FINISH, when.always, do.nothing, S.FINISHING)

    yield ConversationRow(S.STOPPING, K.FAULT, when.always, do.found, S.STOPPING)
    yield ConversationRow(S.STOPPING, K.STOP_OK, when.always, do.stopped, S.STOPPED)
    yield ConversationRow(S.STOPPING, K.STOP_FAILED, when.always, do.close_stop_failed, S.CLOSED)
    yield ConversationRow(S.STOPPING, K.REFUSED, when.always, do.try_again, None)
    yield ConversationRow(
        S.STOPPING, K.SUCCESS, when.of_the_growth, do.stop_to_save, S.STOPPING
    )  # MindIO may have dropped the call with the pause
    yield ConversationRow(S.STOPPING, K.OPEN_FAILURE, when.of_the_pause_accepted, do.nothing, S.SERVING)
    yield ConversationRow(S.STOPPING, K.OPEN_FAILURE, when.of_the_pause, do.nothing, S.STOPPING)
    yield from _closing(S.STOPPING)

    yield from _gathering(S.STOPPED, when.can_name)
    yield from _gathering(S.RETRY_REFUSED, when.can_name_again)

    yield ConversationRow(S.NAMING, K.FAULT, when.always, do.admit, S.NAMING)
    yield ConversationRow(S.NAMING, K.OFFER, when.always, do.offered, S.CHOOSING)
    yield ConversationRow(S.NAMING, K.REFUSED, when.always, do.try_again, None)
    yield from _closing(S.NAMING)


def _repairs() -> Iterable[ConversationRow]:
    """Yield the rows of the chosen strategy and its result."""
    yield ConversationRow(S.CHOOSING, K.LOOK, when.overdue, do.close_overdue, S.CLOSED)
    yield ConversationRow(S.CHOOSING, K.LOOK, when.only_the_end, do.close_nothing_left, S.CLOSED)
    yield ConversationRow(S.CHOOSING, K.LOOK, when.desires_offered("recover"), do.choose, S.RECOVERING)
    yield ConversationRow(S.CHOOSING, K.LOOK, when.desires_offered("retry"), do.choose, S.RETRYING)
    yield ConversationRow(S.CHOOSING, K.LOOK, when.desires_offered("dump"), do.choose, S.SAVING)
    yield ConversationRow(S.CHOOSING, K.LOOK, when.desires_offered("downgrade"), do.choose, S.SHRINKING)
    yield ConversationRow(S.CHOOSING, K.LOOK, when.desires_offered("migration"), do.choose, S.MIGRATING)
    yield ConversationRow(S.CHOOSING, K.LOOK, when.given_up, do.close_given_up, S.CLOSED)
    yield from _closing(S.CHOOSING)

    for state in (S.RECOVERING, S.RETRYING, S.MIGRATING):
        yield ConversationRow(state, K.STEP, when.always, do.nothing, S.CONFIRMING)
        yield ConversationRow(state, K.SUCCESS, when.always, do.success, S.SERVING)
        yield ConversationRow(state, K.REFUSED, when.always, do.try_again, None)
        yield from _closing(state)
    yield ConversationRow(S.RECOVERING, K.LOOK, when.successor_lost("dump"), do.choose, S.SAVING)
    yield ConversationRow(S.RECOVERING, K.LOOK, when.successor_lost("downgrade"), do.choose, S.SHRINKING)
    yield ConversationRow(S.RETRYING, K.RETRY_REFUSED, when.always, do.retry_refused, S.RETRY_REFUSED)

    yield ConversationRow(S.CONFIRMING, K.SUCCESS, when.always, do.success, S.SERVING)
    yield ConversationRow(
        S.CONFIRMING, K.FAULT, when.always, do.close_unexpected, S.CLOSED
    )  # before the success it comes as 406
    yield from _closing(S.CONFIRMING)

    yield ConversationRow(S.FAILED_OPEN, K.LOOK, when.overdue, do.close_overdue, S.CLOSED)
    yield ConversationRow(S.FAILED_OPEN, K.LOOK, when.cannot_save, do.close_nothing_left, S.CLOSED)
    yield ConversationRow(S.FAILED_OPEN, K.LOOK, when.desires_offered("dump"), do.choose, S.SAVING)
    yield from _closing(S.FAILED_OPEN)

    yield ConversationRow(
        S.SAVING, K.SUCCESS, when.of_the_growth, do.save_now, S.SAVING
    )  # nothing was saved: MindIO drops the call while the growth's handlers run
    yield ConversationRow(S.SAVING, K.SUCCESS, when.always, do.saved, S.CLOSED)
    yield ConversationRow(S.SAVING, K.FAULT, when.always, do.found, S.SAVING)
    yield ConversationRow(S.SAVING, K.REFUSED, when.always, do.try_again, None)
    yield from _closing(S.SAVING)


def _sizes() -> Iterable[ConversationRow]:
    """Yield the rows of shrinking and growing."""
    yield ConversationRow(S.SHRINKING, K.ISOLATED, when.always, do.isolated, S.SHRINKING)
    yield ConversationRow(S.SHRINKING, K.FAULT, when.always, do.close_unexpected, S.CLOSED)  # as in CONFIRMING
    yield ConversationRow(S.SHRINKING, K.SUCCESS, when.always, do.success, S.SHRUNK)
    yield ConversationRow(S.SHRINKING, K.REFUSED, when.always, do.try_again, None)
    yield from _closing(S.SHRINKING)

    yield from _calm(S.SHRUNK, S.SHRUNK)
    yield ConversationRow(S.SHRUNK, K.LOOK, when.desires("upgrade"), do.expand, S.EXPANDING)
    yield ConversationRow(S.SHRUNK, K.LOOK, when.desires("dump"), do.stop_to_save, S.STOPPING)
    yield ConversationRow(S.SHRUNK, K.FINISH, when.always, do.nothing, S.FINISHING)
    yield ConversationRow(S.SHRUNK, K.SUCCESS, when.growing, do.success, S.SERVING)  # the growth was given up too late
    yield ConversationRow(S.SHRUNK, K.OPEN_FAILURE, when.growing, do.open_failure, S.FAILED_OPEN)

    yield ConversationRow(S.EXPANDING, K.LOOK, when.desires("dump"), do.stop_to_save, S.STOPPING)
    yield ConversationRow(S.EXPANDING, K.LOOK, when.desires_nobody_back, do.stay_small, S.SHRUNK)
    yield ConversationRow(S.EXPANDING, K.LOOK, when.desires_others, do.expand, S.EXPANDING)
    yield ConversationRow(S.EXPANDING, K.SUCCESS, when.always, do.success, S.SERVING)
    yield ConversationRow(S.EXPANDING, K.REFUSED, when.always, do.try_again, None)
    yield ConversationRow(S.EXPANDING, K.FAULT, when.always, do.found_and_stop, S.STOPPING)
    yield from _closing(S.EXPANDING)


def _planned() -> Iterable[ConversationRow]:
    """Yield the rows of pause, continue and hot switch."""
    yield ConversationRow(S.PAUSING, K.STOP_OK, when.always, do.paused, S.PAUSED)
    yield ConversationRow(S.PAUSING, K.STOP_FAILED, when.always, do.close_pause_failed, S.CLOSED)
    yield ConversationRow(S.PAUSING, K.OPEN_FAILURE, when.always, do.pause_failed, S.SERVING)
    yield ConversationRow(S.PAUSING, K.REFUSED, when.always, do.try_again, None)

    yield ConversationRow(S.PAUSED, K.LOOK, when.has_lost, do.stop, S.STOPPING)
    yield ConversationRow(S.PAUSED, K.LOOK, when.desires("continue"), do.choose, S.CONTINUING)
    yield ConversationRow(S.PAUSED, K.OPEN_FAILURE, when.always, do.pause_failed, S.SERVING)
    yield ConversationRow(S.PAUSED, K.FAULT, when.always, do.found_and_stop, S.STOPPING)
    yield ConversationRow(S.PAUSED, K.REFUSED, when.always, do.try_again, S.PAUSED)

    yield ConversationRow(S.CONTINUING, K.SUCCESS, when.always, do.success, S.SERVING)
    yield ConversationRow(
        S.CONTINUING, K.OPEN_FAILURE, when.accepted, do.pause_failed, S.SERVING
    )  # else it remains as a wake-up
    yield ConversationRow(S.CONTINUING, K.REFUSED, when.always, do.try_again, None)

    yield from _calm(S.SWITCHING, S.SERVING)
    yield ConversationRow(S.SWITCHING, K.LOOK, when.desires("continue"), do.cancel_switch, S.SERVING)
    yield ConversationRow(S.SWITCHING, K.ACCEPTED, when.always, do.admit_second, S.SWITCHING)
    yield ConversationRow(S.SWITCHING, K.OFFER, when.always, do.offered, S.CHOOSING)


def _everywhere() -> Iterable[ConversationRow]:
    for state in TRAINING:
        for kind in CALLBACKS:
            yield ConversationRow(state, kind, when.always, do.close_unexpected, S.CLOSED)
    for state in S:
        yield ConversationRow(state, K.ACCEPTED, when.always, do.mark_accepted, state)
        yield ConversationRow(state, K.SERVES, when.always, do.serve, S.SERVING)
        yield ConversationRow(state, K.GONE, when.always, do.lose_controller, state if state in OVER else S.LOST)
        yield ConversationRow(state, K.ENDED, when.always, do.nothing, S.CLOSED)
    yield ConversationRow(S.LOST, K.TAKEN_OVER, when.was_held, do.hold_again, S.PAUSING)
    yield ConversationRow(S.LOST, K.TAKEN_OVER, when.was_through, do.begin_again, S.CONFIRMING)
    yield ConversationRow(S.LOST, K.TAKEN_OVER, when.always, do.begin_again, S.SERVING)
    for strategy, state in CARRIES_OUT.items():
        yield ConversationRow(S.SERVING, K.TAKEN_UP, when.carries_out(strategy), do.take_up, state)


def build_table() -> dict[tuple[State, EventKind], list[ConversationRow]]:
    """Return the rows by state and event, in the order in which they are tried."""
    table: dict[tuple[State, EventKind], list[ConversationRow]] = defaultdict(list)
    for row in chain(_front(), _repairs(), _sizes(), _planned(), _everywhere()):
        table[row.state, row.event].append(row)
    return dict(table)


TABLE = build_table()


def new_conversation(answer_seconds: float) -> Conversation:
    """Return a conversation that has not begun. `answer_seconds`: MindIO's wait for an answer, less a margin."""
    return Conversation(TABLE, answer_seconds)
