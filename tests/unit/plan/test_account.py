"""Which bucket a job's time goes into, and that a whole life adds up to wall time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from hajob.domain.facts import Fact, FactKind
from hajob.domain.goodput import Account, Bucket
from hajob.domain.layout import Layout
from hajob.domain.timeline import Mark
from hajob.plan import events as e
from hajob.plan.account import bucket_of, follow_account
from hajob.plan.state import ENDED, JobPhase, JobState, Shrunk
from tests.rigs.plan_rig import Rig
from tests.rigs.plan_worlds import LAYOUT, VIEW


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
        (JobPhase.PAUSED, Bucket.PAUSED),
        (JobPhase.SAVING, Bucket.CHECKPOINTING),
        (JobPhase.RESTARTING, Bucket.SCHEDULING),
        (JobPhase.SUSPENDED, Bucket.SUSPENDED),
        *((phase, None) for phase in sorted(ENDED)),
    ],
)
def test_bucket_of_every_state(phase: JobPhase, bucket: Bucket | None) -> None:
    assert bucket_of(JobState(phase=phase)) is bucket


def test_a_pod_without_a_node_waits_for_capacity() -> None:
    rig = Rig.running()
    rig.silent(2)
    assert bucket_of(rig.state, unplaced=1) is Bucket.WAITING
    assert bucket_of(rig.state) is Bucket.RECOVERY
    assert bucket_of(JobState(phase=JobPhase.PENDING), unplaced=1) is Bucket.WAITING
    assert bucket_of(JobState(phase=JobPhase.RUNNING), unplaced=1) is Bucket.TRAINING


@dataclass
class Life:
    """A job, and the account of its time as the operator keeps it; times in seconds."""

    rig: Rig = field(default_factory=lambda: Rig(JobState(), now=0))
    account: Account = field(default_factory=lambda: Account(0))
    marks: dict[Mark, int] = field(default_factory=dict)

    def at(self, second: float, event: e.JobEvent | None = None, *, step: int = -1, unplaced: int = 0) -> None:
        """An event, and what a look at the cluster says."""
        now = round(1000 * second)
        self.rig.view = replace(self.rig.view, step=step, unplaced=unplaced)
        if event is not None:
            self.rig.tell(event, now)
        self.account = follow_account(self.account, self.rig.state, self.rig.view, self.marks, now)

    def fault(self, second: float, fact: Fact, *, step: int) -> None:
        """A fact, at the time at which it happened."""
        self.marks = {Mark.NOTICED: round(1000 * second)}
        self.at(second, e.FactSeen(fact=replace(fact, time_ms=round(1000 * second))), step=step)

    def seconds(self) -> dict[str, float]:
        """What was booked."""
        assert self.account.total_ms == self.account.since_ms
        return {bucket.value: amount / 1000 for bucket, amount in sorted(self.account.booked.items()) if amount}


def started() -> Life:
    life = Life()
    life.at(0, e.Accepted())
    life.at(2, unplaced=2)
    life.at(5)
    life.at(6, e.PodsReady())
    life.at(8, e.AllRanksStarted(attempt=1))
    life.at(10, e.Resumed(1, 1), step=1)
    return life


def test_a_start_books_scheduling_waiting_and_start_up() -> None:
    assert started().seconds() == {"Scheduling": 3, "StartUp": 4, "WaitingForCapacity": 3}


def test_an_outage_books_detection_waiting_and_recovery() -> None:
    life = started()
    life.at(40, step=30)
    life.fault(43, Fact("a", FactKind.AGENT_SILENT, node_rank=2, incarnation=1), step=30)
    life.at(45, unplaced=1, step=30)
    life.at(52, step=30)
    life.at(54, e.Named(2, 1), step=30)
    life.marks[Mark.STEP_BEFORE] = 39_500
    life.at(55, e.Resumed(2, 31), step=31)
    life.at(60, e.ResultReported(2, 0), step=36)
    assert life.seconds() == {
        "Detection": 3.5,
        "Recovery": 5,
        "Scheduling": 3,
        "StartUp": 4,
        "Training": 29.5 + 5,
        "WaitingForCapacity": 3 + 7,
    }
    assert life.account.percent_training == 57


def test_steps_that_are_done_again_are_no_training() -> None:
    life = started()
    life.at(40, step=30)
    life.at(41, e.RestartRequested(), step=30)
    life.at(42, e.ResultReported(2, 499), step=30)
    life.at(50, e.PodsReady())
    life.at(52, e.AllRanksStarted(attempt=2))
    life.at(55, e.Resumed(3, 11), step=11)
    life.at(60, step=16)
    life.at(61)
    life.at(74, step=29)
    life.at(75, step=30)
    life.at(80, step=35)
    assert life.rig.at(JobPhase.RUNNING)
    assert life.seconds() == {
        "Checkpointing": 1,
        "LostSteps": 20,
        "Scheduling": 3 + 8,
        "StartUp": 4 + 5,
        "Training": 31 + 5,
        "WaitingForCapacity": 3,
    }


def test_an_outage_among_repeated_steps_takes_its_time_from_them() -> None:
    life = started()
    life.account = replace(life.account, furthest_step=100)
    life.at(10, step=1)
    life.at(20, step=10)
    life.fault(24, Fact("a", FactKind.PROCESS_EXITED, ranks=(5,), incarnation=1), step=10)
    life.marks[Mark.STEP_BEFORE] = 21_000
    life.at(25, e.Named(2, 1), step=10)
    life.at(25.5, step=10)
    life.at(26, e.Resumed(2, 11), step=11)
    booked = life.seconds()
    assert (booked["LostSteps"], booked["Detection"], booked["Recovery"]) == (11, 3, 2)
    assert "Training" not in booked


def test_a_shrink_counts_once_it_trains() -> None:
    def missing(phase: JobPhase, layout: Layout = LAYOUT) -> int:
        state = JobState(phase=phase, shrunk=Shrunk(dropped=(1, 2)))
        return follow_account(Account(0), state, replace(VIEW, layout=layout), {}, 0).missing

    assert (missing(JobPhase.SHRINKING), missing(JobPhase.SHRUNK)) == (0, 2)
    assert missing(JobPhase.SHRUNK, Layout(num_nodes=2, chips_per_node=2, tensor=2)) == 1


def test_a_shrunk_training_books_what_is_missing() -> None:
    life = started()
    life.rig.view = replace(VIEW, free_nodes=0)
    life.fault(20, Fact("a", FactKind.AGENT_SILENT, node_rank=2, incarnation=1), step=9)
    life.at(290, e.DeadlineReached(name="Recovery"), step=9)
    life.at(291, e.Resumed(2, 10), step=10)
    life.at(331, step=50)
    assert life.rig.at(JobPhase.SHRUNK)
    booked = life.seconds()
    assert (booked["Training"], booked["DegradedByShrink"], booked["Recovery"]) == (10 + 30, 10, 271)
