"""Jobs in a queue of Kueue, with the stand-in for it (e2e.kueue); `QUEUE=kueue` has the other scenarios in one, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.harness.marks import only_e2e
from e2e.harness.rig import Rig, RigLayout
from e2e.harness.undisturbed import undisturbed
from e2e.kueue.launch import KueueStandIn
from e2e.scenarios.nodes_taken import pod_of
from e2e.scenarios.queued_jobs import CHIPS_OF_FOUR_NODES, STEPS, assert_no_step_twice, submit, two_priorities
from e2e.volcano.scheduler import API as VOLCANO

Start = Callable[[RigLayout], Rig]


@pytest.fixture
def rig(start_rig: Start) -> Rig:
    return start_rig(RigLayout(chip_nodes=5, queue_chips=CHIPS_OF_FOUR_NODES))


def test_a_preempted_job_resumes_with_equal_weights(rig: Rig, queue: KueueStandIn) -> None:
    """It saves, ends its pods, gives its quota back, and goes on where it stood."""
    first, second = two_priorities(rig, queue)
    low = submit(rig, "low", priority=first)
    low.wait_step(10)
    high = submit(rig, "high", nodes=2, priority=second, iterations=60)
    evicted = low.wait_condition("Suspended")
    assert evicted["reason"] == "Evicted"
    assert "the current step is saved" in evicted["message"]
    high.wait_condition("Running")
    told = low.condition("Scheduled")
    assert (told["status"], told["reason"]) == ("False", "WaitingInQueue")
    assert told["message"].startswith("queue user-queue: ")
    assert low.pods() == []
    stopped = low.common_step()
    high.hurry()
    high.wait_condition("Complete")
    low.wait_step(stopped + 5)
    (incident,) = [each for each in low.incidents() if each["cause"]["code"] == "Evicted"]
    assert incident["outcome"] == "Done"
    low.hurry()
    low.wait_condition("Complete")
    assert low.weights_differ(undisturbed(rig.plane.run, tensor=2, pipeline=1, data=4, iterations=STEPS)) == []
    assert_no_step_twice(low)
    assert low.status()["restarts"] == {"infrastructure": 0, "program": 0}
    rig.plane.wait("both Workloads to be finished", lambda: _finished(queue) == {"low", "high"})


def _finished(queue: KueueStandIn) -> set[str]:
    ended = (
        each
        for each in queue.workloads()
        if any(one["type"] == "Finished" and one["status"] == "True" for one in each["status"]["conditions"])
    )
    return {each["metadata"]["labels"]["training.hajob.io/job-name"] for each in ended}


@pytest.mark.slow
def test_what_trains_trains_on_while_kueue_is_away(rig: Rig, queue: KueueStandIn) -> None:
    """A lost pod is replaced once the webhook answers again; who refused it is said by name."""
    job = submit(rig, "job")
    job.wait_step(10)
    queue.stop()
    rig.plane.kubectl("--namespace", job.namespace, "delete", "pod", pod_of(job, 3), "--wait=false")
    rig.plane.wait(
        "the webhook to be named", lambda: "mpod.kb.io" in job.condition("Scheduled").get("message", ""), seconds=60
    )
    assert job.condition("Scheduled")["reason"] == "PodsNotCreated"
    queue.start()
    assert job.wait_incident(2)["action"] == "Replace"
    job.hurry()
    job.wait_condition("Complete")
    assert job.weights_differ(undisturbed(rig.plane.run, tensor=2, pipeline=1, data=4, iterations=STEPS)) == []


@only_e2e
def test_a_drained_queue_stops_a_job_and_lets_it_go_on(rig: Rig, queue: KueueStandIn) -> None:
    job = submit(rig, "job")
    job.wait_step(10)
    rig.plane.apply(queue.cluster_queue_of(CHIPS_OF_FOUR_NODES, stop="HoldAndDrain"))
    job.wait_condition("Suspended")
    stopped = job.common_step()
    rig.plane.wait("the queue to be named", lambda: "is inactive" in job.condition("Scheduled")["message"])
    rig.plane.apply(queue.cluster_queue_of(CHIPS_OF_FOUR_NODES))
    job.wait_step(stopped + 5)


@only_e2e
def test_kueue_admits_and_volcano_places(start_rig: Start) -> None:
    """The job is in the queue of one after the other: Volcano hears of it once it has its quota."""
    rig = start_rig(RigLayout(chip_nodes=5, queue_chips=CHIPS_OF_FOUR_NODES, volcano=True))
    assert rig.queue is not None
    groups = f"{VOLCANO}/namespaces/{rig.namespace}/podgroups"
    rig.queue.set_quota(0)
    job = submit(rig, "job")
    rig.plane.wait(
        "the queue to be named", lambda: "maximum capacity (0)" in job.condition("Scheduled").get("message", "")
    )
    assert (job.pods(), rig.plane.api.items(groups)) == ([], [])
    rig.queue.set_quota(CHIPS_OF_FOUR_NODES)
    job.wait_step(10)
    assert [each["spec"]["minMember"] for each in rig.plane.api.items(groups)] == [4]
