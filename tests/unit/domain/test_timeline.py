"""The phases of an incident add up to its outage, whatever came when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hajob.domain.timeline import Mark, TimedPhase, outage_milliseconds, phases_of_incident


def test_the_usual_order() -> None:
    moments = {
        Mark.STEP_BEFORE: 1000,
        Mark.NOTICED: 1040,
        Mark.STOPPED: 1042,
        Mark.DECIDED: 1050,
        Mark.READY: 1400,
        Mark.NAMED: 1402,
        Mark.RESUMED: 1600,
    }
    assert phases_of_incident(moments) == [
        TimedPhase("Detection", 40),
        TimedPhase("Stop", 2),
        TimedPhase("Decision", 8),
        TimedPhase("StartUp", 350),
        TimedPhase("Naming", 2),
        TimedPhase("Recovery", 198),
    ]
    assert outage_milliseconds(moments) == 600


def test_a_mark_before_its_predecessor_costs_nothing() -> None:
    moments = {Mark.NOTICED: 10, Mark.STOPPED: 30, Mark.DECIDED: 20, Mark.RESUMED: 40}
    assert [phase.milliseconds for phase in phases_of_incident(moments)] == [20, 0, 10]


def test_an_open_incident_has_the_phases_that_are_over() -> None:
    moments = {Mark.NOTICED: 10, Mark.STOPPED: 30, Mark.DECIDED: 35, Mark.READY: 90}
    assert phases_of_incident(moments) == [TimedPhase("Stop", 20), TimedPhase("Decision", 5), TimedPhase("StartUp", 55)]


def test_a_mark_after_the_end_belongs_to_no_phase() -> None:
    """A replacement that reports late, when the others train already."""
    moments = {Mark.NOTICED: 10, Mark.READY: 90, Mark.RESUMED: 40}
    assert phases_of_incident(moments) == [TimedPhase("StartUp", 30), TimedPhase("Recovery", 0)]


def test_an_outage_before_the_first_step_begins_when_noticed() -> None:
    assert outage_milliseconds({Mark.NOTICED: 40, Mark.RESUMED: 100}) == 60
    assert outage_milliseconds({Mark.STEP_BEFORE: 10, Mark.NOTICED: 40, Mark.RESUMED: 100}) == 90
    assert outage_milliseconds({Mark.NOTICED: 40, Mark.RESUMED: 39}) == 0


def test_nothing_known() -> None:
    assert phases_of_incident({}) == []
    assert outage_milliseconds({Mark.RESUMED: 5}) is None
    assert outage_milliseconds({Mark.NOTICED: 5}) is None


@given(st.dictionaries(st.sampled_from(list(Mark)), st.integers(0, 10**6)))
def test_phases_add_up_to_the_outage(moments: dict[Mark, int]) -> None:
    outage = outage_milliseconds(moments)
    begin = moments.get(Mark.STEP_BEFORE, moments.get(Mark.NOTICED))
    if (
        outage is None
        or begin is None
        or next(m for m in Mark if m in moments) != (Mark.STEP_BEFORE if Mark.STEP_BEFORE in moments else Mark.NOTICED)
    ):
        return
    assert all(phase.milliseconds >= 0 for phase in phases_of_incident(moments))
    assert sum(phase.milliseconds for phase in phases_of_incident(moments)) == outage
