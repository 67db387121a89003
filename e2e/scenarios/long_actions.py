"""A training in which an action takes long enough to lose something in the middle of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from e2e.harness.job import Job
from e2e.harness.rig import Rig
from e2e.scenarios.proofs import assert_weights_equal
from e2e.scenarios.repairs_in_place import PATIENCE
from e2e.trainer import faults
from e2e.trainer.store_wire import NEW, VARIABLE, Version

STEPS = 600
STEP_MILLISECONDS = 200.0
PATCH = ("patch", "hajob", "--type=merge", "--namespace")
NOW = "2026-11-23T10:00:00Z"


def training(rig: Rig, spec: Mapping[str, object] | None = None, torch: Version = NEW) -> Job:
    """Submit a job that may shrink, and wait until it trains, protected."""
    job = rig.submit(
        iterations=STEPS,
        step_milliseconds=STEP_MILLISECONDS,
        environment={VARIABLE: torch.name},
        spec=spec or {},
        arguments=["--enable-elastic-training"],
    )
    job.wait_step(5)
    job.wait_condition("CoordinatorReady")
    return job


def slow_down(rig: Rig, job: Job, rank: int, handler: str) -> Callable[[], object]:
    """Have a rank take its time in a handler; call what is returned to wait until it stands there."""
    fault = f"rank={rank} at={handler} do=slow seconds=3.{len(handler)}{rank}"
    faults.order(job.logs, fault)
    job.wait_step(job.common_step() + 3)
    mark = faults.Fault.parse(fault).mark(job.logs, rank)
    return lambda: rig.plane.wait(f"rank {rank} to be in {handler}", mark.exists, PATIENCE)


def assert_none_restarted(job: Job) -> None:
    """Check that nothing was restarted and that the weights are those of an undisturbed training."""
    assert job.status()["restarts"] == {"infrastructure": 0, "program": 0}, job.incidents()
    assert_weights_equal(job, STEPS)
