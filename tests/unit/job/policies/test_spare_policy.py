"""How many spares a job wants, what is said of those that are missing, and how one becomes a rank pod."""

from dataclasses import replace
from typing import Any

from hajob.api import constants as names
from hajob.job.policies.pods import placed_pod_name
from hajob.job.policies.spares import PATIENCE_SECONDS, STUCK_SECONDS, SpareMemo, patch_to_adopt, want_spares
from hajob.job.snapshot import JobSnapshot
from hajob.job.wants import Create, Delete, Patch
from hajob.kube.client import ApiError
from hajob.plan.placements import Placement
from hajob.pods.naming import rank_pod_name, spare_pod_name
from hajob.sources.pod import PodView
from tests.rigs.snapshots import NOW, rank, snapshot

RANKS = [rank(number) for number in range(4)]
QUOTA = ApiError(403, "Forbidden", "exceeded quota: chips")


def seen(*spare_pods: PodView, ready: bool = False, mode: str = "Placeholder", **fields: Any) -> JobSnapshot:
    """The quickstart job, which wants one spare, with these pods of spares."""
    spec = {"scheduling": {"numSpareNodes": 1, "spareMode": mode}}
    dear = {
        "ready_spares": [pod for pod in spare_pods if ready],
        "nodes_not_to_hold": set(),
        "may_hold_spare": lambda _: True,
    }
    return snapshot(spec, pods=[*RANKS, *spare_pods], dear=dear, **fields)


def spare(**fields: Any) -> PodView:
    job = seen().job
    pod = replace(RANKS[0], name=spare_pod_name(job, 0), uid="uid-of-a-spare", role=names.ROLE_SPARE, node_rank=-1)
    return replace(pod, **{"node_name": "node-9", **fields})


def test_a_missing_spare_is_made() -> None:
    (creation,) = want_spares(seen(), SpareMemo()).changes
    assert isinstance(creation, Create)
    assert creation.body["metadata"]["name"] == spare().name


def test_a_spare_stays_when_a_lower_number_is_free() -> None:
    """The lost pod had been spare 0, and its end is seen before the spare's new role: it is about to become a rank."""
    second = replace(spare(warm=True), name=spare_pod_name(seen().job, 1))
    assert not want_spares(seen(second, ready=True, mode="Warm"), SpareMemo()).changes


def test_a_spare_that_a_finalizer_keeps_is_made_anew() -> None:
    """No kubelet has it any more, and whoever set the finalizer may never take it away."""
    (creation,) = want_spares(seen(spare(deleting=True, left_over=True)), SpareMemo()).changes
    assert creation.name == spare_pod_name(seen().job, 1)


def test_of_two_spares_the_one_that_ends_goes_first() -> None:
    ends, well = spare(deleting=True), spare(name=spare_pod_name(seen().job, 1), uid="uid-of-another")
    assert not want_spares(seen(ends, well), SpareMemo()).changes, "one spare is wanted, and one of the two is leaving"


def test_a_refusal_is_told_until_the_spare_is_ready() -> None:
    memo = SpareMemo()
    (creation,) = want_spares(seen(), memo).changes
    want_spares(seen(answers={"refusals": {creation.key: QUOTA}}), memo)
    assert memo.why_missing is not None
    assert memo.why_missing.over_quota
    want_spares(seen(spare(), ready=True), memo)
    assert memo.why_missing is None


def test_a_spare_that_ends_goes_and_the_next_one_waits() -> None:
    memo = SpareMemo()
    wants = want_spares(seen(spare(phase="Failed", trouble="no such file")), memo)
    assert [type(change) for change in wants.changes] == [Delete]
    waits = want_spares(seen(), memo)
    assert not waits.changes
    assert memo.why_missing is not None
    assert "no such file" in memo.why_missing.message
    assert NOW < waits.again_at <= NOW + 5
    assert want_spares(seen(now=waits.again_at), memo).changes


def test_the_scheduler_is_waited_for_but_not_for_long() -> None:
    memo, held = SpareMemo(), spare()
    lost = rank(1, node_name="", place="node-9", ready=False)

    def wants(seconds: float) -> list[str]:
        made = snapshot(
            {"scheduling": {"numSpareNodes": 1}},
            pods=[RANKS[0], lost, *RANKS[2:], held],
            now=NOW + seconds,
            dear={"ready_spares": [held], "nodes_not_to_hold": set(), "may_hold_spare": lambda _: True},
        )
        return [change.name for change in want_spares(made, memo).changes if isinstance(change, Delete)]

    assert wants(0) == []
    assert wants(PATIENCE_SECONDS) == [held.name]
    assert wants(STUCK_SECONDS) == [held.name], "the pod itself is stuck only where the scheduler says so"


def test_a_warm_spare_becomes_the_rank_pod_of_its_node() -> None:
    warm, placement = spare(warm=True), Placement(node_rank=1, incarnation=7, avoid=(), place="node-9")
    made = seen(warm, ready=True, mode="Warm")
    patch = patch_to_adopt(made, placement)
    assert isinstance(patch, Patch)
    assert patch.uid == warm.uid
    assert isinstance(patch.body, dict)
    assert patch.body["metadata"]["labels"][names.LABEL_INCARNATION] == "7"
    assert placed_pod_name(made.job, placement) == rank_pod_name(made.job, 1, 7)
    assert patch_to_adopt(made, replace(placement, place="node-8")) is None
    assert patch_to_adopt(seen(spare(), ready=True), placement) is None, "a placeholder makes room for a new pod"
