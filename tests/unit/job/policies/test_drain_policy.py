"""What a drain of a node asks of a job, and how evictions are held back meanwhile."""

from dataclasses import replace
from math import inf
from typing import Any

from hajob.api.event_reasons import EventReason
from hajob.capacity.drains import Openings
from hajob.job.policies.drains import MOVE_AGAIN_SECONDS, DrainMemo, want_drains
from hajob.job.snapshot import JobSnapshot
from hajob.job.wants import Put, Wants
from hajob.plan import events
from hajob.plan.state import JobPhase
from tests.rigs.snapshots import NOW, RUNNING, rank, snapshot

RANKS = [rank(number) for number in range(4)]


def memo() -> DrainMemo:
    return DrainMemo.with_openings(Openings())


def seen(drained: int | None = None, seconds: float = 0.0, **fields: Any) -> JobSnapshot:
    """The job, whose node of this rank is drained, so long after the beginning."""
    pods = [RANKS[drained]] if drained is not None else []
    dear: dict[str, Any] = {"drained_pods": pods, "coordinator_pod": None, "free_nodes": 0, "ready_spares": []}
    return snapshot(pods=RANKS, dear=dear, now=NOW + seconds, **fields)


def least(wants: Wants) -> list[int]:
    """How many ranks, and coordinators, evictions leave."""
    return [change.body["spec"]["minAvailable"] for change in wants.changes if isinstance(change, Put)]


def test_a_drained_node_is_announced_once_and_left_once() -> None:
    known = memo()
    wants = want_drains(seen(1), known)
    assert [told.reason for told in wants.announcements] == [EventReason.NODE_DRAINING]
    (move,) = wants.events
    assert isinstance(move, events.MigrateRequested)
    assert move.nodes == (1,)
    again = want_drains(seen(1, seconds=5), known)
    assert (again.announcements, again.events) == ((), ())
    assert want_drains(seen(1, seconds=MOVE_AGAIN_SECONDS + 1), known).events == (move,)


def test_evictions_wait_for_the_move_and_then_go_through() -> None:
    known = memo()
    wants = want_drains(seen(1), known)
    assert least(wants) == [4, 1]
    assert wants.again_at == NOW + 900
    assert least(want_drains(seen(1, seconds=900), known)) == [0, 0]


def test_a_job_without_a_drain_lets_a_rank_go_in_its_turn() -> None:
    known = memo()
    turn_at = want_drains(seen(), known).again_at
    assert NOW < turn_at < inf
    assert least(want_drains(seen(seconds=turn_at - NOW), known)) == [3, 0]


def test_a_free_node_keeps_its_turn_shut() -> None:
    """Whoever wants a node empty then has to cordon it: the ranks are moved without an outage."""
    known = memo()
    turn_at = want_drains(seen(), known).again_at
    made = seen(seconds=turn_at - NOW)
    vars(made)["free_nodes"] = 1
    assert least(want_drains(made, known)) == ([4, 1] if made.policy.moves_on_cordon else [3, 0])


def test_a_start_has_enough_to_write_without_budgets() -> None:
    known, starting = memo(), replace(RUNNING, phase=JobPhase.PENDING)
    assert least(want_drains(seen(state=starting), known)) == []
    want_drains(seen(), known)
    assert least(want_drains(seen(state=starting), known)) != [], "one that had them keeps them as they should be"


def test_nothing_is_asked_before_the_pods_are_known() -> None:
    assert want_drains(seen(1, answers={"admitted": False}), memo()) == Wants()
