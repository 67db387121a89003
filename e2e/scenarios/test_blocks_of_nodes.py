"""Blocks of nodes in super pods under Kubernetes' own scheduler, which knows nothing of super pods."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.harness.job import Job
from e2e.harness.rig import Rig, RigLayout
from e2e.scenarios.proofs import assert_recovered
from hajob.api.constants import LABEL_NODE_SUPER_POD

STEPS = 300
Start = Callable[[RigLayout], Rig]
BLOCKS = {"accelerator": {"product": "A3", "chipsPerNode": 2, "superPodChips": 4}}


@pytest.fixture
def rig(start_rig: Start) -> Rig:
    """Two super pods of three nodes."""
    rig = start_rig(RigLayout(chip_nodes=6))
    for number, name in enumerate(chip_nodes(rig)):
        rig.plane.kubectl("label", "node", name, f"{LABEL_NODE_SUPER_POD}={number // 3}")
    return rig


def chip_nodes(rig: Rig) -> list[str]:
    return [node.name for node in rig.nodes.settings.nodes if node.chips]


def super_pods(rig: Rig, job: Job) -> list[int]:
    return [chip_nodes(rig).index(job.node_of(node_rank)) // 3 for node_rank in range(4)]


@pytest.mark.slow
def test_blocks_wait_for_room_and_stay_in_their_super_pod(rig: Rig) -> None:
    """Four nodes are free, and only one block of them is in a super pod: nothing starts by halves."""
    for name in chip_nodes(rig)[4:]:
        rig.plane.kubectl("cordon", name)
    job = rig.submit(iterations=STEPS, spec=BLOCKS)
    told = "4 are free, 2 of them in whole blocks of 2 in one super pod"
    rig.plane.wait("why it waits", lambda: told in str(job.condition("Scheduled").get("message")))
    assert not any(pod["spec"].get("nodeName") for pod in job.pods("rank"))
    for name in chip_nodes(rig)[4:]:
        rig.plane.kubectl("uncordon", name)
    job.wait_step(10)
    placed = super_pods(rig, job)
    assert placed[0] == placed[1] != placed[2] == placed[3], "each block is in a super pod"
    rig.nodes.control.power_off(job.node_of(3))
    assert job.wait_incident(2)["action"] == "Replace"
    assert super_pods(rig, job) == placed
    assert_recovered(job, [6, 7], STEPS)
