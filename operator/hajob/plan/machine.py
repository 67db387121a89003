"""The machine: one event in, one row of the table, a new state and effects out.

`advance` is a pure function and total: every event in every state has an answer, and an event that makes no sense is
a no-op that says why. It never raises for what the outside world may send.
"""

from dataclasses import dataclass, replace
from typing import Final

from hajob.plan.choice import Verdict
from hajob.plan.effects import Effect
from hajob.plan.events import EVENTS, Event
from hajob.plan.guards import ALWAYS
from hajob.plan.moment import Moment, Row
from hajob.plan.policy import Policy
from hajob.plan.state import JobState, Phase
from hajob.plan.table import TABLE
from hajob.plan.view import View

__all__ = ["CELLS", "TABLE", "Outcome", "advance"]


def _cell(phase: Phase, event: type[Event]) -> tuple[Row, ...]:
    rows = [row for row in TABLE if row.event is event and phase in row.states]
    last = next(place for place, row in enumerate(rows) if row.guard is ALWAYS)
    return tuple(rows[: last + 1])


CELLS: Final = {(phase, event): _cell(phase, event) for phase in Phase for event in EVENTS}
"""By state and kind of event: the rows in their order, up to and with the first that always applies."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one event led to.

    Attributes:
        state: the new state; the same object when nothing changed.
        effects: what the shell is to do, in this order.
        considered: the rungs judged for it, smallest first, each taken or refused with words.
        row: the row of the table that answered.
        ignored: why the event changed nothing, to be counted and logged; empty when it did.
    """

    state: JobState
    effects: tuple[Effect, ...]
    considered: tuple[Verdict, ...]
    row: Row
    ignored: str = ""

    @property
    def irreversible(self) -> bool:
        """Whether a status write must be acknowledged before all effects are done."""
        return any(effect.irreversible for effect in self.effects)


def advance(state: JobState, event: Event, view: View, policy: Policy, now_ms: int) -> Outcome:
    """Answer one event.

    Args:
        state: as the last outcome left it.
        event: what happened, one of `hajob.plan.events.EVENTS`.
        view: the cluster and the training now.
        policy: what the user allows.
        now_ms: the operator's clock, in milliseconds; never read anywhere else.
    """
    moment = Moment(state, event, view, policy, now_ms)
    row = next(row for row in CELLS[state.phase, type(event)] if row.guard.test(moment))  # the last is `always`
    new, effects = row.step.run(moment)
    if row.target is not None and row.target is not new.phase:
        new = replace(new, phase=row.target)
    considered = moment.choice.considered if moment.choice else ()
    return Outcome(new, effects, considered, row, moment.ignored)
