"""Guards of the table's rows: each answers one question about the conversation's memory and the event."""

from __future__ import annotations

from trainer_sidecar.coordinator.conversation.conversation import (
    PROCESS_FAULT,
    ConversationMemory,
    Guard,
    MindIOEvent,
)
from trainer_sidecar.coordinator.conversation.states import State

REPAIRED_TEXT = "Mindio do repair operation ok"
"""Of every success but that of a save, a pause and a continue (docs/protocols/mindio.md §7.11)."""


def always_applies(_memory: ConversationMemory, _event: MindIOEvent) -> bool:
    """Return True: the row always applies."""
    return True


def may_call(memory: ConversationMemory, _event: MindIOEvent) -> bool:
    """Return whether calls may go out: no refused call is held back."""
    return memory.now >= memory.hold_until


def has_lost_ranks(memory: ConversationMemory, event: MindIOEvent) -> bool:
    """Return whether ranks have died that MindIO does not know to be dead."""
    return bool(memory.lost) and may_call(memory, event)


def is_growing(memory: ConversationMemory, _event: MindIOEvent) -> bool:
    """Return whether MindIO was asked to take the dropped ranks back and has not reported a result."""
    return memory.strategy == "upgrade"


def desires_others(memory: ConversationMemory, event: MindIOEvent) -> bool:
    """Return whether the decision wants other processes back than those admitted."""
    if not desires_strategy("upgrade")(memory, event) or memory.desired is None:
        return False
    return bool(memory.renewed) or memory.desired.names.keys() != memory.named.keys()


def desires_nobody_back(memory: ConversationMemory, event: MindIOEvent) -> bool:
    """Return whether the decision gives up every rank that was to come back."""
    if not desires_strategy("downgrade")(memory, event) or memory.desired is None:
        return False
    return memory.named.keys() <= memory.desired.names.keys()


def is_result_of_growth(_memory: ConversationMemory, event: MindIOEvent) -> bool:
    """Return whether the result belongs to a growth, which another decision has replaced.

    MindIO may report it under the name of a save, which it was asked for meanwhile and has dropped. The result of a
    real save has another text.
    """
    return event.strategy == "upgrade" or (event.strategy == "dump" and event.text == REPAIRED_TEXT)


def is_answer_overdue(memory: ConversationMemory, _event: MindIOEvent) -> bool:
    """Return whether MindIO's wait for an answer has run out."""
    return memory.due is not None and memory.now >= memory.due


def can_name_lost(memory: ConversationMemory, event: MindIOEvent) -> bool:
    """Return whether the lost ranks may be named to MindIO now.

    MindIO takes one naming only, so it must hold every dead rank; a save waits for no rank. MindIO offers no retry once
    a lost process is named, so a retry that a death has overtaken is decided anew.
    """
    desired = memory.desired
    if desired is None or not desired.strategy or not may_call(memory, event):
        return False
    if desired.strategy == "dump":
        return True
    if desired.strategy == "retry" and PROCESS_FAULT in memory.lost.values():
        return False
    return desired.ready and memory.lost.keys() <= desired.names.keys()


def can_name_again(memory: ConversationMemory, event: MindIOEvent) -> bool:
    """Return whether a decision other than a retry may be named: after 405 MindIO offers no retry."""
    return can_name_lost(memory, event) and memory.desired is not None and memory.desired.strategy != "retry"


def desires_strategy(*strategies: str) -> Guard:
    """Return a guard: whether one of these strategies is desired, and its ranks are ready."""

    def guard(memory: ConversationMemory, event: MindIOEvent) -> bool:
        desired = memory.desired
        return desired is not None and desired.ready and desired.strategy in strategies and may_call(memory, event)

    return guard


def desires_offered(*strategies: str) -> Guard:
    """Return a guard: whether a desired strategy was offered. MindIO accepts any other, answers 499 and leaves."""
    is_desired = desires_strategy(*strategies)

    def guard(memory: ConversationMemory, event: MindIOEvent) -> bool:
        return is_desired(memory, event) and memory.desired is not None and memory.desired.strategy in memory.offered

    return guard


def offers_only_exit(memory: ConversationMemory, _event: MindIOEvent) -> bool:
    """Return whether MindIO offers nothing but `exit`: whatever the answer, it leaves."""
    return not set(memory.offered) - {"exit"}


def cannot_save(memory: ConversationMemory, _event: MindIOEvent) -> bool:
    """Return whether no save is offered.

    The last offer holds until a success, and after a failure only a save can follow.
    """
    return "dump" not in memory.offered


def successor_lost(*strategies: str) -> Guard:
    """Return a guard: whether a named rank died anew. MindIO waits ten minutes for it, but takes other strategies."""
    is_desired = desires_offered(*strategies)

    def guard(memory: ConversationMemory, event: MindIOEvent) -> bool:
        again = memory.desired is not None and memory.desired.again
        return is_desired(memory, event) and (again or bool(memory.late.keys() & memory.named.keys()))

    return guard


def was_call_accepted(memory: ConversationMemory, _event: MindIOEvent) -> bool:
    """Return whether MindIO had accepted the last call before this event."""
    return memory.accepted


def was_stopped_in_pause(memory: ConversationMemory, _event: MindIOEvent) -> bool:
    """Return whether the training was stopped out of a pause."""
    return memory.came_from is State.PAUSED


def of_the_pause_accepted(memory: ConversationMemory, event: MindIOEvent) -> bool:
    """Return whether it was stopped out of a pause, and MindIO dropped the accepted call when it gave the pause up."""
    return was_stopped_in_pause(memory, event) and was_call_accepted(memory, event)


def is_move_given_up(memory: ConversationMemory, event: MindIOEvent) -> bool:
    """Return whether MindIO has stopped every rank for a move that is no longer desired."""
    return "migration" in memory.offered and desires_strategy("continue")(memory, event)


def carries_out(strategy: str) -> Guard:
    """Return a guard: whether MindIO carries out this strategy."""
    return lambda _memory, event: event.strategy == strategy


def was_through(_memory: ConversationMemory, event: MindIOEvent) -> bool:
    """Return whether the former controller had carried its strategy out to the end without reporting it."""
    return event.strategy not in ("", "pause")


def was_held_paused(memory: ConversationMemory, event: MindIOEvent) -> bool:
    """Return whether the former controller held every rank at the end of a step, and all of them live.

    With a fault among them a stop is better at once.
    """
    return event.strategy == "pause" and not (memory.named or memory.late or memory.lost)
