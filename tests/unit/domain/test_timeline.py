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
