"""Jobs that Volcano places, with the stand-in for it (e2e.volcano): each fault ends as under Kubernetes' own scheduler.

The other scenarios play with it, too: `SCHEDULER=volcano`. With `HAJOB_VOLCANO` it is Volcano itself.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable

import pytest

from e2e.harness.account import recovery
from e2e.harness.job import IMPATIENT, Job
from e2e.harness.marks import only_e2e
from e2e.harness.rig import Rig, RigLayout
from e2e.scenarios.nodes_taken import DRAIN, pod_of, take
from e2e.scenarios.proofs import assert_recovered, assert_weights_equal
from e2e.trainer import proof
from e2e.volcano.install import REAL_ONE, make_queue
from e2e.volcano.scheduler import API
from hajob.api.constants import LABEL_NODE_SUPER_POD

STEPS = 300
MOST_WRITES = 12
Start = Callable[[RigLayout], Rig]


@pytest.fixture
def rig(start_rig: Start) -> Rig:
    return start_rig(RigLayout(chip_nodes=6, volcano=True))


def group_of(job: Job) -> dict[str, object]:
    """The PodGroup of the job's ranks; empty while there is none."""
    found = job.plane.api.items(f"{API}/namespaces/{job.namespace}/podgroups")
    wanted = {"training.hajob.io/role": "rank", "training.hajob.io/job-name": job.name}
    return next((each for each in found if wanted.items() <= each["metadata"]["labels"].items()), {})


def test_a_dead_node_is_replaced_with_few_writes(rig: Rig) -> None:
    """The old pod ends never, and holds nobody."""
    job = rig.submit(iterations=STEPS)
    job.wait_step(10)
    node = job.node_of(0)
    fault = rig.nodes.control.power_off(node)
    assert job.wait_incident(2)["action"] == "Replace"
    rig.plane.wait(
        "the first step of all ranks",
        lambda: any(each.end_ns > fault["time"] for each in proof.outages(job.events(), job.world())),
    )
    found = recovery(rig, job, f"{node} powered off", fault["time"], incarnation=2, lost_ranks=[0, 1])
    assert found.broken_promises == []
    assert found.write_count <= MOST_WRITES, found.writes
    assert job.node_of(0) != node
    assert_recovered(job, [0, 1], STEPS)
    rig.plane.wait("the PodGroup of a complete job to be gone", lambda: not group_of(job))


def test_pods_that_others_delete_are_replaced_at_once(rig: Rig) -> None:
    """Two in turn: a deletion that Hajob has not made, and an eviction."""
    job = rig.submit(iterations=STEPS)
    job.wait_step(10)
    rig.plane.kubectl("--namespace", job.namespace, "delete", "pod", pod_of(job, 3), "--wait=false")
    assert job.wait_incident(2)["action"] == "Replace"
    job.wait_step(job.common_step() + 10)
    rig.plane.kubectl("drain", job.node_of(1), *DRAIN[1:])
    assert job.wait_incident(3)["action"] in {"Migrate", "Replace"}
    assert_weights_equal(job, STEPS)


@only_e2e
def test_two_nodes_at_once_under_volcano(rig: Rig) -> None:
    job = rig.submit(iterations=STEPS)
    job.wait_step(5)
    for node_rank in (0, 1):
        rig.nodes.control.power_off(job.node_of(node_rank))
    assert job.wait_incident(2)["action"] == "Replace"
    assert_recovered(job, [0, 1, 2, 3], STEPS)


@pytest.mark.slow
def test_a_job_shrinks_and_grows_under_volcano(start_rig: Start) -> None:
    """Only `minMember` changes, so that it is whole again as soon as the node is."""
    rig = start_rig(RigLayout(chip_nodes=4, volcano=True))
    spec = {"recovery": {**IMPATIENT["recovery"], "cordonPolicy": "Ignore"}, "elastic": IMPATIENT["elastic"]}
    job = rig.submit(iterations=STEPS, step_milliseconds=200.0, spec=spec, arguments=["--enable-elastic-training"])
    job.wait_step(10)
    node, whole = job.node_of(2), group_of(job)
    rig.plane.kubectl("cordon", node)
    rig.plane.kubectl("--namespace", job.namespace, "delete", "pod", pod_of(job, 2), "--wait=false")
    assert job.wait_incident(2)["action"] == "Shrink"
    rig.plane.wait("fewer members", lambda: group_of(job)["spec"]["minMember"] == 3)  # type: ignore[index]
    assert group_of(job)["spec"] == {**whole["spec"], "minMember": 3}  # type: ignore[dict-item]
    rig.plane.kubectl("uncordon", node)
    rig.plane.wait("the original size", lambda: job.status()["dataParallel"]["current"] == 4, seconds=150)
    assert group_of(job)["spec"] == whole["spec"]
    assert_weights_equal(job, STEPS)


@pytest.mark.slow
def test_a_restart_with_fewer_nodes_under_volcano(start_rig: Start) -> None:
    """Fewer members are placed together, and after the save that ends the smaller attempt all of them."""
    rig = start_rig(RigLayout(chip_nodes=4, volcano=True))
    off = [{"name": name, "maxCount": 0} for name in ("Retry", "InPlace", "Replace", "Shrink")]
    recovery = {**IMPATIENT["recovery"], "cordonPolicy": "Ignore", "actions": off}
    job = rig.submit(
        iterations=STEPS,
        step_milliseconds=200.0,
        spec={"recovery": recovery, "elastic": {**IMPATIENT["elastic"], "restartSize": "Available"}},
        arguments=["--global-batch-size", "32"],
    )
    job.wait_step(10)
    taken = take(rig, job, 3)
    rig.plane.wait("fewer nodes", lambda: job.status()["dataParallel"]["current"] < 4, seconds=150)
    size = job.status()["dataParallel"]["current"]
    rig.plane.wait("fewer members", lambda: group_of(job)["spec"]["minMember"] == size)  # type: ignore[index]
    before = job.status()["progress"]["step"]
    rig.plane.wait("steps of fewer ranks", lambda: job.status()["progress"]["step"] > before + 10)
    rig.plane.kubectl("uncordon", taken)
    rig.plane.wait("the original size", lambda: job.status()["dataParallel"]["current"] == 4, seconds=150)
    rig.plane.wait("all members", lambda: group_of(job)["spec"]["minMember"] == 4)  # type: ignore[index]
    assert_weights_equal(job, STEPS)


@only_e2e
def test_suspended_resumed_and_applied_again(rig: Rig) -> None:
    job = rig.submit(iterations=STEPS)
    job.wait_step(10)
    job.patch({"spec": {"suspend": True}})
    rig.plane.wait("no pods", lambda: not job.pods())
    rig.plane.wait("no PodGroup", lambda: not group_of(job))
    job.patch({"spec": {"suspend": False}})
    job.wait_step(job.common_step() + 5)
    job.delete()
    again = rig.submit(iterations=STEPS)
    again.wait_condition("Running")


def test_what_a_job_waits_for_is_told_with_its_queue(rig: Rig) -> None:
    """A queue that is not there, then one that is full."""
    queue = f"q-{secrets.token_hex(3)}"
    job = rig.submit(iterations=STEPS, spec={"scheduling": {"queueName": queue}})

    def told(words: str) -> None:
        def is_told() -> bool:
            return words in str(job.condition("Scheduled").get("message"))

        rig.plane.wait(words, is_told)

    told(f"queue {queue} of Volcano: there is no such queue")
    make_queue(rig.plane, queue, {"huawei.com/Ascend910": "4"})
    told(f"queue {queue} of Volcano is full: it may have 4 huawei.com/Ascend910 and has 0; needed: 8")
    make_queue(rig.plane, queue)
    began = time.monotonic()
    job.wait_step(5)
    assert time.monotonic() - began < 60


def test_two_jobs_in_one_queue_take_turns(start_rig: Start) -> None:
    """The one that waits names the queue's limit, and starts as soon as the other is suspended."""
    rig = start_rig(RigLayout(chip_nodes=8, volcano=True))
    queue = f"q-{secrets.token_hex(3)}"
    make_queue(rig.plane, queue, {"huawei.com/Ascend910": "12"})
    spec = {"scheduling": {"queueName": queue}}
    first, second = (rig.submit(name, iterations=STEPS, spec=spec) for name in ("first", "second"))
    rig.plane.wait("one to train", lambda: any(one.common_step() >= 5 for one in (first, second)))
    trains, waits = (first, second) if first.common_step() else (second, first)
    full = f"queue {queue} of Volcano is full: it may have 12 huawei.com/Ascend910 and has 8; needed: 8"
    rig.plane.wait(full, lambda: full in str(waits.condition("Scheduled").get("message")))
    trains.patch({"spec": {"suspend": True}})
    waits.wait_step(5)
    rig.plane.wait("no PodGroup of the suspended job", lambda: not group_of(trains))


@pytest.mark.slow
def test_a_replacement_stays_in_the_super_pod_of_its_block(rig: Rig) -> None:
    """Two super pods of three nodes; to Volcano the free node of the other one is as good."""
    if os.environ.get(REAL_ONE):
        pytest.skip("the real plugin reads super pods off the device info, where process nodes have none")
    nodes = [node.name for node in rig.nodes.settings.nodes if node.chips]
    for number, name in enumerate(nodes):
        rig.plane.kubectl("label", "node", name, f"{LABEL_NODE_SUPER_POD}={number // 3}")
    accelerator = {"product": "A3", "chipsPerNode": 2, "superPodChips": 4}
    job = rig.submit(iterations=STEPS, spec={"accelerator": accelerator})
    job.wait_step(10)

    def super_pods() -> list[int]:
        return [nodes.index(job.node_of(node_rank)) // 3 for node_rank in range(4)]

    placed = super_pods()
    assert placed[0] == placed[1] != placed[2] == placed[3], "each block is in a super pod"
    annotations = group_of(job)["metadata"]["annotations"]  # type: ignore[index]
    assert annotations == {"huawei.com/schedule_policy": "chip2-node16"}, "blocks are asked for once"
    rig.nodes.control.power_off(job.node_of(3))
    assert job.wait_incident(2)["action"] == "Replace"
    assert super_pods() == placed
    assert_recovered(job, [6, 7], STEPS)
