"""A repair in place, held in one handler of MindIO's, and what must hold once its controller was lost."""

from __future__ import annotations

from e2e.harness.controllers import coordinator
from e2e.harness.job import Job
from e2e.harness.rig import Rig
from e2e.trainer import faults
from e2e.trainer.store_wire import NEW, VARIABLE, Version

STEPS = 600
STEP_MILLISECONDS = 150
PATIENCE = 150.0
UNLIMITED = [{"name": name, "maxCount": 1000} for name in ("InPlace", "Replace", "Retry")]
HANDLERS = {
    "InPlace": ["stop", "clean", "rebuild", "repair", "rollback"],
    "Retry": ["stop", "clean", "repair", "rollback"],
}


def delete_coordinator_pod(rig: Rig, job: Job) -> None:
    """Delete the coordinator's pod at once: all of it, store included."""
    rig.plane.api.delete(f"/api/v1/namespaces/{rig.namespace}/pods/{coordinator(job)}", gracePeriodSeconds=0)


def training(rig: Rig, steps: int = STEPS, torch: Version = NEW) -> Job:
    """Submit a job and wait until it trains, protected."""
    speech, spec = {VARIABLE: torch.name}, {"recovery": {"actions": UNLIMITED}}
    job = rig.submit(iterations=steps, step_milliseconds=STEP_MILLISECONDS, environment=speech, spec=spec)
    job.wait_step(5)
    job.wait_condition("CoordinatorReady")
    return job


def begin_repair(rig: Rig, job: Job, action: str, handler: str, number: int) -> None:
    """Cause a fault, and have a rank take its time in a handler of its repair; returns when it stands there."""
    lost = 3
    rank = lost if handler in ("repair", "rollback") else 1
    slow = f"rank={rank} at={handler} do=slow seconds=3.{number:03}"
    uce = f"rank={lost} do=raise text=UCE_ERROR_{number}"
    faults.order(job.logs, slow, *([uce] if action == "Retry" else []))
    if action == "InPlace":
        job.wait_step(job.common_step() + 3)
        rig.nodes.control.kill(namespace=rig.namespace, rank=lost)
    mark = faults.Fault.parse(slow).mark(job.logs, rank)
    rig.plane.wait(f"rank {rank} to be in {handler}", mark.exists, PATIENCE)


def assert_protected_again(job: Job, incidents: int, takeovers: int) -> None:
    """Wait until the incident ended well and another controller protects the job; no restart was needed."""
    job.plane.wait("the incident's end", lambda: ended_well(job, incidents), PATIENCE)
    job.plane.wait("the takeover", lambda: job.takeovers() >= takeovers, PATIENCE)
    job.wait_condition("CoordinatorReady")
    assert job.status()["restarts"] == {"infrastructure": 0, "program": 0}, job.incidents()


def ended_well(job: Job, incidents: int) -> bool:
    """Tell whether the newest incident has this number and all recovered; another outcome ends the wait."""
    found = job.incidents()
    outcomes = {incident.get("outcome", "") for incident in found}
    assert "Failed" not in outcomes, found
    newest = max((int(incident["incarnation"]) for incident in found), default=0)
    return newest > incidents and outcomes == {"Recovered"}
