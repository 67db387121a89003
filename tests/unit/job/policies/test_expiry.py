"""When a job that has ended is deleted."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf

from hajob.api import constants as names
from hajob.job.policies.expiry import want_expiry
from hajob.job.wants import Delete, Wants
from hajob.plan.state import JobPhase
from tests.rigs.snapshots import NOW, RUNNING, snapshot

ENDED = replace(RUNNING, phase=JobPhase.COMPLETE)
WALL_SECONDS = 1_795_255_200.0


def ended_for(seconds: float) -> datetime:
    return datetime.fromtimestamp(WALL_SECONDS, UTC) - timedelta(seconds=seconds)


def test_a_job_is_deleted_when_its_time_is_up() -> None:
    made = snapshot({"ttlSecondsAfterFinished": 60}, state=ENDED, answers={"completed": ended_for(60)})
    (deletion,) = want_expiry(made).changes
    assert isinstance(deletion, Delete)
    assert (deletion.resource, deletion.name, deletion.uid) == (names.PLURAL, "quickstart", made.job.metadata.uid)
    assert deletion.follows_status, "its end is on record before it goes"


def test_a_job_whose_time_is_not_up_is_looked_at_then() -> None:
    made = snapshot({"ttlSecondsAfterFinished": 60}, state=ENDED, answers={"completed": ended_for(20)})
    assert want_expiry(made) == Wants(again_at=NOW + 40)


def test_an_end_that_is_not_in_the_status_yet_is_looked_at_soon() -> None:
    wants = want_expiry(snapshot({"ttlSecondsAfterFinished": 0}, state=ENDED))
    assert not wants.changes
    assert NOW < wants.again_at < inf


def test_jobs_without_a_limit_or_an_end_stay() -> None:
    assert want_expiry(snapshot(state=ENDED, answers={"completed": ended_for(1e6)})) == Wants()
    assert want_expiry(snapshot({"ttlSecondsAfterFinished": 0}, answers={"completed": ended_for(10)})) == Wants()
