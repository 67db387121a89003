"""How a cell of the table is asked: its rows in their order, without asking twice what is known.

The rows between which only the ladder decides (one for each rung) are one look at its choice, and a row that only
concerns other kinds of facts is left out before anybody asks. The row that answers is the one that the table gives,
read from top to bottom; a test asks both ways, everywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hajob.domain.actions import Action
from hajob.domain.facts import FactKind
from hajob.plan.choice import Occasion
from hajob.plan.events import EVENTS, Event, FactSeen
from hajob.plan.guards import ALWAYS
from hajob.plan.moment import Guard, Moment, Row
from hajob.plan.state import Phase
from hajob.plan.table import TABLE


def cells() -> dict[tuple[Phase, type[Event]], tuple[Row, ...]]:
    """Rows of every cell, in order, up to and with the first that always applies."""
    found: dict[tuple[Phase, type[Event]], tuple[Row, ...]] = {}
    for phase in Phase:
        for event in EVENTS:
            rows = []
            for row in TABLE:
                if row.event is event and phase in row.states:
                    rows.append(row)
                    if row.guard is ALWAYS:
                        break
            found[phase, event] = tuple(rows)
    return found


CELLS: Final = cells()
"""By state and kind of event."""


@dataclass(frozen=True, slots=True)
class Single:
    """One row."""

    row: Row

    def answer(self, moment: Moment) -> Row | None:
        """The row, if its guard holds."""
        return self.row if self.row.guard.test(moment) else None


@dataclass(frozen=True, slots=True)
class Fork:
    """Rows that follow one another and differ in the rung they stand for."""

    when: Guard | None
    occasion: Occasion
    rows: Mapping[Action | None, Row]

    def answer(self, moment: Moment) -> Row | None:
        """The row of the rung that the ladder takes, if there is one."""
        if self.when is not None and not self.when.test(moment):
            return None
        return self.rows.get(moment.decide(self.occasion).action)


Question = Single | Fork


def _questions(rows: tuple[Row, ...]) -> tuple[Question, ...]:
    """Rows of a cell, those of one ladder taken together."""
    found: list[Question] = []
    for row in rows:
        guard = row.guard
        if guard.rung is None:
            found.append(Single(row))
            continue
        occasion, action = guard.rung
        last = found[-1] if found else None
        if isinstance(last, Fork) and last.when is guard.when and last.occasion is occasion:
            found[-1] = Fork(guard.when, occasion, {action: row, **last.rows})
        else:
            found.append(Fork(guard.when, occasion, {action: row}))
    return tuple(found)


def index() -> dict[tuple[Phase, type[Event] | FactKind], tuple[Question, ...]]:
    """Questions by state and kind of event, of the rows of every cell."""
    found: dict[tuple[Phase, type[Event] | FactKind], tuple[Question, ...]] = {}
    for (phase, event), rows in CELLS.items():
        if event is not FactSeen:
            found[phase, event] = _questions(rows)
            continue
        for kind in FactKind:
            found[phase, kind] = _questions(tuple(row for row in rows if kind in (row.guard.kinds or {kind})))
    return found


QUESTIONS: Final = index()
"""By state, and kind of event; facts by their own kind."""
