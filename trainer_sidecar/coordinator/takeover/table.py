"""The phases of a takeover by another MindIO controller: one table of (phase, event, guard, effect, next).

`LOOK` rows continue the takeover as far as gates, ranks and the controller container have come. The others say that a
controller is lost; of them the first whose guard holds is taken. docs/internals/takeover.md is made from these rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from trainer_sidecar.coordinator.state.controller_change import ChangePhase
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.takeover import effects as do
from trainer_sidecar.coordinator.takeover import guards as when


class TakeoverEvent(StrEnum):
    """What a takeover is told."""

    LOST = "controller lost"  # by its process's end, or because it hangs
    ADOPTED = "found without controller"  # a restarted coordinator found ranks that run, and no controller of theirs
    MOVE_GIVEN_UP = "move given up"  # MindIO keeps a flag of it that would make it leave at the next fault
    CONTAINER_ENDED = "container ended"  # the controller's, or the store's process with it
    LOOK = "look"  # something may have changed


Guard = Callable[[Job], bool]
Effect = Callable[[Job, str], None]


@dataclass(frozen=True, slots=True)
class TakeoverRow:
    """One row of the table. The effect gets the event's text, for a person."""

    phase: ChangePhase
    event: TakeoverEvent
    guard: Guard
    effect: Effect
    following: ChangePhase


P, E = ChangePhase, TakeoverEvent

UNDER_WAY = (P.HOLDING, P.OPENING, P.REGISTERING)
"""Phases in which a takeover waits; DECIDING is passed through."""


def _rows_out_of_rest() -> Iterable[TakeoverRow]:
    """Yield the rows out of rest."""
    yield TakeoverRow(P.NONE, E.LOST, when.is_takeover_possible, do.begin_takeover, P.HOLDING)
    yield TakeoverRow(P.NONE, E.LOST, when.always_applies, do.refuse_takeover, P.NONE)
    yield TakeoverRow(P.NONE, E.ADOPTED, when.always_applies, do.begin_for_adopted, P.HOLDING)
    yield TakeoverRow(P.NONE, E.MOVE_GIVEN_UP, when.is_takeover_possible, do.begin_instead_of_a_move, P.HOLDING)
    yield TakeoverRow(P.NONE, E.CONTAINER_ENDED, when.always_applies, do.tell_container_ended, P.NONE)


def _rows_under_way(phase: ChangePhase) -> Iterable[TakeoverRow]:
    """Yield the rows of every phase under way: what ends it, what begins it again, and the store meanwhile."""
    yield TakeoverRow(phase, E.LOST, when.is_takeover_possible, do.begin_once_more, P.HOLDING)
    yield TakeoverRow(phase, E.LOST, when.always_applies, do.refuse_takeover, P.NONE)
    yield TakeoverRow(phase, E.CONTAINER_ENDED, when.always_applies, do.leave_off_with_the_container, P.NONE)
    yield TakeoverRow(phase, E.LOOK, when.steps_are_over, do.end_silently, P.NONE)
    yield TakeoverRow(phase, E.LOOK, when.is_takeover_overdue, do.give_up_overdue, P.NONE)
    yield TakeoverRow(phase, E.LOOK, when.store_is_held, do.refill_store, phase)


def _rows_up_to_service() -> Iterable[TakeoverRow]:
    """Yield the rows from the loss to the service of the other controller."""
    yield TakeoverRow(P.HOLDING, E.LOOK, when.links_are_gone, do.complete_last_word, P.HOLDING)
    yield TakeoverRow(P.HOLDING, E.LOOK, when.ranks_stand_still, do.settle_rank_progress, P.DECIDING)

    yield TakeoverRow(P.DECIDING, E.LOOK, when.cannot_go_on, do.give_up_repair, P.NONE)
    yield TakeoverRow(P.DECIDING, E.LOOK, when.always_applies, do.change_phase_only, P.OPENING)

    yield TakeoverRow(P.OPENING, E.LOOK, when.another_one_serves, do.make_ranks_known, P.REGISTERING)
    yield TakeoverRow(P.OPENING, E.LOOK, when.is_to_be_asked_for, do.ask_for_another, P.OPENING)

    yield TakeoverRow(P.REGISTERING, E.LOOK, when.is_time_to_look, do.name_stand_ins, P.REGISTERING)
    yield TakeoverRow(P.REGISTERING, E.LOOK, when.every_rank_is_known, do.put_in_service, P.NONE)


EVERYWHERE = tuple(row for phase in UNDER_WAY for row in _rows_under_way(phase))


def build_table() -> Mapping[tuple[ChangePhase, TakeoverEvent], Sequence[TakeoverRow]]:
    """Return the rows by phase and event, in the order in which they are tried."""
    table: dict[tuple[ChangePhase, TakeoverEvent], list[TakeoverRow]] = defaultdict(list)
    for row in (*_rows_out_of_rest(), *EVERYWHERE, *_rows_up_to_service()):
        table[row.phase, row.event].append(row)
    return dict(table)


TABLE = build_table()


def handle_event(job: Job, event: TakeoverEvent, text: str = "") -> None:
    """Take in an event. `text`: for a person, what has happened."""
    row = next((row for row in TABLE.get((job.change.phase, event), ()) if row.guard(job)), None)
    if row is not None:
        _apply_row(job, row, text)


def advance_table(job: Job) -> None:
    """Continue the takeover as far as possible now.

    After a row that stays in its phase the rows below it are asked, after one that leaves it those of the next phase.
    """
    phase = job.change.phase
    for row in TABLE.get((phase, TakeoverEvent.LOOK), ()):
        if row.guard(job):
            _apply_row(job, row, "")
        if job.change.phase is not phase:
            advance_table(job)
            return


def _apply_row(job: Job, row: TakeoverRow, text: str) -> None:
    row.effect(job, text)
    job.change.enter_phase(row.following)
