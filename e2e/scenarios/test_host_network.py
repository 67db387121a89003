"""Jobs in the network of their nodes: side by side with ports of their own, and repaired as elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from e2e.harness.controllers import coordinator_node
from e2e.harness.job import Job, manifest
from e2e.harness.marks import only_e2e
from e2e.harness.rig import RIG_LABEL, Rig, RigLayout
from e2e.scenarios.proofs import assert_recovered, assert_weights_equal
from e2e.trainer import proof
from hajob.api.constants import LABEL_NODE_RANK

ITERATIONS = 300
NODES = 2
OTHER_PORTS = {"agentPort": 7181, "coordinatorPort": 7180, "mindIOPort": 7182, "rendezvousPort": 7184}
MINDSPORE: dict[str, Any] = {"script": "train_msrun.sh", "framework": "MindSpore", "optimizer": {"sharding": "None"}}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]


def train(
    rig: Rig,
    name: str,
    *,
    script: str = "train.sh",
    **spec: Any,  # noqa: ANN401 - fields of a spec
) -> Job:
    """A job in the network of its nodes, applied."""
    volume = rig.directory / "volumes" / name
    selector = {RIG_LABEL: rig.name}
    content = manifest(
        name,
        rig.namespace,
        volume,
        nodes=NODES,
        iterations=ITERATIONS,
        node_selector=selector,
        spec=spec,
        script=script,
    )
    content["spec"]["template"]["spec"]["hostNetwork"] = True
    return rig.apply(content, volume)


def kill(rig: Rig, job: Job, rank: int) -> None:
    """End a rank's process."""
    wanted = str(rank // 2)
    (pod,) = [pod for pod in job.pods("rank") if pod["metadata"]["labels"][LABEL_NODE_RANK] == wanted]
    rig.nodes.control.kill(namespace=rig.namespace, pod=pod["metadata"]["name"], rank=rank)


def test_jobs_with_ports_of_their_own_share_a_node(start_rig: Callable[[RigLayout], Rig]) -> None:
    """The coordinators of both stand on the only node without chips, where MindSpore's workers find their scheduler."""
    rig = start_rig(RigLayout(chip_nodes=2 * NODES + 1))
    usual, other = train(rig, "usual", **MINDSPORE), train(rig, "other", network={"interface": "lo", **OTHER_PORTS})
    for job in (usual, other):
        job.wait_step(10)
    assert coordinator_node(usual) == coordinator_node(other) == f"{rig.name}-cpu"
    assert len({job.pods("coordinator")[0]["status"]["podIP"] for job in (usual, other)}) == 1
    for job in (usual, other):
        kill(rig, job, 3)
        assert job.wait_incident(2)["action"] == "InPlace"
    other.wait_step(other.common_step() + 5)
    rig.nodes.control.power_off(other.node_of(0))
    incident = other.wait_incident(3)
    assert (incident["action"], incident["lostSteps"]) == ("Replace", 0)
    assert_weights_equal(usual, ITERATIONS)
    assert proof.survivors_kept(usual.events(), {3}) == []
    assert_recovered(other, [0, 1, 3], ITERATIONS)


@only_e2e
def test_a_coordinator_beside_its_own_ranks_serves_them(start_rig: Callable[[RigLayout], Rig]) -> None:
    """No other node is free."""
    rig = start_rig(RigLayout(chip_nodes=NODES))
    rig.plane.kubectl("cordon", f"{rig.name}-cpu")
    job = train(rig, "job")
    job.wait_step(10)
    assert coordinator_node(job) in {job.node_of(rank) for rank in range(NODES)}
    assert job.condition("CoordinatorReady")["reason"] == "SharesNode"
    kill(rig, job, 3)
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("InPlace", 0)
    assert_recovered(job, [3], ITERATIONS)
