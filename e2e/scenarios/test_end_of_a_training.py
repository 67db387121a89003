"""After the last step processes may crash and containers never end, and nothing starts again."""

from __future__ import annotations

from e2e.harness.images import TRAINER_IMAGE
from e2e.harness.job import manifest
from e2e.harness.rig import RIG_LABEL, Rig

SIDECAR = {"name": "exporter", "image": TRAINER_IMAGE, "command": ["sleep", "infinity"]}


def test_crashes_after_the_final_checkpoint_restart_nothing(rig: Rig) -> None:
    """Every rank gets SIGSEGV in a destructor; the job is complete, restarts nothing, and gives its chips back."""
    volume = rig.directory / "volumes" / "crashing"
    content = manifest(
        "crashing",
        rig.namespace,
        volume,
        tensor=1,
        nodes=2,
        chips=1,
        iterations=20,
        arguments=["--save-interval", "7", "--fault", "at=end do=crash"],
        node_selector={RIG_LABEL: rig.name},
    )
    content["spec"]["template"]["spec"]["containers"].append(SIDECAR)
    job = rig.apply(content, volume)
    job.hurry()
    job.wait_condition("Complete", seconds=180)
    assert job.status().get("restarts", {}) in ({}, {"infrastructure": 0, "program": 0})
    assert all(each["outcome"] == "Recovered" for each in job.incidents())
    job.plane.wait(
        "the end of the pods", lambda: {pod["status"]["phase"] for pod in job.pods("rank")} == {"Failed"}, 120
    )
    assert len(job.pods("rank")) == 2, "they stay, for their logs"
