"""What one job asks Kueue for, and when and how it gives it back."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.job.policies.gang_start import GangMemo
from hajob.job.policies.kueue import KueueMemo, want_kueue
from hajob.job.policies.outdated_pods import BootMemo
from hajob.job.policies.pod_groups import want_pod_groups
from hajob.job.policies.pods import PodMemo, want_pods
from hajob.job.snapshot import JobSnapshot, ServerAnswers
from hajob.job.wants import Change, Create, Delete, MakePods, Patch
from hajob.kube.client import ApiError
from hajob.plan.state import JobPhase, JobState, Smaller
from hajob.pods.workload import priority_of_spares, workload_name
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView
from hajob.sources.workload import Flavor, QueuePriority
from tests.rigs.example_jobs import UID, example_job
from tests.rigs.plan_specs import GOOD
from tests.rigs.snapshots import RUNNING, rank, snapshot
from tests.rigs.workloads import (
    ADMITTED,
    EVICTED,
    PREEMPTED,
    READY,
    WAITING,
    kueue_condition,
    queued,
    queues_with,
    workload_of,
)

NEW = JobState()
SUSPENDED = replace(RUNNING, phase=JobPhase.SUSPENDED)
PENDING = replace(RUNNING, phase=JobPhase.PENDING)
COMPLETE = replace(RUNNING, phase=JobPhase.COMPLETE)
SPARES = {"scheduling": {"numSpareNodes": 1}}
COORDINATOR = PodView("team-a", "c", "uid-of-c", UID, names.ROLE_COORDINATOR, -1, 1, phase="Running")
SPARE = replace(rank(0, name="s", uid="uid-of-s"), role=names.ROLE_SPARE)


def taken(
    *workloads: Json, spec: dict[str, Any] | None = None, labels: dict[str, str] | None = None, **fields: Any
) -> JobSnapshot:
    made = snapshot(spec, **fields)
    job = queued(made.job, **(labels or {})) if labels is None or labels else made.job
    made.cluster.queues = queues_with(*workloads)
    return replace(made, job=job)


def changes_of(made: JobSnapshot) -> tuple[Change, ...]:
    return want_kueue(made, KueueMemo()).changes


def conditions_of(change: Change) -> dict[str, tuple[str, str]]:
    assert isinstance(change, Patch)
    assert isinstance(change.body, dict)
    return {one["type"]: (one["status"], one["reason"]) for one in change.body["status"]["conditions"]}


def test_a_queued_job_asks_for_its_ranks_and_coordinator() -> None:
    (made,) = changes_of(taken(state=NEW))
    assert isinstance(made, Create)
    assert made.body["spec"]["queueName"] == "user-queue"
    assert [(one["name"], one["count"]) for one in made.body["spec"]["podSets"]] == [("rank", 4), ("coordinator", 1)]


@pytest.mark.parametrize("state", [COMPLETE, replace(RUNNING, phase=JobPhase.FAILED)])
def test_a_job_that_has_ended_asks_for_nothing(state: JobState) -> None:
    assert changes_of(taken(state=state)) == ()


def test_a_job_without_the_label_asks_for_nothing() -> None:
    assert want_kueue(snapshot(state=NEW), KueueMemo()).changes == ()


def test_a_suspended_job_asks_once_it_is_resumed() -> None:
    assert changes_of(taken(state=SUSPENDED, spec={"suspend": True})) == ()


def test_a_missing_priority_class_is_waited_for() -> None:
    made = taken(state=NEW, labels={names.LABEL_QUEUE_PRIORITY: "urgent"})
    assert changes_of(made) == ()
    assert "WorkloadPriorityClass urgent" in made.queue.why_waiting
    made.cluster.queues.classes["urgent"] = QueuePriority("urgent", 1000)
    (creation,) = changes_of(made)
    assert isinstance(creation, Create)
    assert creation.body["spec"]["priority"] == 1000
    assert creation.body["spec"]["priorityClassRef"]["name"] == "urgent"


def test_no_pod_of_a_start_is_made_before_admission() -> None:
    job = example_job("quickstart")
    for workload, makes in ((WAITING, False), (EVICTED, False), ([], False), (ADMITTED, True)):
        made = taken(workload_of(job, workload), state=PENDING)
        wants = want_pods(made, PodMemo(), GangMemo(), BootMemo())
        assert any(isinstance(one, MakePods) for one in wants.changes) is makes, workload


def test_what_trains_gets_its_replacements_while_kueue_is_silent() -> None:
    made = taken(state=replace(RUNNING, phase=JobPhase.GATHERING), pods=[COORDINATOR, *map(rank, range(3))])
    assert made.queue.may_make_pods


def test_quota_is_kept_until_the_last_pod_is_gone() -> None:
    workload = workload_of(example_job("quickstart"), EVICTED)
    assert changes_of(taken(workload)) == (), "it trains and saves"
    assert changes_of(taken(workload, state=SUSPENDED, pods=[rank(3, deleting=True)])) == ()
    assert changes_of(taken(workload, state=SUSPENDED, pods=[COORDINATOR])) == ()
    assert changes_of(taken(workload, state=SUSPENDED, pods=[rank(3, left_over=True)])) != ()


def test_quota_is_given_back_as_kueue_wants_it() -> None:
    target = kueue_condition("DeactivationTarget", "True", "MaximumExecutionTimeExceeded")
    raw = workload_of(example_job("quickstart"), [*EVICTED, target], reclaimablePods=[{"name": "rank", "count": 1}])
    (patch,) = changes_of(taken(raw, state=SUSPENDED))
    assert isinstance(patch, Patch)
    assert patch.subresource == "status"
    assert patch.follows_status, "the stop is on record before others take the quota"
    assert isinstance(patch.body, dict)
    assert patch.body["metadata"]["resourceVersion"] == "7", "a merge patch must not undo another write"
    status = patch.body["status"]
    assert (status["admission"], status["reclaimablePods"]) == (None, None)
    assert conditions_of(patch) == {
        "QuotaReserved": ("False", "Pending"),
        "Admitted": ("False", "NoReservation"),
        "PodsReady": ("False", "WaitForStart"),
        "Evicted": ("True", "Preempted"),
        "Preempted": ("True", "InClusterQueue"),
        "Requeued": ("True", "Preempted"),
    }
    assert next(one for one in status["conditions"] if one["type"] == "QuotaReserved")["message"] == PREEMPTED


def test_an_old_wait_for_recovery_is_reset() -> None:
    """Its old time would have the next admission evicted at once."""
    recovery = kueue_condition("PodsReady", "False", "WaitForRecovery")
    raw = workload_of(example_job("quickstart"), [*ADMITTED, recovery, *EVICTED[3:]])
    (patch,) = changes_of(taken(raw, state=SUSPENDED))
    assert conditions_of(patch)["PodsReady"] == ("False", "WaitForStart")
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    ready = next(one for one in patch.body["status"]["conditions"] if one["type"] == "PodsReady")
    assert ready["lastTransitionTime"] != recovery["lastTransitionTime"]


def test_quota_that_was_only_reserved_is_given_back() -> None:
    reserved = [ADMITTED[0], kueue_condition("Evicted", "True", "AdmissionCheck", "At least one check is False")]
    (patch,) = changes_of(taken(workload_of(example_job("quickstart"), reserved), state=NEW))
    assert conditions_of(patch)["QuotaReserved"] == ("False", "Pending")


def test_what_was_given_back_is_not_given_back_again() -> None:
    returned = [*WAITING, kueue_condition("Admitted", "False", "NoReservation"), EVICTED[3]]
    assert changes_of(taken(workload_of(example_job("quickstart"), returned), state=SUSPENDED)) == ()


def test_the_same_write_is_wanted_until_the_workload_changes() -> None:
    memo, raw = KueueMemo(), workload_of(example_job("quickstart"), EVICTED)
    first = want_kueue(taken(raw, state=SUSPENDED), memo)
    assert want_kueue(taken(raw, state=SUSPENDED, wall_seconds=1_800_000_000.0), memo) == first
    raw["metadata"]["resourceVersion"] = "8"
    assert want_kueue(taken(raw, state=SUSPENDED), memo) != first


def test_pods_are_ready_once_all_of_them_run() -> None:
    raw, ranks = workload_of(example_job("quickstart"), ADMITTED), [rank(number) for number in range(4)]
    assert changes_of(taken(raw, pods=ranks)) == ()
    (patch,) = changes_of(with_coordinator(taken(raw, pods=ranks)))
    assert conditions_of(patch)["PodsReady"] == ("True", "PodsReady")
    assert changes_of(with_coordinator(taken(workload_of(example_job("quickstart"), READY), pods=ranks))) == ()


def with_coordinator(made: JobSnapshot) -> JobSnapshot:
    vars(made)["coordinator_pod"] = COORDINATOR
    return made


@pytest.mark.parametrize(("phase", "reason"), [(JobPhase.COMPLETE, "Succeeded"), (JobPhase.FAILED, "Failed")])
def test_the_end_is_told_once_no_pod_works(phase: JobPhase, reason: str) -> None:
    raw, state = workload_of(example_job("quickstart"), READY), replace(RUNNING, phase=phase)
    assert changes_of(taken(raw, state=state, pods=[rank(0)])) == ()
    (patch,) = changes_of(taken(raw, state=state, pods=[rank(0, phase="Succeeded", exit_code=0)]))
    assert conditions_of(patch)["Finished"] == ("True", reason)
    ended = workload_of(example_job("quickstart"), [*READY, kueue_condition("Finished", "True", reason)])
    assert changes_of(taken(ended, state=state)) == ()


def test_a_failed_job_that_starts_again_asks_anew() -> None:
    raw = workload_of(example_job("quickstart"), [*READY, kueue_condition("Finished", "True", "Failed")])
    (deletion,) = changes_of(taken(raw, state=PENDING))
    assert isinstance(deletion, Delete)


def test_suspend_and_resume_are_told_once_the_pods_are_to_go() -> None:
    raw = workload_of(example_job("quickstart"), READY)
    assert changes_of(taken(raw, spec={"suspend": True}, state=RUNNING)) == (), "it saves first"
    (patch,) = changes_of(taken(raw, spec={"suspend": True}, state=SUSPENDED))
    assert isinstance(patch, Patch)
    assert patch.body == {"metadata": {"annotations": {names.ANNOTATION_SUSPENDED: "true"}}, "spec": {"active": False}}
    own = workload_of(
        example_job("quickstart"), WAITING, annotations={names.ANNOTATION_SUSPENDED: "true"}, spec={"active": False}
    )
    (patch,) = changes_of(taken(own, state=SUSPENDED))
    assert isinstance(patch, Patch)
    assert patch.body == {"metadata": {"annotations": {names.ANNOTATION_SUSPENDED: None}}, "spec": {"active": True}}


def test_what_kueue_has_deactivated_is_left_so() -> None:
    limit = kueue_condition("Evicted", "True", "DeactivatedDueToRequeuingLimitExceeded", "The limit is exceeded")
    raw = workload_of(example_job("quickstart"), [*WAITING, limit], spec={"active": False})
    assert changes_of(taken(raw, state=SUSPENDED)) == ()


def test_a_waiting_workload_follows_the_job() -> None:
    raw = workload_of(example_job("quickstart"), WAITING, annotations={names.ANNOTATION_DIGEST: "older"})
    (patch,) = changes_of(taken(raw, state=NEW))
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    assert patch.body["spec"].keys() == {"queueName", "podSets"}
    admitted = workload_of(example_job("quickstart"), READY, annotations={names.ANNOTATION_DIGEST: "older"})
    assert changes_of(taken(admitted)) == (), "what is reserved cannot be changed"


def test_a_label_taken_away_counts_after_the_stop() -> None:
    raw = workload_of(example_job("quickstart"), READY)
    assert changes_of(taken(raw, labels={})) == ()
    (deletion,) = changes_of(taken(raw, labels={}, state=SUSPENDED))
    assert isinstance(deletion, Delete)


def test_spares_are_asked_for_once_the_job_trains() -> None:
    job = example_job("quickstart", **SPARES)
    raw = workload_of(job, READY)
    (made,) = changes_of(taken(raw, spec=SPARES))
    assert isinstance(made, Create)
    assert made.body["spec"]["priority"] == -1, "a preemptor takes the spares first"
    assert changes_of(taken(raw, spec=SPARES, state=PENDING)) == ()


def test_spares_are_taken_alone() -> None:
    job = example_job("quickstart", **SPARES)
    ranks, spares = workload_of(job, READY), workload_of(job, EVICTED, spares=True)
    with_spare = taken(ranks, spares, spec=SPARES, pods=[SPARE])
    assert changes_of(with_spare) == ()
    assert not with_spare.queue.has_spare_quota
    (patch,) = changes_of(taken(ranks, spares, spec=SPARES))
    assert isinstance(patch, Patch)
    assert patch.name == spares["metadata"]["name"]
    assert conditions_of(patch)["Admitted"] == ("False", "NoReservation")


def test_spares_go_with_the_job() -> None:
    job = example_job("quickstart", **SPARES)
    spares = workload_of(job, READY, spares=True)
    (deletion,) = changes_of(
        taken(workload_of(job, [*READY, kueue_condition("Finished", "True", "x")]), spares, spec=SPARES, state=COMPLETE)
    )
    assert isinstance(deletion, Delete)
    assert deletion.name == spares["metadata"]["name"]


def spec_of_sizes() -> dict[str, Any]:
    """Return what a job needs that may start with fewer nodes: its batch size is visible."""
    template = copy.deepcopy(example_job("quickstart").spec.template)
    template["spec"]["containers"][0]["command"] = ["torchrun", "train.py", *GOOD.split()]
    return {"elastic": {"restartSize": "Available"}, "template": template}


@pytest.mark.parametrize("phase", [JobPhase.SHRUNK, JobPhase.GATHERING, JobPhase.MIGRATING, JobPhase.EXPANDING])
def test_a_job_with_fewer_pods_keeps_its_quota(phase: JobPhase) -> None:
    raw, state = workload_of(example_job("quickstart"), READY), replace(RUNNING, phase=phase)
    assert changes_of(taken(raw, state=state, pods=[rank(0), rank(1)])) == ()


def test_a_later_start_may_have_fewer_nodes() -> None:
    spec = spec_of_sizes()
    made = taken(spec=spec, state=SUSPENDED)
    assert made.policy.sizes is not None
    (creation,) = changes_of(made)
    assert isinstance(creation, Create)
    assert creation.body["spec"]["podSets"][0]["minCount"] == made.policy.sizes.smallest > 0
    (first,) = changes_of(taken(spec=spec, state=NEW))
    assert isinstance(first, Create)
    assert "minCount" not in first.body["spec"]["podSets"][0], "the first start has all of them"


def test_a_start_has_no_more_nodes_than_were_granted() -> None:
    spec = spec_of_sizes()
    job = example_job("quickstart", **spec)
    raw = workload_of(job, READY)
    raw["status"]["admission"]["podSetAssignments"][0]["count"] = 2
    chips, labels = {names.DEFAULT_RESOURCE_NAME: 8}, {"pool": "a2"}
    nodes = [NodeView(f"n{number}", chips=chips, labels=labels) for number in range(6)]
    smaller = replace(RUNNING, smaller=Smaller(2, 2))
    made = taken(raw, spec=spec, nodes=nodes, state=smaller)
    assert made.start_nodes == 2
    assert "has admitted 2 of 4 rank pods" in made.growth_refused
    assert taken(workload_of(job, READY), spec=spec, nodes=nodes).start_nodes == 4


def test_spares_say_what_their_queue_says() -> None:
    job = example_job("quickstart", **SPARES)
    made = taken(workload_of(job, READY), workload_of(job, WAITING, spares=True), spec=SPARES)
    assert "insufficient unused quota" in made.queue.why_spares_wait
    assert taken(workload_of(job, READY), workload_of(job, READY, spares=True), spec=SPARES).queue.why_spares_wait == ""


def test_kueue_admits_before_volcano_has_a_group() -> None:
    spec = {"scheduling": {"gangPolicy": "Volcano"}}
    job = example_job("quickstart", **spec)
    for workload, makes in ((WAITING, False), (ADMITTED, True)):
        wants = want_pod_groups(taken(workload_of(job, workload), spec=spec, state=PENDING))
        assert [one.resource for one in wants.changes] == ([names.POD_GROUPS] if makes else [])


def test_flavors_of_the_coordinator_are_its_own() -> None:
    raw = workload_of(example_job("quickstart"), READY)
    raw["status"]["admission"]["podSetAssignments"][1]["flavors"] = {"cpu": "plain"}
    made = taken(raw)
    made.cluster.queues.flavors["plain"] = Flavor(
        "plain", (("pool", "plain"),), ({"key": "cpu", "operator": "Exists"},)
    )
    placed = made.job_as_started.spec
    assert placed.coordinator.node_selector["pool"] == "plain"
    assert [one.key for one in placed.coordinator.tolerations] == ["cpu"]
    assert placed.template["spec"]["nodeSelector"]["pool"] == "a2"
    assert "nodeSelector" not in made.job.spec.template["spec"], "the job itself is left as it is"


def refused(made: JobSnapshot, *key: str) -> str:
    """Return why the job waits when the server refuses a change of its Workload."""
    name = workload_name(made.job)
    error = ApiError(422, "Invalid", "spec.queueName: Invalid value")
    place = "workloads", made.job.metadata.namespace or "", name
    return replace(made, answers=ServerAnswers(refusals={(key[0], *place, *key[1:]): error})).queue_wait


def test_a_refused_workload_is_told() -> None:
    assert (
        refused(taken(state=NEW), "Create")
        == "queue user-queue: its Workload is refused: spec.queueName: Invalid value"
    )
    raw = workload_of(example_job("quickstart"), EVICTED)
    told = refused(taken(raw, state=SUSPENDED), "Patch", raw["metadata"]["uid"], "status")
    assert told.endswith("; its quota is not given back yet: spec.queueName: Invalid value")
    assert refused(taken(workload_of(example_job("quickstart"), READY)), "Create") == ""


def test_the_lowest_priority_has_none_below() -> None:
    assert priority_of_spares(QueuePriority("lowest", -(2**31))).value == -(2**31)
    assert priority_of_spares(QueuePriority("", 0)).value == -1


def test_spares_that_run_are_ready() -> None:
    """Else Kueue evicts them for their pods, and may admit nobody else until then."""
    job = example_job("quickstart", **SPARES)
    ranks, spares = workload_of(job, READY), workload_of(job, ADMITTED, spares=True)
    assert changes_of(taken(ranks, spares, spec=SPARES, pods=[replace(SPARE, phase="Pending")])) == ()
    (patch,) = changes_of(taken(ranks, spares, spec=SPARES, pods=[replace(SPARE, phase="Running")]))
    assert isinstance(patch, Patch)
    assert patch.name == spares["metadata"]["name"]
    assert conditions_of(patch)["PodsReady"] == ("True", "PodsReady")
    ready = workload_of(job, READY, spares=True)
    assert changes_of(taken(ranks, ready, spec=SPARES, pods=[replace(SPARE, phase="Running")])) == ()
