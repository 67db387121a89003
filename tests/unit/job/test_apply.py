"""Changes that policies want are carried out once, each with its own retry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from hajob.api import constants as names
from hajob.job.apply import Applier
from hajob.job.pod_maker import PodMaker
from hajob.job.wants import Change, Create, Delete, Patch, Put, Wants, deletion_of_pod, merge_wants, patch_of_pod
from hajob.kube.client import ApiError
from hajob.pods.naming import pod_group_name
from hajob.sources.node import NodeView
from tests.rigs.fake_clock import FakeClock
from tests.rigs.fake_kube import FakeKube
from tests.rigs.snapshots import rank, snapshot

REFUSED = ApiError(403, "Forbidden", "exceeded quota")


class Town:
    """An applier, and the server that it writes to."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.kube = FakeKube(self.clock)
        self.applier = Applier(self.kube, self.clock, cast("PodMaker", None), "default/job")

    async def want(self, *changes: Change) -> int:
        """Want these, and carry out what is due; return how many changes were."""
        due = self.applier.changes_to_try(changes)
        await self.applier.apply_changes(due)
        return len(due)


@pytest.fixture
def town() -> Town:
    return Town()


def pod(name: str, **metadata: Any) -> Create:
    body = {
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }
    return Create(resource="pods", namespace="default", name=name, body=body)


def budget(least: int) -> Put:
    body = {"metadata": {"name": "ranks", "namespace": "default"}, "spec": {"minAvailable": least, "selector": {}}}
    return Put(resource="poddisruptionbudgets", namespace="default", name="ranks", body=body, fields=("minAvailable",))


async def test_what_is_done_is_not_done_again(town: Town) -> None:
    assert await town.want(pod("a")) == 1
    assert [verb for verb, _, _ in town.kube.writes] == ["create"]
    assert await town.want(pod("a")) == 0
    assert await town.want(pod("a", labels={"time": "later"})) == 0, "an object is created once"
    assert await town.want() == 0
    assert await town.want(pod("a")) == 1, "what was not wanted meanwhile is wanted anew"


async def test_a_changed_budget_is_written_and_an_equal_one_is_not(town: Town) -> None:
    town.kube.put("poddisruptionbudgets", "default", budget(4).body)
    await town.want(budget(4))
    assert town.kube.writes == []
    await town.want(budget(3))
    assert [verb for verb, _, _ in town.kube.writes] == ["patch"]
    assert town.kube.objects["poddisruptionbudgets", "default", "ranks"]["spec"]["minAvailable"] == 3


async def test_a_refused_change_is_tried_later_and_keeps_no_other(town: Town) -> None:
    town.kube.fail(REFUSED)
    assert await town.want(pod("a"), pod("b")) == 2
    assert len(town.kube.writes) == 1
    assert town.applier.refusals[pod("a").key] is REFUSED
    assert await town.want(pod("a"), pod("b")) == 0
    await town.clock.advance(town.applier.next_try_time - town.clock.monotonic())
    assert await town.want(pod("a"), pod("b")) == 1
    assert len(town.kube.writes) == 2
    assert not town.applier.refusals


async def test_retries_come_later_each_time_though_the_change_changes(town: Town) -> None:
    waits = []
    for least in range(5):
        town.kube.fail(REFUSED)
        await town.want(budget(least))
        waits.append(town.applier.next_try_time - town.clock.monotonic())
        assert await town.want(budget(least + 1)) == 0, "another value is no reason to ask at once"
        await town.clock.advance(waits[-1])
    assert waits[-1] > 3 * waits[0]


async def test_that_nobody_answers_is_no_refusal(town: Town) -> None:
    town.kube.fail(ApiError(0, "Unreachable", "no answer"))
    await town.want(pod("a"))
    assert not town.applier.refusals
    assert town.applier.next_try_time > town.clock.monotonic()


async def test_a_change_of_what_is_gone_is_done(town: Town) -> None:
    gone = Patch(
        resource="pods", namespace="default", name="a", uid="u", body={"metadata": {}}, settled_by=frozenset({404})
    )
    assert await town.want(gone) == 1
    assert await town.want(gone) == 0


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"labels": {"mine": "yes"}}},
        [{"op": "add", "path": "/metadata/labels", "value": {"mine": "yes"}}],
    ],
)
async def test_a_patch_leaves_another_pod_of_the_name_alone(town: Town, body: Any) -> None:
    await town.want(pod("a"))
    stored = town.kube.objects["pods", "default", "a"]
    patch = patch_of_pod(rank(0, namespace="default", name="a", uid="another"), body)
    await town.want(patch)
    assert "labels" not in town.kube.objects["pods", "default", "a"]["metadata"]
    await town.want(replace(patch, uid=stored["metadata"]["uid"]))
    assert town.kube.objects["pods", "default", "a"]["metadata"]["labels"] == {"mine": "yes"}


def test_a_pod_that_goes_is_not_patched() -> None:
    going = rank(0)
    gate = Patch(resource="pods", namespace=going.namespace, name=going.name, uid=going.uid, body=[])
    wants = merge_wants([Wants(changes=(gate,)), Wants(changes=(deletion_of_pod(snapshot(), going),))])
    assert [type(change) for change in wants.changes] == [Delete]


async def test_a_pod_leaves_its_group_before_it_goes(town: Town) -> None:
    """Volcano places no other pod of the group as long as one in it is being deleted."""
    job = snapshot({"scheduling": {"gangPolicy": "Volcano"}})
    group = pod_group_name(job.job)
    await town.want(pod("a", annotations={names.ANNOTATION_GROUP_NAME: group}))
    stored = town.kube.objects["pods", "default", "a"]
    deletion = deletion_of_pod(job, rank(0, namespace="default", name="a", uid=stored["metadata"]["uid"], group=group))
    town.kube.writes.clear()
    await town.want(deletion)
    ((_, _, patch),) = town.kube.writes
    assert patch["body"]["metadata"]["annotations"] == {names.ANNOTATION_GROUP_NAME: f"{group}-left"}
    assert ("pods", "default", "a") not in town.kube.objects


async def test_a_pod_that_may_not_leave_its_group_goes_all_the_same(town: Town) -> None:
    job = snapshot({"scheduling": {"gangPolicy": "Volcano"}})
    await town.want(pod("a"))
    uid = town.kube.objects["pods", "default", "a"]["metadata"]["uid"]
    deletion = deletion_of_pod(job, rank(0, namespace="default", name="a", uid=uid, group=pod_group_name(job.job)))
    town.kube.fail(REFUSED)
    await town.want(deletion)
    assert ("pods", "default", "a") not in town.kube.objects
    assert not town.applier.refusals


def test_who_is_in_no_group_of_the_job_only_goes() -> None:
    assert deletion_of_pod(snapshot(), rank(0, group="mine")).before is None


async def test_a_pod_is_deleted_once_and_again_without_grace(town: Town) -> None:
    """Its node goes away after it was asked to end: only the second deletion, which is another one, ends it."""
    await town.want(pod("a"))
    stored = town.kube.objects["pods", "default", "a"]
    going = rank(0, namespace="default", name="a", uid=stored["metadata"]["uid"])
    there, away = snapshot(nodes=[NodeView("node-0")]), snapshot(nodes=[NodeView("node-0", ready=False)])
    assert await town.want(deletion_of_pod(there, going)) == 1
    assert await town.want(deletion_of_pod(there, going)) == 0
    forced = deletion_of_pod(away, going)
    assert (forced.grace_seconds, forced.ranks_may_live_on) == (0, "node-0")
    assert await town.want(forced) == 1
    assert await town.want(forced) == 0
