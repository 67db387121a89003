"""What a queue, its admins and other jobs do to a queued job, by Kueue's stand-in or Kueue itself (`HAJOB_KUEUE`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.harness.fixtures import RunHajob
from e2e.harness.job import IMPATIENT
from e2e.harness.marks import only_e2e
from e2e.harness.rig import RIG_LABEL, Rig, RigLayout
from e2e.kueue.launch import CHIPS, KueueStandIn
from e2e.scenarios.doctors_findings import findings_of_doctor
from e2e.scenarios.nodes_taken import pod_of
from e2e.scenarios.queued_jobs import (
    CHIPS_OF_FOUR_NODES,
    QUEUE_LABELS,
    assert_goes_on_after,
    assert_no_step_twice,
    condition_of,
    path_of_workload,
    submit,
    two_priorities,
    wait_stopped,
    workload_of,
)

pytestmark = pytest.mark.slow
LONG = 1500
Start = Callable[[RigLayout], Rig]


@pytest.fixture
def rig(start_rig: Start) -> Rig:
    return start_rig(RigLayout(chip_nodes=5, queue_chips=CHIPS_OF_FOUR_NODES))


@only_e2e
def test_what_was_borrowed_is_asked_back(rig: Rig, queue: KueueStandIn) -> None:
    """A lender takes back the whole job, which saves, and goes on when the lender has ended."""
    cohort, lender = f"cohort-{rig.name}", f"lender-{rig.name}"
    rig.plane.apply(
        queue.cluster_queue_of(4, cohortName=cohort),
        queue.cluster_queue_of(4, name=lender, cohortName=cohort, reclaim="Any"),
        queue.local_queue_of("lent", lender),
    )
    job = submit(rig, "borrower")
    job.wait_step(10)
    owner = submit(rig, "owner", nodes=2, queue="lent", iterations=60)
    stopped = wait_stopped(rig, job, "due to reclamation within the cohort")
    assert_goes_on_after(job, owner, stopped)


@only_e2e
def test_a_check_is_asked_then_lost_then_rejected(rig: Rig, queue: KueueStandIn) -> None:
    """Nothing starts before it is ready; what it adds is on the pods; its loss is an eviction like any other."""
    check = f"budget-{rig.name}"
    queue.add_check(check)
    strategy = {"admissionChecks": [{"name": check}]}
    rig.plane.apply(queue.cluster_queue_of(CHIPS_OF_FOUR_NODES, admissionChecksStrategy=strategy))
    job = submit(rig, "job", iterations=LONG)
    told = f"waiting for admission checks: {check} (Pending)"
    rig.plane.wait("the check to be named", lambda: told in job.condition("Scheduled").get("message", ""))
    assert job.pods() == []
    name = workload_of(queue, job)["metadata"]["name"]
    toleration = {"key": "team", "operator": "Exists"}
    update = {"name": "rank", "labels": {"team": "a"}, "annotations": {"budget": "7"}, "tolerations": [toleration]}
    queue.answer_check(name, check, "Ready", podSetUpdates=[{**update, "nodeSelector": {RIG_LABEL: rig.name}}])
    job.wait_step(10)
    pod = job.pods("rank")[0]
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["metadata"]["annotations"]["budget"] == "7"
    assert toleration in [{key: one[key] for key in toleration if key in one} for one in pod["spec"]["tolerations"]]
    queue.answer_check(name, check, "Pending")
    rig.plane.kubectl("--namespace", job.namespace, "delete", "pod", pod_of(job, 3), "--wait=false")
    job.wait_incident(2)
    queue.answer_check(name, check, "Retry", message="no nodes yet")
    stopped = wait_stopped(rig, job, "no nodes yet")
    queue.answer_check(name, check, "Ready", before="Pending")  # Kueue asks anew once the quota is given back
    job.wait_step(stopped + 5)
    queue.answer_check(name, check, "Rejected", message="the budget is spent")
    stopped = wait_stopped(rig, job, "the budget is spent")
    command = f"kubectl patch workload {name} --type merge"
    rig.plane.wait("the command to be told", lambda: command in job.condition("Scheduled")["message"])
    rig.plane.api.merge(path_of_workload(queue, workload_of(queue, job)), {"spec": {"active": True}})
    queue.answer_check(name, check, "Ready", before="Pending")  # Kueue asks anew once the quota is given back
    job.wait_step(stopped + 5)
    assert_no_step_twice(job)


@only_e2e
def test_flavors_bear_taints_and_choose_nodes(rig: Rig, queue: KueueStandIn) -> None:
    taint = {"key": "npu", "value": "a2", "effect": "NoSchedule"}
    for number in range(5):
        rig.plane.kubectl("taint", "node", f"{rig.name}-{number}", "npu=a2:NoSchedule")
    labels = {RIG_LABEL: rig.name}
    toleration = {"key": "npu", "operator": "Equal", "value": "a2", "effect": "NoSchedule"}
    rig.plane.apply(queue.flavor_of(nodeLabels=labels, nodeTaints=[taint], tolerations=[toleration]))
    job = submit(rig, "job")
    job.wait_step(10)
    pod = job.pods("rank")[0]
    assert toleration in pod["spec"]["tolerations"]
    assert pod["spec"]["nodeSelector"][RIG_LABEL] == rig.name
    assert not [label for label in pod["metadata"]["labels"] if label.startswith(QUEUE_LABELS)]
    job.hurry()
    job.wait_condition("Complete")


@only_e2e
def test_a_topology_evicts_what_hajob_would_heal(start_rig: Start) -> None:
    """A node is lost and replaced: Kueue chooses another one, too. With none left it evicts; the job comes back."""
    rig = start_rig(RigLayout(chip_nodes=5, queue_chips=CHIPS_OF_FOUR_NODES))
    queue = rig.queue
    assert queue is not None
    topology = f"nodes-{rig.name}"
    queue.add_topology(topology)
    rig.plane.apply(queue.flavor_of(nodeLabels={RIG_LABEL: rig.name}, topologyName=topology))
    job = submit(rig, "job", iterations=LONG)
    # The queue covers chips alone, of which the coordinator asks for none.
    told = "pod set coordinator: no TAS flavor assigned"
    rig.plane.wait("why not", lambda: told in job.condition("Scheduled").get("message", ""))
    queue.stop()
    queue.configure(excluded_prefixes=("ephemeral-storage",))
    queue.start()
    amounts = {CHIPS: CHIPS_OF_FOUR_NODES, "cpu": 1000, "memory": "1Ti"}
    quota = [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]
    flavors = [{"name": queue.flavor, "resources": quota}]
    covered = [{"coveredResources": [*amounts], "flavors": flavors}]
    rig.plane.apply(queue.cluster_queue_of(CHIPS_OF_FOUR_NODES, resourceGroups=covered))
    job.wait_step(10)
    first = job.node_of(3)
    rig.nodes.control.power_off(first)
    assert job.wait_incident(2)["action"] == "Replace"
    second = job.node_of(2)
    rig.nodes.control.power_off(second)
    rig.plane.wait("the eviction", lambda: condition_of(workload_of(queue, job), "Evicted").get("status") == "True", 60)
    # The node was lost first: it is that incident that becomes a stop.
    assert job.wait_condition("Suspended")["reason"] == "Evicted"
    rig.plane.wait("its pods to be gone", lambda: not job.pods(), 120)
    stopped = job.common_step()
    rig.nodes.control.power_on(first)
    job.wait_step(stopped + 5, seconds=180)


@only_e2e
def test_a_held_queue_lets_train_what_trains(rig: Rig, queue: KueueStandIn) -> None:
    job = submit(rig, "job", nodes=2, iterations=LONG)
    job.wait_step(10)
    rig.plane.apply(queue.local_queue_of(queue.queue, queue.cluster_queue, stopPolicy="Hold"))
    later = submit(rig, "later", nodes=2)
    rig.plane.wait("the queue to be named", lambda: "is inactive" in later.condition("Scheduled").get("message", ""))
    job.wait_step(job.common_step() + 5)
    assert condition_of(workload_of(queue, job), "Evicted").get("status") != "True"
    rig.plane.apply(queue.local_queue_of(queue.queue, queue.cluster_queue, stopPolicy="HoldAndDrain"))
    stopped = wait_stopped(rig, job, "The LocalQueue is stopped")
    rig.plane.apply(queue.local_queue_of(queue.queue, queue.cluster_queue, stopPolicy="None"))
    job.wait_step(stopped + 5)
    later.wait_condition("Running")
    assert_no_step_twice(job)


@only_e2e
def test_a_workload_deleted_by_hand_is_made_again(rig: Rig, queue: KueueStandIn) -> None:
    job = submit(rig, "job")
    job.wait_step(10)
    workload = workload_of(queue, job)
    rig.plane.api.delete(path_of_workload(queue, workload))

    def is_admitted_again() -> bool:
        found = workload_of(queue, job)
        return bool(found) and found["metadata"]["uid"] != workload["metadata"]["uid"] and _is_ready(found)

    rig.plane.wait("another Workload to be admitted", is_admitted_again)
    job.wait_step(job.common_step() + 5)
    assert len(job.incidents()) == 0
    assert job.condition("Degraded").get("status") != "True"


def _is_ready(workload: dict[str, object]) -> bool:
    return condition_of(workload, "PodsReady").get("status") == "True"


@only_e2e
def test_a_preempted_job_is_suspended_and_edited(rig: Rig, queue: KueueStandIn) -> None:
    """Suspended while another has its quota, edited, and let go on with other nodes in the same update."""
    lower, higher = two_priorities(rig, queue)
    job = submit(rig, "low", priority=lower)
    job.wait_step(10)
    high = submit(rig, "high", nodes=2, priority=higher, iterations=60)
    stopped = wait_stopped(rig, job, "due to prioritization")
    job.patch({"spec": {"suspend": True}})
    rig.plane.wait("it to be out of the queue", lambda: workload_of(queue, job)["spec"]["active"] is False)
    high.wait_condition("Running")
    high.hurry()
    high.wait_condition("Complete")
    assert job.pods() == []
    template = {"spec": {"nodeSelector": {RIG_LABEL: rig.name, "kubernetes.io/os": "linux"}}}
    job.patch({"metadata": {"labels": {"team": "a"}}, "spec": {"suspend": False, "template": template}})
    job.wait_step(stopped + 5)
    assert job.pods("rank")[0]["spec"]["nodeSelector"]["kubernetes.io/os"] == "linux"
    (ranks, _) = workload_of(queue, job)["spec"]["podSets"]
    assert ranks["template"]["spec"]["nodeSelector"]["kubernetes.io/os"] == "linux"
    assert_no_step_twice(job)


@only_e2e
def test_kueue_ends_amid_a_preemption(rig: Rig, queue: KueueStandIn) -> None:
    """Its webhooks refuse the give-back; it is made when they answer again, and nothing is lost meanwhile."""
    lower, higher = two_priorities(rig, queue)
    job = submit(rig, "low", priority=lower)
    job.wait_step(10)
    high = submit(rig, "high", nodes=2, priority=higher, iterations=60)
    rig.plane.wait("the eviction", lambda: condition_of(workload_of(queue, job), "Evicted").get("status") == "True")
    queue.stop()
    stopped = wait_stopped(rig, job, "due to prioritization")
    assert high.pods() == []
    queue.start()
    assert_goes_on_after(job, high, stopped)


@only_e2e
def test_a_save_that_hangs_is_bounded(rig: Rig, queue: KueueStandIn) -> None:
    lower, higher = two_priorities(rig, queue)
    recovery = {"preemptionTimeoutSeconds": 10}
    job = submit(rig, "low", priority=lower, spec={"recovery": recovery})
    job.wait_step(10)
    rig.nodes.control.kill(namespace=rig.namespace, rank=3, signal="STOP")
    high = submit(rig, "high", nodes=2, priority=higher, iterations=60)
    high.wait_condition("Running", seconds=180)
    assert job.pods() == []
    high.hurry()
    high.wait_condition("Complete")
    job.wait_condition("Running")
    job.hurry()
    job.wait_condition("Complete")


@only_e2e
def test_the_queue_admits_fewer_and_adds_none(rig: Rig, queue: KueueStandIn) -> None:
    """`restartSize: Available`: the other half of its quota is another job's; it has all again after its next stop."""
    lower, higher = two_priorities(rig, queue)
    elastic = {**IMPATIENT["elastic"], "restartSize": "Available"}
    job = submit(
        rig,
        "low",
        priority=lower,
        iterations=LONG,
        arguments=["--enable-elastic-training", "--global-batch-size", "32"],
        spec={"elastic": elastic},
    )
    job.wait_step(10)
    high = submit(rig, "high", nodes=2, priority=higher, iterations=60)
    job.wait_condition("Suspended")
    rig.plane.wait("a smaller start", lambda: len(job.pods("rank")) == 2)
    job.wait_condition("Shrunk")
    high.wait_condition("Running")
    high.hurry()
    high.wait_condition("Complete")
    told = job.status()["dataParallel"]
    assert (told["current"], told["desired"]) == (2, 4)
    assert "has admitted 2 of 4 rank pods" in told["waitMessage"]
    job.patch({"spec": {"suspend": True}})
    job.wait_condition("Suspended")
    job.patch({"spec": {"suspend": False}})
    rig.plane.wait("the original size", lambda: job.status()["dataParallel"]["current"] == 4)
    assert_no_step_twice(job)


@only_e2e
def test_spares_are_preempted_alone(rig: Rig, queue: KueueStandIn) -> None:
    lower, higher = two_priorities(rig, queue)
    job = submit(rig, "low", nodes=2, priority=lower, iterations=LONG, spec={"scheduling": {"numSpareNodes": 2}})
    job.wait_condition("SparesReady")
    assert workload_of(queue, job, spares=True)["spec"]["priority"] == 9
    high = submit(rig, "high", nodes=2, priority=higher, iterations=60)
    high.wait_condition("Running")
    rig.plane.wait("no spare", lambda: job.condition("SparesReady")["status"] == "False")
    assert job.incidents() == []
    job.wait_step(job.common_step() + 5)
    high.hurry()
    high.wait_condition("Complete")
    job.wait_condition("SparesReady")
    assert job.incidents() == []


@only_e2e
def test_a_webhook_that_fails_is_named(start_rig: Start, run_hajob: RunHajob) -> None:
    """Kueue knows the kind and may not read it: each creation takes ten seconds and fails."""
    rig = start_rig(RigLayout(chip_nodes=5, queue_chips=CHIPS_OF_FOUR_NODES))
    queue = rig.queue
    assert queue is not None
    queue.stop()
    queue.configure(knows_jobs=True, may_read_jobs=False)
    queue.start()
    job = submit(rig, "job", nodes=2)
    rig.plane.wait(
        "the webhook to be named", lambda: "mpod.kb.io" in job.condition("Scheduled").get("message", ""), seconds=90
    )
    assert job.condition("Scheduled")["reason"] == "PodsNotCreated"
    assert "its pods are refused by a webhook" in str(findings_of_doctor(run_hajob, rig, job))
    queue.stop()
    queue.configure(may_read_jobs=True)
    queue.start()
    job.wait_step(10)


@only_e2e
def test_doctor_reads_queues_and_configuration(rig: Rig, queue: KueueStandIn, run_hajob: RunHajob) -> None:
    """Nothing is wrong; then a queue that takes every pod of the namespace, and one that admits nobody."""
    queue.publish_configuration()
    job = submit(rig, "job")
    job.wait_step(5)

    def problems() -> list[str]:
        found = findings_of_doctor(run_hajob, rig, job, "job ")
        return [message for grade, message in found if grade != "ok"]

    ((grade, message),) = findings_of_doctor(run_hajob, rig, job, "Kueue")
    assert (grade, message.endswith("LocalQueues, and this operator serves jobs of it")) == ("ok", True)
    before = problems()
    rig.plane.apply(queue.local_queue_of("default", queue.cluster_queue))
    (taken,) = (one for one in problems() if one not in before)
    assert taken.startswith("its namespace has a LocalQueue named default, and Kueue does not know HATrainingJobs: it")
    queue.stop()
    queue.configure(knows_jobs=True)
    queue.start()
    queue.publish_configuration()
    assert problems() == before
    rig.plane.apply(queue.cluster_queue_of(CHIPS_OF_FOUR_NODES, stop="Hold"))
    (held,) = (one for one in problems() if one not in before)
    assert held == f"its ClusterQueue {queue.cluster_queue} is stopped (Hold): no job of it is admitted"
    rig.plane.kubectl("--namespace", job.namespace, "delete", "pod", pod_of(job, 3), "--wait=false")
    assert job.wait_incident(2)["action"] == "Replace", "a pod whose job is known to Kueue is let alone"
