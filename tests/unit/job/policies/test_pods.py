"""The pods that a job should have: which are made, which are deleted, and what keeps them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hajob.domain.actions import Action
from hajob.domain.facts import Origin
from hajob.domain.incidents import Cause, Incident, Purpose
from hajob.job.policies.gang_start import GangMemo
from hajob.job.policies.outdated_pods import BootMemo
from hajob.job.policies.pods import PodMemo, want_pods
from hajob.job.snapshot import CreationMemo, JobSnapshot
from hajob.job.wants import Delete, MakePods, Wants
from hajob.kube.client import ApiError
from hajob.plan.placements import CoordinatorPlacement, Placement
from hajob.plan.state import JobPhase
from hajob.pods.naming import rank_pod_name
from hajob.sources.pod import PodView
from tests.rigs.snapshots import NOW, RUNNING, rank, snapshot

SECOND = replace(RUNNING, incarnation=2, attempt=2, base=2, coordinator=2)


def wanted(made: JobSnapshot) -> Wants:
    return want_pods(made, PodMemo(), GangMemo(), BootMemo())


def rows(wants: Wants) -> tuple[int, int]:
    """Rank pods and coordinators that are to be made."""
    placements = [one for change in wants.changes if isinstance(change, MakePods) for one in change.placements]
    return sum(isinstance(one, Placement) for one in placements), sum(
        isinstance(one, CoordinatorPlacement) for one in placements
    )


def as_made(node_rank: int, incarnation: int = 1, **fields: Any) -> PodView:
    job = snapshot().job
    return rank(node_rank, name=rank_pod_name(job, node_rank, incarnation), incarnation=incarnation, **fields)


def test_a_new_job_gets_its_pods_once_that_is_on_record() -> None:
    wants = wanted(snapshot())
    assert rows(wants) == (4, 1)
    assert all(change.follows_status for change in wants.changes)
    assert rows(wanted(snapshot(pods=[as_made(0), as_made(2)]))) == (2, 1)


def test_a_new_start_makes_a_pod_for_each_old_one_that_is_gone() -> None:
    wants = wanted(snapshot(state=SECOND, pods=[as_made(0), as_made(1), as_made(2)]))
    assert len([change for change in wants.changes if isinstance(change, Delete)]) == 3
    assert rows(wants) == (1, 1)


@pytest.mark.parametrize(
    ("held_from", "lost_ranks", "made"),
    [(JobPhase.PENDING, (0, 1), 1), (JobPhase.PENDING, (6, 7), 0), (JobPhase.RUNNING, (0, 1), 0)],
    ids=["never made", "lost at the start", "lost in the training"],
)
def test_a_held_start_gets_the_pods_it_never_had(held_from: JobPhase, lost_ranks: tuple[int, ...], made: int) -> None:
    """A quota had refused the last pod when a fault came, and Observe holds only what would follow from the fault."""
    incident = Incident(
        2, 2, 0, Purpose.FAULT, Origin.INFRASTRUCTURE, Action.REPLACE, Cause(), 0, lost_ranks=lost_ranks
    )
    state = replace(RUNNING, phase=JobPhase.HELD, held_from=held_from, incident=incident)
    pods = [as_made(number) for number in range(3)]
    assert rows(wanted(snapshot({"recovery": {"mode": "Observe"}}, state=state, pods=pods))) == (made, 1)


def test_nodes_that_refuse_rank_pods_keep_no_coordinator() -> None:
    """What they refuse is told while a rank pod is missing, a coordinator that is made beside it or not."""
    memo = CreationMemo()
    for number in range(3):
        memo.count_refused_pod(as_made(1, uid=f"uid-{number}", phase="Failed"), NOW)
    ranks = [as_made(number) for number in range(4)]
    assert rows(wanted(snapshot(pods=ranks, creation=memo))) == (0, 1)
    assert memo.why_missing is None
    wants = wanted(snapshot(pods=ranks[1:], creation=memo))
    assert rows(wants) == (0, 1)
    assert memo.why_missing is not None
    assert memo.why_missing.code == "NodeRefuses"
    assert wants.again_at == memo.next_at > NOW
    assert rows(wanted(snapshot(creation=memo, now=memo.next_at))) == (4, 1)


def test_why_pods_are_missing_is_said_until_they_are_there() -> None:
    memo, ranks = CreationMemo(), [as_made(number) for number in range(4)]
    (row,) = wanted(snapshot()).changes
    refusals = {row.key: ApiError(403, "Forbidden", "exceeded quota: q")}
    wanted(snapshot(creation=memo, answers={"refusals": refusals}))
    assert memo.why_missing is not None
    assert memo.why_missing.over_quota
    wanted(snapshot(creation=memo))
    assert memo.why_missing is not None, "the server has not answered again"
    wanted(snapshot(creation=memo, pods=ranks, state=replace(RUNNING, coordinator=0)))
    assert memo.why_missing is None
