"""Which pods of a complete job are ended for their chips."""

from dataclasses import replace
from typing import Any

from hajob.job.policies.finished_pods import want_finished_pods
from hajob.job.wants import Wants
from hajob.plan.state import Ending, JobPhase
from tests.rigs.snapshots import RUNNING, rank, snapshot

COMPLETE = replace(RUNNING, phase=JobPhase.COMPLETE, ending=Ending(0, saved=True, over=(0, 1)))


def ended_with(**changes: Any) -> list[str]:
    made = snapshot(state=COMPLETE, pods=[rank(0, **changes), rank(1)])
    return [change.name for change in want_finished_pods(made).changes]


def test_a_script_that_goes_on_after_its_ranks_is_left_alone() -> None:
    assert ended_with() == []


def test_a_second_container_does_not_hold_the_chips() -> None:
    assert ended_with(exit_code=0) == ["job-0"]


def test_a_script_whose_ranks_died_after_the_end_is_ended() -> None:
    made = snapshot(state=replace(COMPLETE, ending=Ending(0, saved=True, over=(1,))), pods=[rank(0), rank(1)])
    (change,) = want_finished_pods(made).changes
    assert (change.name, change.follows_status) == ("job-0", True)


def test_pods_that_are_over_or_going_are_left() -> None:
    assert ended_with(exit_code=0, deleting=True) == ended_with(exit_code=0, phase="Succeeded") == []


def test_a_job_that_trains_ends_no_pod() -> None:
    assert want_finished_pods(snapshot(pods=[rank(0, exit_code=0)])) == Wants()
