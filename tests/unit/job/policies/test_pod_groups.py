"""The PodGroups of a job, and which of its pods are in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.job.policies.pod_groups import want_pod_groups
from hajob.job.snapshot import JobSnapshot
from hajob.job.wants import Change, Create, Delete, Patch
from hajob.plan.state import JobPhase
from hajob.pods.naming import pod_group_name
from hajob.sources.pod import PodView
from hajob.sources.pod_group import PodGroupView
from tests.rigs.snapshots import RUNNING, rank, snapshot

VOLCANO = {"scheduling": {"gangPolicy": "Volcano"}}
GROUP = pod_group_name(snapshot().job)
SPARES = pod_group_name(snapshot().job, names.ROLE_SPARE)
EXISTING = PodGroupView(
    "team-a", GROUP, "uid-of-group", min_member=4, queue="default", phase="Running", policy=("chip8-node8", "")
)


def made(
    *, pods: Iterable[PodView] = (), groups: Iterable[PodGroupView] = (), scheduling: Any = None, **fields: Any
) -> JobSnapshot:
    found = snapshot({"scheduling": {"gangPolicy": "Volcano", **(scheduling or {})}}, pods=pods, **fields)
    for group in groups:
        found.cluster.pod_groups.store_group(group)
    return found


def members(**fields: Any) -> list[PodView]:
    return [rank(number, group=GROUP, **fields) for number in range(4)]


def changes(found: JobSnapshot) -> tuple[Change, ...]:
    return want_pod_groups(found).changes


def test_a_group_of_all_ranks_is_made_before_their_pods() -> None:
    (creation,) = changes(made(state=replace(RUNNING, phase=JobPhase.PENDING)))
    assert isinstance(creation, Create)
    assert (creation.resource, creation.name, creation.follows_status) == ("podgroups", GROUP, False)
    assert creation.body["spec"]["minMember"] == 4


def test_a_group_as_it_should_be_is_left_alone() -> None:
    assert changes(made(pods=members(), groups=[EXISTING])) == ()


def test_a_job_that_shrank_asks_for_fewer_members_only() -> None:
    shrunk = replace(RUNNING, phase=JobPhase.SHRUNK, released=(3,))
    (patch,) = changes(made(pods=members()[:3], groups=[EXISTING], state=shrunk))
    assert isinstance(patch, Patch)
    assert patch.body == {"spec": {"minMember": 3, "queue": "default"}}, "the resources stay those of the full size"


@pytest.mark.parametrize("phase", [JobPhase.SUSPENDED, JobPhase.COMPLETE, JobPhase.FAILED])
def test_a_queue_is_not_held_by_a_job_without_a_training(phase: JobPhase) -> None:
    (deletion,) = changes(made(groups=[EXISTING], state=replace(RUNNING, phase=phase)))
    assert isinstance(deletion, Delete)
    assert (deletion.resource, deletion.uid) == ("podgroups", "uid-of-group")


def test_a_pod_that_somebody_deletes_leaves_its_group() -> None:
    pods = [*members()[:3], rank(3, group=GROUP, deleting=True)]
    (patch,) = changes(made(pods=pods, groups=[EXISTING]))
    assert isinstance(patch, Patch)
    assert (patch.uid, patch.body) == (
        "uid-of-job-3",
        {"metadata": {"annotations": {names.ANNOTATION_GROUP_NAME: f"{GROUP}-left"}}},
    )
    gone = [*members()[:3], rank(3, group=f"{GROUP}-left", deleting=True)]
    assert changes(made(pods=gone, groups=[EXISTING])) == ()


def test_a_pod_that_serves_joins_the_group() -> None:
    """A warm spare, whose adoption was seen half, or a job that was started before it was Volcano's."""
    (patch,) = changes(made(pods=[*members()[:3], rank(3, group=SPARES)], groups=[EXISTING]))
    assert isinstance(patch, Patch)
    assert patch.body == {"metadata": {"annotations": {names.ANNOTATION_GROUP_NAME: GROUP}}}


def test_groups_that_are_the_users_own_are_none_of_ours() -> None:
    theirs = [rank(number, group="mine", deleting=True) for number in range(4)]
    assert want_pod_groups(snapshot(pods=theirs)).changes == ()


def test_spares_have_a_group_where_each_comes_as_it_can() -> None:
    (creation,) = changes(made(pods=members(), groups=[EXISTING], scheduling={"numSpareNodes": 2}))
    assert isinstance(creation, Create)
    assert creation.name == SPARES
    assert creation.body["spec"]["minMember"] == 1
    assert creation.body["spec"]["minResources"] == {"huawei.com/Ascend910": "2"}


BLOCKS = {"accelerator": {"product": "A3", "chipsPerNode": 2, "superPodChips": 4}}
IN_BLOCKS = ("chip2-node16-sp", "4")


def in_super_pods(*, placed: int, policy: tuple[str, str], phase: JobPhase = JobPhase.PENDING) -> JobSnapshot:
    """A start of four pods in blocks of two, so many of which have a node."""
    pods = [rank(number, group=GROUP, **({} if number < placed else {"node_name": ""})) for number in range(4)]
    state = replace(RUNNING, phase=phase)
    found = snapshot({"scheduling": {"gangPolicy": "Volcano"}, **BLOCKS}, pods=pods, state=state)
    found.cluster.pod_groups.store_group(replace(EXISTING, policy=policy))
    return found


def test_a_whole_job_is_placed_in_blocks_and_no_single_pod() -> None:
    """Else a replacement would wait until there is room for all blocks once more, and come into any super pod."""
    assert changes(in_super_pods(placed=0, policy=IN_BLOCKS)) == ()
    (patch,) = changes(in_super_pods(placed=4, policy=IN_BLOCKS))
    assert isinstance(patch, Patch)
    annotations = {"huawei.com/schedule_policy": "chip2-node16", "sp-block": None}
    assert patch.body == {"metadata": {"annotations": annotations}}
    assert changes(in_super_pods(placed=4, policy=("chip2-node16", ""), phase=JobPhase.RUNNING)) == ()
    (again,) = changes(in_super_pods(placed=0, policy=("chip2-node16", ""), phase=JobPhase.RESTARTING))
    assert isinstance(again, Patch)
    assert again.body == {"metadata": {"annotations": {"huawei.com/schedule_policy": IN_BLOCKS[0], "sp-block": "4"}}}
