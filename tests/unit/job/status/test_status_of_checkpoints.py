"""What condition Running says about checkpoints while a job starts anew."""

from __future__ import annotations

from pathlib import Path

import yaml

from hajob.api.job import HATrainingJob
from hajob.domain.actions import Action
from hajob.domain.checkpoints import CheckpointRefusal
from hajob.domain.facts import Origin
from hajob.domain.incidents import Cause, Incident, Purpose
from hajob.job.status.build import CoordinatorView, Snapshot, build_status
from hajob.job.status.incidents import Loaded, Record, Restoration
from hajob.plan.state import JobPhase, JobState

EXAMPLE = Path(__file__).parents[4] / "examples" / "quickstart.yaml"
RESTART = Incident(2, 3, 1, Purpose.FAULT, Origin.INFRASTRUCTURE, Action.RESTART, Cause(step=47), 0)
REFUSED = Loaded(20, (CheckpointRefusal("iter_0000040", "TruncatedFile", "mp_rank_01"),), 1)


def running(phase: JobPhase, coordinator: CoordinatorView | None = None) -> str:
    """The message of condition Running."""
    job = HATrainingJob.model_validate(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8")))
    snapshot = Snapshot(
        job,
        JobState(phase=phase, incident=RESTART),
        1,
        1_000,
        coordinator=coordinator or CoordinatorView(connected=True, serving=True),
        record=Record(RESTART, restoration=Restoration().with_loaded(REFUSED)),
    )
    return next(each for each in build_status(snapshot).conditions if each.type == "Running").message


def test_a_refusal_is_said_while_the_ranks_start() -> None:
    words = "resumes from step 20; refused: iter_0000040 (TruncatedFile: mp_rank_01)"
    assert words in running(JobPhase.RESTARTING)
    assert words in running(JobPhase.WARMING)
    assert "iter_0000040" not in running(JobPhase.RUNNING)


def test_a_start_that_waits_for_the_checkpoints_says_why() -> None:
    waiting = CoordinatorView(connected=True, serving=True, problem="the checkpoints at /ckpt cannot be verified")
    assert "cannot be verified" in running(JobPhase.RESTARTING, waiting)
