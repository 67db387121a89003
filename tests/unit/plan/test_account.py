"""Which bucket a job's time goes into, and that a whole life adds up to wall time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.domain.goodput import Account, Bucket
from hajob.plan import events as e
from hajob.plan.account import bucket_of, follow
from hajob.plan.state import ENDED, JobPhase, JobState, Shrunk
from tests.unit.plan.plan_rig import Rig
from tests.unit.plan.plan_worlds import VIEW


@pytest.mark.parametrize(
    ("phase", "bucket"),
    [
        (JobPhase.NEW, Bucket.SCHEDULING),
        (JobPhase.PENDING, Bucket.SCHEDULING),
        (JobPhase.STARTING, Bucket.START_UP),
        (JobPhase.WARMING, Bucket.START_UP),
        (JobPhase.RUNNING, Bucket.TRAINING),
        (JobPhase.UNPROTECTED, Bucket.TRAINING),
        (JobPhase.CONFIRMING, Bucket.TRAINING),
        (JobPhase.SHRUNK, Bucket.TRAINING),
        (JobPhase.EXPANDING, Bucket.TRAINING),
        (JobPhase.MIGRATING, Bucket.TRAINING),
        (JobPhase.HELD, Bucket.DECISION),
        (JobPhase.GATHERING, Bucket.RECOVERY),
        (JobPhase.RESUMING, Bucket.RECOVERY),
        (JobPhase.SHRINKING, Bucket.RECOVERY),
        (JobPhase.SAVING, Bucket.CHECKPOINTING),
        (JobPhase.RESTARTING, Bucket.SCHEDULING),
        (JobPhase.SUSPENDED, Bucket.SUSPENDED),
        *((phase, None) for phase in sorted(ENDED)),
    ],
)
def test_bucket_of_every_state(phase: JobPhase, bucket: Bucket | None) -> None:
    assert bucket_of(JobState(phase=phase)) is bucket


def test_waiting_for_a_node_is_no_recovery() -> None:
    rig = Rig.running()
    rig.silent(2)
    assert bucket_of(rig.state, free_nodes=0) is Bucket.WAITING
    assert bucket_of(rig.state, free_nodes=1) is Bucket.RECOVERY
    assert bucket_of(rig.state) is Bucket.RECOVERY
    rig.tell(e.ReplacementsReady(2, 1))
    assert bucket_of(rig.state, free_nodes=0) is Bucket.RECOVERY
    rig = Rig.running()
    rig.exits(5)
    assert bucket_of(rig.state, free_nodes=0) is Bucket.RECOVERY


def test_a_life_adds_up() -> None:
    rig = Rig(JobState(), view=replace(VIEW, free_nodes=0), now=0)
    account = Account(0)

    def at(now: int, event: e.JobEvent | None = None) -> Account:
        if event is not None:
            rig.tell(event, now)
        return follow(account, rig.state, 4, now, free_nodes=0)

    account = at(0, e.Accepted())
    account = at(100, e.PodsReady())
    account = at(300, e.AllRanksStarted(attempt=1))
    account = at(600, e.Resumed(1, 1))
    rig.now = 1600
    rig.silent(2)
    account = at(rig.now)
    now = rig.state.deadlines["Recovery"]
    account = at(now, e.DeadlineReached(name="Recovery"))
    account = at(now + 50, e.Resumed(2, 9))
    account = at(now + 450, e.AllFinished())
    account = follow(account, rig.state, 4, now + 10_000)
    waited = now - 1610
    assert account.booked == {
        Bucket.SCHEDULING: 100,
        Bucket.START_UP: 500,
        Bucket.TRAINING: 1010 + 300,
        Bucket.SHRUNK: 100,
        Bucket.WAITING: waited,
        Bucket.RECOVERY: 50,
    }
    assert account.total_ms == now + 450


def test_a_shrink_counts_once_it_trains() -> None:
    state = JobState(phase=JobPhase.SHRINKING, shrunk=Shrunk(dropped=(1, 2)))
    assert follow(Account(0), state, 4, 0).missing == 0
    assert follow(Account(0), replace(state, phase=JobPhase.SHRUNK), 4, 0).missing == 2
    assert follow(Account(0), replace(state, phase=JobPhase.SHRUNK), 2, 0).missing == 1
