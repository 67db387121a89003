"""Why Volcano places nothing is told with the name of the queue first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hajob.capacity.pod_group_waits import why_group_waits
from hajob.capacity.pod_groups import PodGroups
from hajob.sources.pod_group import PodGroupView, VolcanoQueue, pod_group_view_of

CHIP = "huawei.com/Ascend910"
GROUP = PodGroupView(
    "team-a", "qwen-80fae863", "uid", queue="research", requests=((CHIP, 32),), made="2026-01-01T00:00:05Z"
)


def known(*queues: VolcanoQueue, others: tuple[PodGroupView, ...] = ()) -> PodGroups:
    found = PodGroups(queues_are_known=True)
    for queue in queues:
        found.store_queue(queue)
    for group in others:
        found.store_group(group)
    return found


def told(group: PodGroupView, found: PodGroups | None = None, **more: Any) -> str:
    return why_group_waits(group, found or known(VolcanoQueue("research")), CHIP, **more)


def test_a_queue_that_does_not_exist_is_named() -> None:
    assert told(GROUP, known()) == (
        "queue research of Volcano: there is no such queue: create it, or name another one in spec.scheduling.queueName"
    )
    assert "the queue is closed" in told(GROUP, known(VolcanoQueue("research", is_open=False)))


def test_nobody_schedules() -> None:
    assert told(GROUP).endswith("no scheduler has looked at the job's PodGroup: does Volcano's scheduler run?")
    not_listed = PodGroups()
    assert "no scheduler" in told(GROUP, not_listed), "what is not known is not said to be missing"


def test_chips_that_are_wanted_at_once_are_counted() -> None:
    wanted = ("JobEnqueueFailed", "require npu num is 32, but cluster npu num is 16")
    waiting = replace(GROUP, phase="Pending", reasons=(wanted,))
    assert told(waiting) == f"queue research of Volcano: wanted at once: 32 {CHIP}, free: 16"


def test_who_waits_before_is_named() -> None:
    earlier = replace(GROUP, name="llama", phase="Pending", made="2026-01-01T00:00:01Z")
    later = replace(earlier, name="later", made="2026-01-01T00:00:09Z")
    elsewhere = replace(earlier, name="elsewhere", queue="default")
    important = replace(earlier, name="important", priority_class="high")
    let_in = replace(earlier, name="let-in", phase="Inqueue")
    runs = replace(earlier, name="runs", phase="Running")
    waiting = replace(GROUP, phase="Pending")
    found = known(VolcanoQueue("research"), others=(earlier, later, elsewhere, important, let_in, runs))
    assert told(waiting, found).endswith("the job is not let in yet; before it wait team-a/let-in, team-a/llama")
    replaced = replace(GROUP, phase="Unknown", reasons=(("NodePredicateFailed", "0/7 nodes are unavailable"),))
    assert "before it" not in told(replaced, found), "a single pod passes a gang that waits"


def test_a_full_queue_is_told_though_volcano_names_it_nowhere() -> None:
    full = VolcanoQueue("research", capability=((CHIP, 48),), allocated=((CHIP, 24),))
    bare = ("NodePredicateFailed", "Predicated-Nodes count: 7, nodes: [cpu-0 npu-1]..., ")
    waiting = replace(GROUP, phase="Inqueue", reasons=(("NotEnoughResources", "2/5 tasks"), bare))
    assert told(waiting, known(full)) == (
        f"queue research of Volcano is full: it may have 48 {CHIP} and has 24; needed: 32"
    )


def test_a_full_queue_is_told_beside_nodes_that_are_of_no_use() -> None:
    """Some nodes would do, others have not the labels, of which alone Volcano speaks."""
    others = "0/16 nodes are unavailable: 8 node(s) didn't match Pod's node affinity/selector."
    mixed = ("NodePredicateFailed", f"Predicated-Nodes count: 8, nodes: [npu-0 npu-1]..., {others}")
    waiting = replace(GROUP, phase="Inqueue", reasons=(mixed,))
    full = VolcanoQueue("research", capability=((CHIP, 48),), allocated=((CHIP, 24),))
    assert told(waiting, known(full)).endswith(f"is full: it may have 48 {CHIP} and has 24; needed: 32")
    assert told(waiting) == f"queue research of Volcano: {others}"
    refused = ("JobValidateFailed", "InvalidResourceRequest: 3 chips")
    assert "refuses the job" in told(replace(waiting, reasons=(refused,)), known(full)), "no room would help that"


def test_a_full_queue_is_measured_by_what_is_missing() -> None:
    """Of four nodes one is replaced, and another job took its chips meanwhile; then the chips come back."""
    bare = ("NodePredicateFailed", "Predicated-Nodes count: 7, nodes: [cpu-0 npu-1]..., ")
    short = replace(GROUP, phase="Unknown", reasons=(bare,))
    full = VolcanoQueue("research", capability=((CHIP, 32),), allocated=((CHIP, 32),))
    assert told(short, known(full), missing=8).endswith(f"is full: it may have 32 {CHIP} and has 32; needed: 8")
    assert told(short, known(replace(full, allocated=((CHIP, 24),))), missing=8) == ""


def test_without_the_plugin_the_pods_own_words_are_told() -> None:
    """Of Volcano alone a PodGroup says only that the gang is short."""
    waiting = replace(GROUP, phase="Inqueue", reasons=(("NotEnoughResources", "4/4 tasks in gang unschedulable"),))
    words = "1 pod without a node: 0/7 nodes are unavailable"
    assert told(waiting, otherwise=words) == f"queue research of Volcano: {words}"


def test_what_the_plugin_refuses_is_told_in_its_words() -> None:
    refused = ("JobValidateFailed", "InvalidResourceRequest: expected: job req npu num should small than 8")
    waiting = replace(GROUP, phase="Inqueue", reasons=(refused,))
    assert told(waiting).endswith(
        "its Ascend plugin refuses the job: InvalidResourceRequest: expected: job req npu num should small than 8"
    )


def test_pods_that_hold_the_others_by_ending_are_told() -> None:
    held = ("JobValidateFailed", "NotEnoughPod: the pods of job is not enough, req: 5, actual: 5")
    assert "pods of the job that are ending hold the others" in told(replace(GROUP, phase="Unknown", reasons=(held,)))


def test_the_newest_condition_counts_and_no_old_one() -> None:
    def condition(reason: str, message: str, second: int) -> dict[str, str]:
        at = f"2026-01-01T00:00:0{second}Z"
        return {"type": "Unschedulable", "status": "True", "reason": reason, "message": message} | {
            "lastTransitionTime": at
        }

    raw = {
        "metadata": {"name": "g", "namespace": "team-a", "uid": "u"},
        "spec": {"queue": "research", "minMember": 4, "minResources": {CHIP: "32", "cpu": "8"}},
        "status": {
            "phase": "Unknown",
            "conditions": [
                condition("JobValidateFailed", "NotEnoughPod: old", 1),
                condition("NodePredicateFailed", "0/7 nodes are unavailable: 7 Insufficient chips.", 2),
            ],
        },
    }
    view = pod_group_view_of(raw)
    assert (view.min_member, view.requests) == (4, ((CHIP, 32),))
    assert told(view) == "queue research of Volcano: 0/7 nodes are unavailable: 7 Insufficient chips."


def test_what_was_true_before_a_wait_is_not_told_of_it() -> None:
    """It ran in between; now it is short of a pod that nobody has made, of which the old words say nothing."""

    def condition(reason: str, message: str, at: str) -> dict[str, str]:
        return {"type": "Unschedulable", "status": "True", "reason": reason, "message": message} | {
            "lastTransitionTime": f"2026-01-01T{at}Z"
        }

    gang = condition("NotEnoughResources", "2/4 tasks in gang unschedulable: 1 Pending, 2 Running", "03:00:00")
    old = condition("NodePredicateFailed", "0/7 nodes are unavailable: 7 Insufficient chips.", "00:00:00")
    raw: dict[str, Any] = {"spec": {"queue": "research"}, "status": {"phase": "Unknown", "conditions": [old, gang]}}
    assert told(pod_group_view_of(raw)) == ""
    raw["status"]["conditions"] = [{**old, "lastTransitionTime": "2026-01-01T02:59:59Z"}, gang]
    assert told(pod_group_view_of(raw)) == "queue research of Volcano: 0/7 nodes are unavailable: 7 Insufficient chips."


def test_of_a_group_that_is_let_in_and_silent_nothing_is_told() -> None:
    assert told(replace(GROUP, phase="Inqueue")) == ""
