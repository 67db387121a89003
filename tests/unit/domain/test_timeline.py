"""The phases of an incident add up to its outage, whatever came when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hajob.domain.timeline import Moment, Phase, outage_milliseconds, phases


def test_the_usual_order() -> None:
    moments = {
        Moment.STEP_BEFORE: 1000,
        Moment.NOTICED: 1040,
        Moment.STOPPED: 1042,
        Moment.DECIDED: 1050,
        Moment.READY: 1400,
        Moment.NAMED: 1402,
        Moment.RESUMED: 1600,
    }
    assert phases(moments) == [
        Phase("Detection", 40),
        Phase("Stop", 2),
        Phase("Decision", 8),
        Phase("StartUp", 350),
        Phase("Naming", 2),
        Phase("Recovery", 198),
    ]
    assert outage_milliseconds(moments) == 600


def test_a_moment_before_its_predecessor_costs_nothing() -> None:
    moments = {Moment.NOTICED: 10, Moment.STOPPED: 30, Moment.DECIDED: 20, Moment.RESUMED: 40}
    assert [phase.milliseconds for phase in phases(moments)] == [20, 0, 10]


def test_an_incident_that_is_still_open_has_the_phases_that_are_over() -> None:
    moments = {Moment.NOTICED: 10, Moment.STOPPED: 30, Moment.DECIDED: 35, Moment.READY: 90}
    assert phases(moments) == [Phase("Stop", 20), Phase("Decision", 5), Phase("StartUp", 55)]


def test_a_moment_after_the_end_belongs_to_no_phase() -> None:
    """A replacement that reports late, when the others train already."""
    moments = {Moment.NOTICED: 10, Moment.READY: 90, Moment.RESUMED: 40}
    assert phases(moments) == [Phase("StartUp", 30), Phase("Recovery", 0)]


def test_an_outage_before_the_first_step_begins_when_it_is_noticed() -> None:
    assert outage_milliseconds({Moment.NOTICED: 40, Moment.RESUMED: 100}) == 60
    assert outage_milliseconds({Moment.STEP_BEFORE: 10, Moment.NOTICED: 40, Moment.RESUMED: 100}) == 90
    assert outage_milliseconds({Moment.NOTICED: 40, Moment.RESUMED: 39}) == 0


def test_nothing_known() -> None:
    assert phases({}) == []
    assert outage_milliseconds({Moment.RESUMED: 5}) is None
    assert outage_milliseconds({Moment.NOTICED: 5}) is None


@given(st.dictionaries(st.sampled_from(list(Moment)), st.integers(0, 10**6)))
def test_phases_add_up_to_the_outage(moments: dict[Moment, int]) -> None:
    outage = outage_milliseconds(moments)
    begin = moments.get(Moment.STEP_BEFORE, moments.get(Moment.NOTICED))
    if (
        outage is None
        or begin is None
        or next(m for m in Moment if m in moments)
        != (Moment.STEP_BEFORE if Moment.STEP_BEFORE in moments else Moment.NOTICED)
    ):
        return
    assert all(phase.milliseconds >= 0 for phase in phases(moments))
    assert sum(phase.milliseconds for phase in phases(moments)) == outage
