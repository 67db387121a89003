"""A node is held ready for the job: what is lost goes there at once, whoever else waits for a node."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.harness.images import TRAINER_IMAGE
from e2e.harness.marks import only_e2e
from e2e.harness.rig import RIG_LABEL, Rig, RigLayout
from e2e.scenarios.proofs import assert_recovered

pytestmark = pytest.mark.slow

ITERATIONS = 300


def wait_in_line(rig: Rig) -> str:
    """A pod of somebody else that wants the chips of a node, and waits for longer than any pod of the job."""
    trainer = {
        "name": "main",
        "image": TRAINER_IMAGE,
        "command": ["sleep", "1000"],
        "resources": {"limits": {"huawei.com/Ascend910": "2"}},
    }
    rig.plane.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "stranger", "namespace": rig.namespace},
            "spec": {"containers": [trainer], "nodeSelector": {RIG_LABEL: rig.name}, "restartPolicy": "Never"},
        }
    )
    path = f"/api/v1/namespaces/{rig.namespace}/pods/stranger"
    rig.plane.wait("the stranger to find no node", lambda: rig.plane.api.get(path)["status"].get("conditions"))
    return path


@only_e2e
def test_a_lost_node_is_replaced_on_the_spare_before_others(start_rig: Callable[[RigLayout], Rig]) -> None:
    rig = start_rig(RigLayout(chip_nodes=5))
    job = rig.submit(iterations=ITERATIONS, step_milliseconds=200.0, spec={"scheduling": {"numSpareNodes": 1}})
    job.wait_condition("SparesReady", seconds=120)
    (spare,) = job.pods("spare")
    stranger = wait_in_line(rig)
    node, held = job.node_of(0), spare["spec"]["nodeName"]
    rig.nodes.control.power_off(node)
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("Replace", 0)
    assert job.node_of(0) == held
    assert rig.plane.api.get(stranger)["spec"].get("nodeName") in {None, node}, "the dead one looks free for a while"
    assert job.condition("SparesReady")["status"] == "False", "nothing is left to hold"
    assert_recovered(job, [0, 1], ITERATIONS)


def test_a_warm_spare_becomes_the_lost_pod(start_rig: Callable[[RigLayout], Rig]) -> None:
    rig = start_rig(RigLayout(chip_nodes=5))
    spec = {"scheduling": {"numSpareNodes": 1, "spareMode": "Warm"}}
    job = rig.submit(iterations=ITERATIONS, step_milliseconds=200.0, spec=spec)
    job.wait_condition("SparesReady", seconds=120)
    (spare,) = job.pods("spare")
    job.wait_step(10)
    rig.nodes.control.power_off(job.node_of(0))
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("Replace", 0)
    assert spare["metadata"]["uid"] in {pod["metadata"]["uid"] for pod in job.pods("rank")}
    assert job.node_of(0) == spare["spec"]["nodeName"]
    assert_recovered(job, [0, 1], ITERATIONS)
