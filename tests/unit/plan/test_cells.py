"""How a cell is asked: all of its rows, none twice, the ladder once."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hajob.domain.facts import FactKind
from hajob.plan.cells import CELLS, QUESTIONS, Fork, Question, Single, cells, index
from hajob.plan.events import EVENTS, Event, FactSeen
from hajob.plan.guards import ALWAYS
from hajob.plan.moment import Row
from hajob.plan.state import Phase
from hajob.plan.table import TABLE


def rows_of(phase: Phase, event: type[Event]) -> list[Row]:
    """The rows that the table gives, read from top to bottom to the first that always holds."""
    rows = [row for row in TABLE if phase in row.states and row.event is event]
    always = [row.guard for row in rows].index(ALWAYS)
    return rows[: always + 1]


def about(event: type[Event]) -> list[type[Event] | FactKind]:
    return list(FactKind) if event is FactSeen else [event]


def asked(question: Question) -> list[Row]:
    """The rows that a question may answer with."""
    return [question.row] if isinstance(question, Single) else list(question.rows.values())


@pytest.mark.parametrize("phase", Phase)
def test_a_cell_holds_its_rows_of_the_table_in_their_order(phase: Phase) -> None:
    made = cells()
    for event in EVENTS:
        assert list(made[phase, event]) == rows_of(phase, event), (phase, event)


@pytest.mark.parametrize("phase", Phase)
def test_every_row_of_a_cell_is_asked_where_the_table_has_it(phase: Phase) -> None:
    made = index()
    for event in EVENTS:
        for kind in about(event):
            left = [row for row in rows_of(phase, event) if row.guard.kinds is None or kind in row.guard.kinds]
            for question in made[phase, kind]:
                found = asked(question)
                here, left = left[: len(found)], left[len(found) :]
                assert {id(row) for row in here} == {id(row) for row in found}, (phase, kind)
            assert left == [], (phase, kind)


@pytest.mark.parametrize("phase", Phase)
def test_a_row_between_rungs_is_found_by_its_rung(phase: Phase) -> None:
    made = index()
    for question in (one for event in EVENTS for kind in about(event) for one in made[phase, kind]):
        if isinstance(question, Single):
            assert question.row.guard.rung is None
            continue
        for action, row in question.rows.items():
            assert row.guard.rung == (question.occasion, action)
            assert row.guard.when is question.when


@pytest.mark.parametrize("phase", Phase)
def test_the_ladder_is_asked_once_for_rows_that_follow_one_another(phase: Phase) -> None:
    made = index()
    for event in EVENTS:
        for kind in about(event):
            for one, other in pairwise(made[phase, kind]):
                if isinstance(one, Fork) and isinstance(other, Fork):
                    assert (one.occasion, one.when) != (other.occasion, other.when), (phase, kind)


def test_what_the_machine_asks_is_what_the_table_gives() -> None:
    assert cells() == CELLS
    assert index() == QUESTIONS
