"""Conditions of the rows of the conversation with MindIO: what is remembered, asked one question each."""

from __future__ import annotations

from trainer_sidecar.coordinator.conversation import (
    PROCESS_FAULT,
    ConversationMemory,
    Guard,
    MindIOEvent,
)
from trainer_sidecar.coordinator.conversation_states import State


def always(_memory: ConversationMemory, _event: MindIOEvent) -> bool:
    """In every case."""
    return True


def may_call(memory: ConversationMemory, _event: MindIOEvent) -> bool:
    """Not while a refused call is held back."""
    return memory.now >= memory.hold_until


def has_lost(memory: ConversationMemory, event: MindIOEvent) -> bool:
    """Somebody has died and MindIO does not know."""
    return bool(memory.lost) and may_call(memory, event)


def growing(memory: ConversationMemory, _event: MindIOEvent) -> bool:
    """MindIO was asked to take the dropped ranks back, and has not said how that ended."""
    return memory.strategy == "upgrade"


def desires_others(memory: ConversationMemory, event: MindIOEvent) -> bool:
    """Other processes come back than those that were let in."""
    if not desires("upgrade")(memory, event) or memory.desired is None:
        return False
    return bool(memory.renewed) or memory.desired.names.keys() != memory.named.keys()


def desires_nobody_back(memory: ConversationMemory, event: MindIOEvent) -> bool:
    """Everybody who was to come back is given up."""
    if not desires("downgrade")(memory, event) or memory.desired is None:
        return False
    return memory.named.keys() <= memory.desired.names.keys()


def of_the_growth(_memory: ConversationMemory, event: MindIOEvent) -> bool:
    """The result is of a growth that something else has overtaken."""
    return event.strategy == "upgrade"


def overdue(memory: ConversationMemory, _event: MindIOEvent) -> bool:
    """The answer MindIO waited for did not go out in time."""
    return memory.due is not None and memory.now >= memory.due


def can_name(memory: ConversationMemory, event: MindIOEvent) -> bool:
    """Named once, so everything that is known dead must be in; a checkpoint needs nobody back.

    A retry is not offered any more once a process is among the names; a death that has overtaken it is decided anew.
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
    """After 405 the retry is no longer offered: only another decision may be named."""
    return can_name(memory, event) and memory.desired is not None and memory.desired.strategy != "retry"


def desires(*strategies: str) -> Guard:
    """One of these strategies is desired, and everything it needs is there."""

    def guard(memory: ConversationMemory, event: MindIOEvent) -> bool:
        desired = memory.desired
        return desired is not None and desired.ready and desired.strategy in strategies and may_call(memory, event)

    return guard


def desires_offered(*strategies: str) -> Guard:
    """A strategy outside the list is accepted by MindIO and then answered with 499 and the end."""
    is_desired = desires(*strategies)

    def guard(memory: ConversationMemory, event: MindIOEvent) -> bool:
        return is_desired(memory, event) and memory.desired is not None and memory.desired.strategy in memory.offered

    return guard


def only_the_end(memory: ConversationMemory, _event: MindIOEvent) -> bool:
    """MindIO offers nothing that keeps anything; whatever is said, it leaves."""
    return not set(memory.offered) - {"exit"}


def cannot_save(memory: ConversationMemory, _event: MindIOEvent) -> bool:
    """The last list stays in force until a success, and a failure can be followed by a checkpoint only."""
    return "dump" not in memory.offered


def successor_lost(*strategies: str) -> Guard:
    """A named rank died again: MindIO waits for it for ten minutes, and may be told something else meanwhile."""
    is_desired = desires_offered(*strategies)

    def guard(memory: ConversationMemory, event: MindIOEvent) -> bool:
        again = memory.desired is not None and memory.desired.again
        return is_desired(memory, event) and (again or bool(memory.late.keys() & memory.named.keys()))

    return guard


def accepted(memory: ConversationMemory, _event: MindIOEvent) -> bool:
    """The last call was taken before this was said."""
    return memory.accepted


def of_the_pause(memory: ConversationMemory, _event: MindIOEvent) -> bool:
    """The training was stopped out of a pause."""
    return memory.came_from is State.PAUSED


def of_the_pause_accepted(memory: ConversationMemory, event: MindIOEvent) -> bool:
    """The same, and MindIO dropped the word when it gave the pause up."""
    return of_the_pause(memory, event) and accepted(memory, event)


def given_up(memory: ConversationMemory, event: MindIOEvent) -> bool:
    """MindIO has stopped every rank for a move that is not desired any more."""
    return "migration" in memory.offered and desires("continue")(memory, event)


def carries_out(strategy: str) -> Guard:
    """This strategy is being carried out."""
    return lambda _memory, event: event.strategy == strategy


def was_through(_memory: ConversationMemory, event: MindIOEvent) -> bool:
    """The former controller had carried its strategy out to the end, and not said so."""
    return event.strategy not in ("", "pause")


def was_held(memory: ConversationMemory, event: MindIOEvent) -> bool:
    """It held every rank at the end of a step, and all of them live: a fault is better stopped at once."""
    return event.strategy == "pause" and not (memory.named or memory.late or memory.lost)
