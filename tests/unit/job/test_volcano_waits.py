"""A start that Volcano holds back waits for places, with its queue's name; one that it is about to place does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.job.observe import events_of_places
from hajob.job.snapshot import JobSnapshot
from hajob.kube.client import ApiError
from hajob.plan import events
from hajob.plan.checks import JobSetting
from hajob.plan.sizes import StartSizes
from hajob.plan.state import JobPhase, Shrunk
from hajob.pods.naming import pod_group_name
from hajob.sources.node import NodeView
from hajob.sources.pod_group import PATIENCE_SECONDS, PodGroupView, VolcanoQueue
from tests.rigs.snapshots import RUNNING, rank, snapshot

PENDING = replace(RUNNING, phase=JobPhase.PENDING)
GROUP = PodGroupView(
    "team-a", pod_group_name(snapshot().job), "uid-of-group", queue="research", made="2026-11-21T10:00:00Z"
)
"""Made at the wall time of snapshots."""


def waiting(group: PodGroupView | None, *, unschedulable: str = "", **fields: Any) -> JobSnapshot:
    pods = [
        rank(number, node_name="", phase="Pending", ready=False, unschedulable=unschedulable) for number in range(4)
    ]
    found = snapshot({"scheduling": {"gangPolicy": "Volcano"}}, pods=pods, state=PENDING, **fields)
    found.cluster.pod_groups.queues_are_known = True
    if group is not None:
        found.cluster.pod_groups.store_group(group)
    return found


def told(found: JobSnapshot) -> list[str]:
    return [one.message for one in events_of_places(found) if isinstance(one, events.PlacesMissing)]


def test_a_queue_that_is_not_there_is_told_after_a_while() -> None:
    """Volcano says nothing of such a group, and of its pods neither."""
    fresh = waiting(GROUP)
    assert told(fresh) == []
    assert told(waiting(GROUP, wall_seconds=fresh.wall_seconds + PATIENCE_SECONDS)) == [
        "queue research of Volcano: there is no such queue: create it, or name another one in spec.scheduling.queueName"
    ]


def test_what_volcano_says_of_pods_is_told_with_the_queue() -> None:
    reasons = (("NodePredicateFailed", "0/7 nodes are unavailable: 7 Insufficient chips."),)
    found = waiting(replace(GROUP, phase="Inqueue", reasons=reasons), unschedulable="4/4 tasks in gang unschedulable")
    assert told(found) == ["queue research of Volcano: 0/7 nodes are unavailable: 7 Insufficient chips."]


def test_a_group_that_cannot_be_made_is_told() -> None:
    key = ("Create", names.POD_GROUPS, "team-a", GROUP.name)
    refusals = {key: ApiError(403, "Forbidden", "podgroups is forbidden")}
    found = waiting(None, answers={"refusals": refusals})
    assert told(found) == ["no PodGroup of Volcano can be made: podgroups is forbidden"]


def test_a_job_with_all_its_nodes_waits_for_nothing() -> None:
    """Its conditions still say that it is unschedulable: they are never taken back."""
    pods = [rank(number) for number in range(4)]
    found = snapshot({"scheduling": {"gangPolicy": "Volcano"}}, pods=pods, state=PENDING)
    found.cluster.pod_groups.store_group(replace(GROUP, phase="Running", reasons=(("JobEnqueueFailed", "old"),)))
    assert (found.gang_wait, told(found)) == ("", [])


def test_a_growth_that_its_queue_has_no_room_for_is_held_back() -> None:
    pods = [rank(number) for number in range(3)]
    shrunk = replace(
        RUNNING, phase=JobPhase.SHRUNK, shrunk=Shrunk(dropped=(3,), ranks=(6, 7), nodes=(3,), lost_nodes=(3,))
    )
    found = snapshot({"scheduling": {"gangPolicy": "Volcano"}}, pods=pods, state=shrunk)
    found.cluster.pod_groups.store_group(replace(GROUP, phase="Running"))
    chip = names.DEFAULT_RESOURCE_NAME
    found.cluster.pod_groups.store_queue(VolcanoQueue("research", capability=((chip, 8),), allocated=((chip, 7),)))
    assert found.growth_refused == f"queue research of Volcano is full: it may have 8 {chip} and has 7; needed: 2"
    found.cluster.pod_groups.store_queue(VolcanoQueue("research", capability=((chip, 8),), allocated=((chip, 6),)))
    assert found.growth_refused == ""


def sized(*queues: VolcanoQueue, placed: int = 4) -> JobSnapshot:
    """A job that may start with fewer nodes, so many of whose pods have one; there are ten free ones."""
    of_group = {"group": GROUP.name, "requests": ((names.DEFAULT_RESOURCE_NAME, 2),)}
    pods = [rank(number, **of_group) for number in range(placed)]
    spec = {
        "scheduling": {"gangPolicy": "Volcano", "queueName": "research"},
        "elastic": {"restartSize": "Available"},
        "checkpoint": {"path": "/ckpt/run", "format": "TorchDist"},
    }
    nodes = [NodeView(f"free-{number}", chips={names.DEFAULT_RESOURCE_NAME: 2}) for number in range(10)]
    found = snapshot(spec, pods=pods, state=RUNNING, nodes=nodes)
    sizes = StartSizes(JobSetting.from_spec(found.job.spec))
    found = replace(found, policy=replace(found.policy, sizes=sizes))
    found.cluster.pod_groups.store_group(GROUP)
    for queue in queues:
        found.cluster.pod_groups.store_queue(queue)
    return found


@pytest.mark.parametrize(
    ("limit", "used", "nodes"), [(None, 40, 10), (8, 8, 4), (100, 98, 5), (8, 12, 2), (4, 8, 2), (0, 8, 0)]
)
def test_a_start_has_what_its_queue_leaves_it(limit: int | None, used: int, nodes: int) -> None:
    """What the job itself has there comes back; a limit may be lowered below what is used."""
    chip = names.DEFAULT_RESOURCE_NAME
    capability = ((chip, limit),) if limit is not None else ()
    assert sized(VolcanoQueue("research", capability=capability, allocated=((chip, used),))).start_nodes == nodes
