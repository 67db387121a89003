"""The stand-in hurts where Volcano with the Ascend plugin was seen to hurt (docs/internals/volcano-stand-in.md)."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.volcano.session import play_session
from e2e.volcano.world import (
    CHIP,
    CONFIGURATION,
    GROUP_NAME,
    RANK_INDEX,
    REAL,
    SUPER_POD,
    Act,
    Annotate,
    Bind,
    CountQueue,
    DeletePod,
    Explain,
    Object,
    SchedulerPanicError,
    World,
    WriteStatus,
)

OWNER = [
    {"apiVersion": "training.hajob.io/v1alpha1", "kind": "HATrainingJob", "name": "j", "uid": "j", "controller": True}
]
QUEUE = {"metadata": {"name": "default"}, "spec": {}}


def pod(name: str, *, chips: int = 8, **fields: Any) -> Object:
    node, phase = fields.pop("node", ""), fields.pop("phase", "Pending")
    annotations = {GROUP_NAME: "j", RANK_INDEX: name.removeprefix("p")} | fields.pop("annotations", {})
    metadata = {"namespace": "a", "name": name, "uid": name, "annotations": annotations, "ownerReferences": OWNER}
    resources = {"requests": {CHIP: str(chips)}} if chips else {}
    spec = {"schedulerName": "volcano", "nodeName": node, "containers": [{"name": "trainer", "resources": resources}]}
    return {"metadata": {**metadata, **fields}, "spec": spec, "status": {"phase": phase}}


def running(name: str, node: str, **fields: Any) -> Object:
    return pod(name, node=node, phase="Running", **fields)


def node(name: str, *, ready: bool = True, chips: int = 8) -> Object:
    conditions = [{"type": "Ready", "status": str(ready)}]
    status = {"allocatable": {CHIP: str(chips)} if chips else {}, "conditions": conditions, "addresses": []}
    return {"metadata": {"name": name}, "spec": {}, "status": status}


def group(least: int = 4, **fields: Any) -> Object:
    metadata = {"namespace": "a", "name": "j", "uid": "g", "creationTimestamp": "1", "ownerReferences": OWNER}
    spec = {"minMember": least, "minResources": {CHIP: str(8 * least)}, "queue": "default"} | fields.pop("spec", {})
    status = {"phase": fields.pop("phase", "Inqueue"), "conditions": fields.pop("conditions", [])}
    return {"metadata": {**metadata, **fields}, "spec": spec, "status": status}


def world(*pods: Object, of: Object | None = None, nodes: int = 6, **fields: Any) -> World:
    queues = fields.pop("queues", [QUEUE])
    machines = fields.pop("machines", None) or [node(f"n{number}") for number in range(nodes)]
    for each in pods:  # chips of whoever runs are told
        if each["spec"]["nodeName"]:
            each["metadata"]["annotations"].setdefault(REAL, "Ascend910-0")
    return World(pods, machines, [of or group()], queues, **fields)


def bound(acts: list[Act]) -> dict[str, str]:
    return {act.pod["metadata"]["name"]: act.node for act in acts if isinstance(act, Bind)}


def status(acts: list[Act]) -> Object:
    return next((act.status for act in acts if isinstance(act, WriteStatus)), {})


def reasons(acts: list[Act]) -> dict[str, str]:
    return {one["reason"]: one["message"] for one in status(acts)["conditions"]}


def waiting(count: int = 4) -> list[Object]:
    return [pod(f"p{number}") for number in range(count)]


def test_a_gang_starts_together_with_what_the_plugin_writes() -> None:
    acts = play_session(world(*waiting()))
    assert len(set(bound(acts).values())) == 4
    written = next(act.annotations for act in acts if isinstance(act, Bind))
    assert {CHIP, REAL, CONFIGURATION, "predicate-time", "distributed-job", RANK_INDEX} == set(written)
    assert status(acts)["phase"] == "Running"


def test_a_gang_that_is_short_of_a_node_gets_none() -> None:
    acts = play_session(world(*waiting(), nodes=3))
    assert bound(acts) == {}
    told = {act.reason for act in acts if isinstance(act, Explain)}
    assert told == {"Schedulable", "Unschedulable"}, "of some it says that they would fit"


def test_one_pod_that_ends_holds_every_other_of_its_group() -> None:
    old = running("p3", "n5", deletionTimestamp="now")
    rest = [running(f"p{number}", f"n{number}") for number in range(3)]
    acts = play_session(world(*rest, old, pod("new", annotations={RANK_INDEX: "3"})))
    assert bound(acts) == {}
    assert reasons(acts)["JobValidateFailed"] == "NotEnoughPod: the pods of job is not enough, req: 4, actual: 4"
    left = running("p3", "n5", deletionTimestamp="now", annotations={GROUP_NAME: "j-left"})
    assert set(bound(play_session(world(*rest, left, pod("new"))))) == {"new"}


def test_two_of_four_lost_and_one_replaced_is_held() -> None:
    acts = play_session(world(running("p0", "n0"), running("p1", "n1"), pod("p2")))
    assert bound(acts) == {}
    gang = "1/3 tasks in gang unschedulable: pod group is not ready, 1 Pending, 2 Running, 4 minAvailable"
    assert reasons(acts)["NotEnoughResources"] == gang


def test_gates_are_not_known_and_the_rest_starts_without() -> None:
    pods = waiting()
    pods[3]["spec"]["schedulingGates"] = [{"name": "training.hajob.io/gang"}]
    assert len(bound(play_session(world(*pods)))) == 4, "the server refuses the fourth, and three run"


def test_without_resources_in_the_group_no_chips_are_chosen() -> None:
    acts = play_session(world(*waiting(), of=group(spec={"minResources": None})))
    assert len(bound(acts)) == 4
    assert {REAL, CHIP}.isdisjoint(next(act.annotations for act in acts if isinstance(act, Bind)))


def test_more_chips_than_are_free_wait_outside() -> None:
    acts = play_session(world(*waiting(), of=group(phase="Pending"), nodes=2))
    assert status(acts)["phase"] == "Pending"
    assert reasons(acts)["JobEnqueueFailed"] == "require npu num is 32, but cluster npu num is 16"


def test_a_group_is_let_in_before_it_has_pods() -> None:
    assert status(play_session(world(of=group(phase=""))))["phase"] == "Inqueue"


def test_of_a_queue_that_does_not_exist_nothing_is_said() -> None:
    assert play_session(world(*waiting(), of=group(phase="", spec={"queue": "none"}))) == []


def test_a_full_queue_is_named_nowhere() -> None:
    queues = [{"metadata": {"name": "default"}, "spec": {"capability": {CHIP: "16"}}}]
    acts = play_session(world(*waiting(), queues=queues))
    assert bound(acts) == {}
    assert reasons(acts)["NodePredicateFailed"] == "Predicated-Nodes count: 6, nodes: [n0 ...]..., "


def test_what_the_jobs_of_a_queue_have_is_counted() -> None:
    (count,) = [act for act in play_session(world(*waiting())) if isinstance(act, CountQueue)]
    assert count.allocated == {CHIP: "32"}
    told = {"metadata": {"name": "default"}, "spec": {}, "status": {"allocated": {CHIP: "32"}}}
    pods = [running(f"p{number}", f"n{number}") for number in range(4)]
    assert not [act for act in play_session(world(*pods, queues=[told])) if isinstance(act, CountQueue)]


def test_conditions_are_never_taken_back() -> None:
    old = {"type": "Unschedulable", "status": "True", "reason": "JobEnqueueFailed", "message": "m"}
    acts = play_session(world(*waiting(), of=group(conditions=[{**old, "lastTransitionTime": "t"}])))
    assert status(acts)["phase"] == "Running"
    assert reasons(acts)["JobEnqueueFailed"] == "m"


def test_an_owner_that_is_no_controller_ends_the_scheduler() -> None:
    owners = [{key: value for key, value in OWNER[0].items() if key != "controller"}]
    with pytest.raises(SchedulerPanicError, match="nil pointer"):
        play_session(world(*waiting(), of=group(ownerReferences=owners)))


def test_a_stranger_in_the_group_gets_a_rank_index() -> None:
    stranger = pod("coordinator", chips=0)
    del stranger["metadata"]["annotations"][RANK_INDEX]
    acts = play_session(world(*waiting(), stranger, of=group(5)))
    written = {act.pod["metadata"]["name"]: act.annotations[RANK_INDEX] for act in acts if isinstance(act, Bind)}
    assert written["coordinator"] == "4"


def test_a_rank_goes_back_to_the_node_it_came_from() -> None:
    rest = [running(f"p{number}", f"n{number}") for number in range(3)]
    again = world(*rest, pod("p3"), previous={("j", "3"): "n5"})
    assert bound(play_session(again)) == {"p3": "n5"}


@pytest.mark.parametrize(
    ("labels", "deleted"),
    [
        ({}, set()),
        ({"fault-scheduling": "off"}, set()),
        ({"fault-scheduling": "force"}, {"p0", "p1", "p2", "p3"}),
        ({"fault-scheduling": "grace"}, {"p0", "p1", "p2", "p3"}),
        ({"fault-scheduling": "force", "pod-rescheduling": "on"}, {"p3"}),
    ],
)
def test_a_label_of_one_pod_deletes_all_on_a_lost_node(labels: dict[str, str], deleted: set[str]) -> None:
    machines = [node("n0"), node("n1"), node("n2"), node("n3", ready=False)]
    pods = [running(f"p{number}", f"n{number}") for number in range(4)]
    pods[0]["metadata"]["labels"] = labels
    acts = play_session(world(*pods, machines=machines, of=group(phase="Running")))
    assert {act.pod["metadata"]["name"] for act in acts if isinstance(act, DeletePod)} == deleted


def test_outside_rescheduling_only_marks_the_pod() -> None:
    machines = [node("n0"), node("n1", ready=False)]
    of = group(2, phase="Running", labels={"fault-scheduling": "external-force"})
    acts = play_session(world(running("p0", "n0"), running("p1", "n1"), machines=machines, of=of))
    (mark,) = [act for act in acts if isinstance(act, Annotate)]
    assert (mark.pod["metadata"]["name"], mark.annotations) == (
        "p1",
        {"huawei.com/pod-status": "Unhealthy-NodeUnhealthy"},
    )


def test_chips_that_nobody_has_told_make_a_node_useless() -> None:
    foreign = running("other", "n0", chips=2, annotations={GROUP_NAME: "", REAL: ""})
    del foreign["metadata"]["annotations"][REAL]
    found = World([foreign, pod("p0", chips=4)], [node("n0")], [group(1)], [QUEUE])
    assert bound(play_session(found)) == {}


def super_pods(first: int, second: int) -> list[Object]:
    found = []
    for number in range(first + second):
        made = node(f"n{number}")
        made["metadata"]["labels"] = {SUPER_POD: "a" if number < first else "b"}
        found.append(made)
    return found


IN_BLOCKS = {"huawei.com/schedule_policy": "chip2-node16-sp", "sp-block": "16"}


def test_a_gang_is_placed_in_blocks_of_super_pods() -> None:
    acts = play_session(world(*waiting(), of=group(annotations=IN_BLOCKS), machines=super_pods(3, 3)))
    where = {act.annotations[RANK_INDEX]: act.annotations["super-pod-id"] for act in acts if isinstance(act, Bind)}
    assert where == {"0": "a", "1": "a", "2": "b", "3": "b"}


def test_one_pod_in_blocks_wants_room_for_all_of_them() -> None:
    rest = [running(f"p{number}", name) for number, name in enumerate(("n0", "n1", "n3"))]
    of = group(annotations=IN_BLOCKS, phase="Running")
    acts = play_session(world(*rest, pod("p3"), of=of, machines=super_pods(3, 3)))
    assert bound(acts) == {}
    assert reasons(acts)["BatchOrderFailed"].startswith("select super pod failed, required 2, total 1")
    plain = play_session(world(*rest, pod("p3"), of=group(phase="Running"), machines=super_pods(3, 3)))
    assert set(bound(plain)) == {"p3"}


def test_blocks_that_do_not_come_out_whole_are_refused() -> None:
    of = group(annotations=IN_BLOCKS | {"sp-block": "24"})
    acts = play_session(world(*waiting(), of=of, machines=super_pods(3, 3)))
    assert bound(acts) == {}
    assert "require npu(32) should be multiple of sp-block" in reasons(acts)["JobValidateFailed"]


def test_an_extra_member_of_a_gang_costs_a_rank() -> None:
    """The spare is lower than the ranks, and on a later node; the group of the other job has passed the gate."""
    other = group(1, phase="Inqueue", name="high", uid="h") | {"ownerReferences": []}
    wanted = pod("w", annotations={GROUP_NAME: "high"})
    wanted["spec"]["priority"] = 1000
    ranks = [running(f"p{number}", f"n{number}") for number in range(4)]
    spare = running("spare", "n4")
    spare["spec"]["priority"] = -10

    def evicted(*pods: Object, waiting: Object = other) -> list[str]:
        found = world(*pods, wanted, of=group(phase="Running"), nodes=len(pods))
        found.groups = [*found.groups, waiting]
        return [act.pod["metadata"]["name"] for act in play_session(found) if isinstance(act, DeletePod)]

    assert evicted(*ranks) == []
    assert evicted(*ranks, spare) == ["p0"]
    spare["metadata"]["annotations"][GROUP_NAME] = "spares"
    assert evicted(*ranks, spare) == [], "in a group of its own it costs nobody"
    outside = group(5, phase="Pending", name="high", uid="h")
    assert evicted(*ranks, waiting=outside) == []
