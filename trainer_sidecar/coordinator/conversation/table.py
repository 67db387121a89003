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


def _rows_at_rest(state: State, refused: State) -> Iterable[ConversationRow]:
    """Return the rows of a state at rest: losses and faults open an incident. `refused`: state that repeats a call."""
    return (
        ConversationRow(state, K.LOOK, when.has_lost_ranks, do.stop_training, S.STOPPING),
        ConversationRow(state, K.FAULT, when.always_applies, do.report_found_and_stop, S.STOPPING),
        ConversationRow(state, K.REFUSED, when.always_applies, do.postpone_refused_call, refused),
    )


def _closing_rows(state: State) -> Iterable[ConversationRow]:
    return (
        ConversationRow(state, K.FAILURE, when.always_applies, do.close_conversation, S.CLOSED),
        ConversationRow(state, K.OPEN_FAILURE, when.always_applies, do.await_save_decision, S.FAILED_OPEN),
    )


def _gathering_rows(state: State, may_name: Guard) -> Iterable[ConversationRow]:
    return (
        ConversationRow(state, K.LOOK, when.is_answer_overdue, do.close_overdue, S.CLOSED),
        ConversationRow(state, K.LOOK, may_name, do.name_lost_ranks, S.NAMING),
        *_closing_rows(state),
    )


def _rows_up_to_offer() -> Iterable[ConversationRow]:
    """Yield the rows from the first loss to the offered strategies."""
    yield from _rows_at_rest(S.SERVING, S.SERVING)
    yield ConversationRow(S.SERVING, K.LOOK, when.desires_strategy("dump"), do.save_without_fault, S.SAVING)
    yield ConversationRow(S.SERVING, K.LOOK, when.desires_strategy("pause"), do.pause_training, S.PAUSING)
    yield ConversationRow(S.SERVING, K.LOOK, when.desires_strategy("migration"), do.prepare_switch, S.SWITCHING)
    yield ConversationRow(S.SERVING, K.FINISH, when.always_applies, do.do_nothing, S.FINISHING)

    yield ConversationRow(S.STOPPING, K.FAULT, when.always_applies, do.report_found_faults, S.STOPPING)
    yield ConversationRow(S.STOPPING, K.STOP_OK, when.always_applies, do.report_stopped, S.STOPPED)
    yield ConversationRow(S.STOPPING, K.STOP_FAILED, when.always_applies, do.close_stop_failed, S.CLOSED)
    yield ConversationRow(S.STOPPING, K.REFUSED, when.always_applies, do.postpone_refused_call, None)
    yield ConversationRow(
        S.STOPPING, K.SUCCESS, when.is_result_of_growth, do.stop_to_save, S.STOPPING
    )  # MindIO may have dropped the call with the pause
    yield ConversationRow(S.STOPPING, K.OPEN_FAILURE, when.of_the_pause_accepted, do.do_nothing, S.SERVING)
    yield ConversationRow(S.STOPPING, K.OPEN_FAILURE, when.was_stopped_in_pause, do.do_nothing, S.STOPPING)
    yield from _closing_rows(S.STOPPING)

    yield from _gathering_rows(S.STOPPED, when.can_name_lost)
    yield from _gathering_rows(S.RETRY_REFUSED, when.can_name_again)

    yield ConversationRow(S.NAMING, K.FAULT, when.always_applies, do.admit_successors, S.NAMING)
    yield ConversationRow(S.NAMING, K.OFFER, when.always_applies, do.report_offer, S.CHOOSING)
    yield ConversationRow(S.NAMING, K.REFUSED, when.always_applies, do.postpone_refused_call, None)
    yield from _closing_rows(S.NAMING)


def _rows_of_repairs() -> Iterable[ConversationRow]:
    """Yield the rows of the chosen strategy and its result."""
    yield ConversationRow(S.CHOOSING, K.LOOK, when.is_answer_overdue, do.close_overdue, S.CLOSED)
    yield ConversationRow(S.CHOOSING, K.LOOK, when.offers_only_exit, do.close_nothing_left, S.CLOSED)
    yield ConversationRow(S.CHOOSING, K.LOOK, when.desires_offered("recover"), do.choose_strategy, S.RECOVERING)
    yield ConversationRow(S.CHOOSING, K.LOOK, when.desires_offered("retry"), do.choose_strategy, S.RETRYING)
    yield ConversationRow(S.CHOOSING, K.LOOK, when.desires_offered("dump"), do.choose_strategy, S.SAVING)
    yield ConversationRow(S.CHOOSING, K.LOOK, when.desires_offered("downgrade"), do.choose_strategy, S.SHRINKING)
    yield ConversationRow(S.CHOOSING, K.LOOK, when.desires_offered("migration"), do.choose_strategy, S.MIGRATING)
    yield ConversationRow(S.CHOOSING, K.LOOK, when.is_move_given_up, do.close_given_up, S.CLOSED)
    yield from _closing_rows(S.CHOOSING)

    for state in (S.RECOVERING, S.RETRYING, S.MIGRATING):
        yield ConversationRow(state, K.STEP, when.always_applies, do.do_nothing, S.CONFIRMING)
        yield ConversationRow(state, K.SUCCESS, when.always_applies, do.return_to_rest, S.SERVING)
        yield ConversationRow(state, K.REFUSED, when.always_applies, do.postpone_refused_call, None)
        yield from _closing_rows(state)
    yield ConversationRow(S.RECOVERING, K.LOOK, when.successor_lost("dump"), do.choose_strategy, S.SAVING)
    yield ConversationRow(S.RECOVERING, K.LOOK, when.successor_lost("downgrade"), do.choose_strategy, S.SHRINKING)
    yield ConversationRow(S.RETRYING, K.RETRY_REFUSED, when.always_applies, do.lose_unretried_ranks, S.RETRY_REFUSED)

    yield ConversationRow(S.CONFIRMING, K.SUCCESS, when.always_applies, do.return_to_rest, S.SERVING)
    yield ConversationRow(
        S.CONFIRMING, K.FAULT, when.always_applies, do.close_unexpected, S.CLOSED
    )  # before the success it comes as 406
    yield from _closing_rows(S.CONFIRMING)

    yield ConversationRow(S.FAILED_OPEN, K.LOOK, when.is_answer_overdue, do.close_overdue, S.CLOSED)
    yield ConversationRow(S.FAILED_OPEN, K.LOOK, when.cannot_save, do.close_nothing_left, S.CLOSED)
    yield ConversationRow(S.FAILED_OPEN, K.LOOK, when.desires_offered("dump"), do.choose_strategy, S.SAVING)
    yield from _closing_rows(S.FAILED_OPEN)

    yield ConversationRow(
        S.SAVING, K.SUCCESS, when.is_result_of_growth, do.save_without_fault, S.SAVING
    )  # nothing was saved: MindIO drops the call while the growth's handlers run
    yield ConversationRow(S.SAVING, K.SUCCESS, when.always_applies, do.end_saved_ranks, S.CLOSED)
    yield ConversationRow(S.SAVING, K.FAULT, when.always_applies, do.report_found_faults, S.SAVING)
    yield ConversationRow(S.SAVING, K.REFUSED, when.always_applies, do.postpone_refused_call, None)
    yield from _closing_rows(S.SAVING)


def _rows_of_resizing() -> Iterable[ConversationRow]:
    """Yield the rows of shrinking and growing."""
    yield ConversationRow(S.SHRINKING, K.ISOLATED, when.always_applies, do.end_isolated_ranks, S.SHRINKING)
    yield ConversationRow(S.SHRINKING, K.FAULT, when.always_applies, do.close_unexpected, S.CLOSED)  # as in CONFIRMING
    yield ConversationRow(S.SHRINKING, K.SUCCESS, when.always_applies, do.return_to_rest, S.SHRUNK)
    yield ConversationRow(S.SHRINKING, K.REFUSED, when.always_applies, do.postpone_refused_call, None)
    yield from _closing_rows(S.SHRINKING)

    yield from _rows_at_rest(S.SHRUNK, S.SHRUNK)
    yield ConversationRow(S.SHRUNK, K.LOOK, when.desires_strategy("upgrade"), do.admit_dropped_ranks, S.EXPANDING)
    yield ConversationRow(S.SHRUNK, K.LOOK, when.desires_strategy("dump"), do.stop_to_save, S.STOPPING)
    yield ConversationRow(S.SHRUNK, K.FINISH, when.always_applies, do.do_nothing, S.FINISHING)
    yield ConversationRow(
        S.SHRUNK, K.SUCCESS, when.is_growing, do.return_to_rest, S.SERVING
    )  # the growth was given up too late
    yield ConversationRow(S.SHRUNK, K.OPEN_FAILURE, when.is_growing, do.await_save_decision, S.FAILED_OPEN)

    yield ConversationRow(S.EXPANDING, K.LOOK, when.desires_strategy("dump"), do.stop_to_save, S.STOPPING)
    yield ConversationRow(S.EXPANDING, K.LOOK, when.desires_nobody_back, do.stay_small, S.SHRUNK)
    yield ConversationRow(S.EXPANDING, K.LOOK, when.desires_others, do.admit_dropped_ranks, S.EXPANDING)
    yield ConversationRow(S.EXPANDING, K.SUCCESS, when.always_applies, do.return_to_rest, S.SERVING)
    yield ConversationRow(S.EXPANDING, K.REFUSED, when.always_applies, do.postpone_refused_call, None)
    yield ConversationRow(S.EXPANDING, K.FAULT, when.always_applies, do.report_found_and_stop, S.STOPPING)
    yield from _closing_rows(S.EXPANDING)


def _rows_of_planned_actions() -> Iterable[ConversationRow]:
    """Yield the rows of pause, continue and hot switch."""
    yield ConversationRow(S.PAUSING, K.STOP_OK, when.always_applies, do.report_paused, S.PAUSED)
    yield ConversationRow(S.PAUSING, K.STOP_FAILED, when.always_applies, do.close_pause_failed, S.CLOSED)
    yield ConversationRow(S.PAUSING, K.OPEN_FAILURE, when.always_applies, do.report_failed_pause, S.SERVING)
    yield ConversationRow(S.PAUSING, K.REFUSED, when.always_applies, do.postpone_refused_call, None)

    yield ConversationRow(S.PAUSED, K.LOOK, when.has_lost_ranks, do.stop_training, S.STOPPING)
    yield ConversationRow(S.PAUSED, K.LOOK, when.desires_strategy("continue"), do.choose_strategy, S.CONTINUING)
    yield ConversationRow(S.PAUSED, K.OPEN_FAILURE, when.always_applies, do.report_failed_pause, S.SERVING)
    yield ConversationRow(S.PAUSED, K.FAULT, when.always_applies, do.report_found_and_stop, S.STOPPING)
    yield ConversationRow(S.PAUSED, K.REFUSED, when.always_applies, do.postpone_refused_call, S.PAUSED)

    yield ConversationRow(S.CONTINUING, K.SUCCESS, when.always_applies, do.return_to_rest, S.SERVING)
    yield ConversationRow(
        S.CONTINUING, K.OPEN_FAILURE, when.was_call_accepted, do.report_failed_pause, S.SERVING
    )  # else it remains as a wake-up
    yield ConversationRow(S.CONTINUING, K.REFUSED, when.always_applies, do.postpone_refused_call, None)

    yield from _rows_at_rest(S.SWITCHING, S.SERVING)
    yield ConversationRow(S.SWITCHING, K.LOOK, when.desires_strategy("continue"), do.cancel_switch, S.SERVING)
    yield ConversationRow(S.SWITCHING, K.ACCEPTED, when.always_applies, do.admit_second, S.SWITCHING)
    yield ConversationRow(S.SWITCHING, K.OFFER, when.always_applies, do.report_offer, S.CHOOSING)


def _rows_of_all_states() -> Iterable[ConversationRow]:
    for state in TRAINING:
        for kind in CALLBACKS:
            yield ConversationRow(state, kind, when.always_applies, do.close_unexpected, S.CLOSED)
    for state in S:
        yield ConversationRow(state, K.ACCEPTED, when.always_applies, do.mark_accepted, state)
        yield ConversationRow(state, K.SERVES, when.always_applies, do.clear_memory, S.SERVING)
        yield ConversationRow(
            state, K.GONE, when.always_applies, do.lose_controller, state if state in OVER else S.LOST
        )
        yield ConversationRow(state, K.ENDED, when.always_applies, do.do_nothing, S.CLOSED)
    yield ConversationRow(S.LOST, K.TAKEN_OVER, when.was_held_paused, do.pause_again, S.PAUSING)
    yield ConversationRow(S.LOST, K.TAKEN_OVER, when.was_through, do.begin_again, S.CONFIRMING)
    yield ConversationRow(S.LOST, K.TAKEN_OVER, when.always_applies, do.begin_again, S.SERVING)
    for strategy, state in CARRIES_OUT.items():
        yield ConversationRow(S.SERVING, K.TAKEN_UP, when.carries_out(strategy), do.adopt_strategy, state)


def build_table() -> dict[tuple[State, EventKind], list[ConversationRow]]:
    """Return the rows by state and event, in the order in which they are tried."""
    table: dict[tuple[State, EventKind], list[ConversationRow]] = defaultdict(list)
    for row in chain(
        _rows_up_to_offer(), _rows_of_repairs(), _rows_of_resizing(), _rows_of_planned_actions(), _rows_of_all_states()
    ):
        table[row.state, row.event].append(row)
    return dict(table)


TABLE = build_table()


def new_conversation(answer_seconds: float) -> Conversation:
    """Return a conversation that has not begun. `answer_seconds`: MindIO's wait for an answer, less a margin."""
    return Conversation(TABLE, answer_seconds)
