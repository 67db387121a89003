"""A start may take as long as it goes on; one that stands still is given up after startupDeadlineSeconds."""

from __future__ import annotations

from dataclasses import replace

from hajob.plan import effects as do
from hajob.plan import events as e
from hajob.plan.policy import Policy
from hajob.plan.state import Deadline, JobPhase
from tests.rigs.plan_moments import starting
from tests.rigs.plan_rig import Rig

MINUTE = 60_000
LIMIT = 10 * MINUTE


def compiling(rig: Rig, minutes: int, *, began: int) -> None:
    """Time passes, and something is computed every minute until `minutes` after `began`."""
    end = began + minutes * MINUTE
    while rig.now < end + LIMIT and rig.state.phase is not JobPhase.FAILED:
        rig.now += MINUTE
        rig.view = replace(rig.view, start_sign_ms=min(rig.now, end))
        due = rig.state.deadlines[Deadline.STARTUP]
        if rig.now >= due:
            rig.now -= 1  # the rig's clock is one further with every event
            rig.deadline("Startup")


def test_a_first_step_of_forty_minutes_is_a_start() -> None:
    rig = starting(startup_deadline_seconds=600)
    began = rig.now
    compiling(rig, 40, began=began)
    assert 49 * MINUTE <= rig.now - began <= 51 * MINUTE, "ten minutes after its last sign"
    assert rig.state.phase is JobPhase.FAILED


def test_a_start_that_stands_still_is_found_after_ten_minutes() -> None:
    rig = starting(startup_deadline_seconds=600)
    began = rig.now
    compiling(rig, 0, began=began)
    assert rig.now - began <= 11 * MINUTE
    assert rig.transition is not None
    assert do.FailJob("StartupDeadlineExceeded", "startupDeadlineSeconds are over") in rig.transition.effects


def test_without_signs_the_deadline_counts_from_the_start() -> None:
    rig = starting(startup_deadline_seconds=600)
    assert rig.view.start_sign_ms is None
    rig.deadline("Startup")
    assert rig.state.phase is JobPhase.FAILED
    assert Policy().startup_deadline_seconds == 1800


def test_an_edited_deadline_counts_for_the_start_under_way() -> None:
    rig = starting(startup_deadline_seconds=600)
    due = rig.state.deadlines[Deadline.STARTUP]
    rig.policy = replace(rig.policy, startup_deadline_seconds=3600)
    rig.tell(e.PolicyChanged())
    assert rig.state.deadlines[Deadline.STARTUP] == due + 50 * MINUTE
    rig.policy = replace(rig.policy, startup_deadline_seconds=60)
    rig.tell(e.PolicyChanged())
    assert rig.state.deadlines[Deadline.STARTUP] == due - 9 * MINUTE


def test_an_edited_deadline_counts_for_a_start_that_waits() -> None:
    rig = starting(startup_deadline_seconds=600)
    due = rig.state.deadlines[Deadline.STARTUP]
    rig.tell(e.PlacesMissing(message="no node"))
    waits = rig.now
    rig.policy = replace(rig.policy, startup_deadline_seconds=3600)
    rig.tell(e.PolicyChanged())
    rig.tell(e.PlacesFound())
    assert rig.state.deadlines[Deadline.STARTUP] == due + 50 * MINUTE + rig.now - waits
