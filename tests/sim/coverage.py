"""Which rows of the operator's state machine histories take: what none takes is not tried by any of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from hajob.plan import machine
from hajob.plan.context import Transition
from hajob.plan.events import JobEvent
from hajob.plan.state import JobPhase, JobState

Cell = tuple[str, str, str]
"""State, event, guard."""
IGNORED: Final = "ignore"
"""Name of the handler that does nothing."""


def cell_of_row(phase: JobPhase, event: type[JobEvent], guard: str) -> Cell:
    """Return the name of a row in one state."""
    return phase.value, event.__name__, guard


def cells_that_act() -> set[Cell]:
    """Return every row of every state that does something."""
    return {
        cell_of_row(phase, event, row.guard.name)
        for (phase, event), rows in machine.CELLS.items()
        for row in rows
        if row.handler.name != IGNORED
    }


@contextmanager
def counted_cells(counted: Counter[Cell]) -> Iterator[None]:
    """Count the rows that are taken while this is open."""
    inner = machine.advance_job

    def advance(state: JobState, event: JobEvent, *given: Any) -> Transition:
        transition = inner(state, event, *given)
        counted[cell_of_row(state.phase, type(event), transition.row.guard.name)] += 1
        return transition

    with mock.patch.object(machine, "advance_job", advance):
        yield


def lines_of_coverage(counted: Counter[Cell], *, whole: bool) -> list[str]:
    """Return how many of the rows that act were taken; `whole`: and which were not, a line for each state and event."""
    wanted = cells_that_act()
    missed = sorted(wanted - counted.keys())
    lines = [f"rows of the state machine that act: {len(wanted) - len(missed)} of {len(wanted)} taken"]
    if whole:
        cells = dict.fromkeys((phase, event) for phase, event, _ in missed)
        for cell in cells:
            guards = ", ".join(guard for *of, guard in missed if tuple(of) == cell)
            lines.append(f"not taken: {' × '.join(cell)}: {guards}")
    return lines
