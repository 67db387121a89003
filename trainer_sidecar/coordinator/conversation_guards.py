"""Conditions of the rows of the conversation with MindIO: what is remembered, asked one question each."""

from __future__ import annotations

from trainer_sidecar.coordinator.conversation import (
    PROCESS_FAULT,
    Event,
    Guard,
    Memory,
)
from trainer_sidecar.coordinator.conversation_states import State


def always(_memory: Memory, _event: Event) -> bool:
    """In every case."""
    return True


def may_call(memory: Memory, _event: Event) -> bool:
    """Not while a refused call is held back."""
    return memory.now >= memory.hold_until


def has_lost(memory: Memory, event: Event) -> bool:
    """Somebody has died and MindIO does not know."""
    return bool(memory.lost) and may_call(memory, event)


def growing(memory: Memory, _event: Event) -> bool:
    """MindIO was asked to take the dropped ranks back, and has not said how that ended."""
    return memory.strategy == "upgrade"


def wants_others(memory: Memory, event: Event) -> bool:
    """Other processes come back than those that were let in."""
    if not wants("upgrade")(memory, event) or memory.wish is None:
        return False
    return bool(memory.renewed) or memory.wish.names.keys() != memory.named.keys()


def wants_nobody_back(memory: Memory, event: Event) -> bool:
    """Everybody who was to come back is given up."""
    if not wants("downgrade")(memory, event) or memory.wish is None:
        return False
    return memory.named.keys() <= memory.wish.names.keys()


def of_the_growth(_memory: Memory, event: Event) -> bool:
    """The result is of a growth that something else has overtaken."""
    return event.strategy == "upgrade"


def overdue(memory: Memory, _event: Event) -> bool:
    """The answer MindIO waited for did not go out in time."""
    return memory.due is not None and memory.now >= memory.due


def can_name(memory: Memory, event: Event) -> bool:
    """Named once, so everything that is known dead must be in; a checkpoint needs nobody back.

    A retry is not offered any more once a process is among the names; a death that has overtaken it is decided anew.
    """
    wish = memory.wish
    if wish is None or not wish.strategy or not may_call(memory, event):
        return False
    if wish.strategy == "dump":
        return True
    if wish.strategy == "retry" and PROCESS_FAULT in memory.lost.values():
        return False
    return wish.ready and memory.lost.keys() <= wish.names.keys()


def can_name_again(memory: Memory, event: Event) -> bool:
    """After 405 the retry is no longer offered: only another decision may be named."""
    return can_name(memory, event) and memory.wish is not None and memory.wish.strategy != "retry"


def wants(*strategies: str) -> Guard:
    """One of these strategies is wanted, and everything it needs is there."""

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


def only_the_end(memory: Memory, _event: Event) -> bool:
    """MindIO offers nothing that keeps anything; whatever is said, it leaves."""
    return not set(memory.offered) - {"exit"}


def cannot_save(memory: Memory, _event: Event) -> bool:
    """The last list stays in force until a success, and a failure can be followed by a checkpoint only."""
    return "dump" not in memory.offered


def successor_lost(*strategies: str) -> Guard:
    """A named rank died again: MindIO waits for it for ten minutes, and may be told something else meanwhile."""
    wanted = wants_offered(*strategies)

    def guard(memory: Memory, event: Event) -> bool:
        again = memory.wish is not None and memory.wish.again
        return wanted(memory, event) and (again or bool(memory.late.keys() & memory.named.keys()))

    return guard


def accepted(memory: Memory, _event: Event) -> bool:
    """The last call was taken before this was said."""
    return memory.accepted


def of_the_pause(memory: Memory, _event: Event) -> bool:
    """The training was stopped out of a pause."""
    return memory.came_from is State.PAUSED


def of_the_pause_accepted(memory: Memory, event: Event) -> bool:
    """The same, and MindIO dropped the word when it gave the pause up."""
    return of_the_pause(memory, event) and accepted(memory, event)


def given_up(memory: Memory, event: Event) -> bool:
    """MindIO has stopped every rank for a move that is not wanted any more."""
    return "migration" in memory.offered and wants("continue")(memory, event)


def carries_out(strategy: str) -> Guard:
    """This strategy is being carried out."""
    return lambda _memory, event: event.strategy == strategy
