"""How many pods evictions have to leave while the nodes below a job are drained."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hajob.capacity.drains import (
    OPENING_GAP_SECONDS,
    Budgets,
    Drains,
    EvictionTurn,
    Openings,
    budgets_of_job,
)
from hajob.plan.placements import CoordinatorPlacement, Placement, Placements, PodPurpose
from hajob.plan.policy import CoordinatorLossPolicy, NodePolicy, Policy

FOUR = Placements(tuple(Placement(rank, 1) for rank in range(4)), CoordinatorPlacement(1))
MOVING = Placements((*FOUR.ranks, Placement(2, 2, PodPurpose.SECOND_PLACE)), FOUR.coordinator)
IGNORE = Policy(cordon=NodePolicy.IGNORE)
NEVER = Policy(coordinator_loss=CoordinatorLossPolicy.NEVER)


@pytest.mark.parametrize(
    ("desired", "policy", "overdue", "left"),
    [
        (FOUR, Policy(), False, Budgets(4, 1)),
        (MOVING, Policy(), False, Budgets(5, 1)),  # the old pod is safe until the second one has taken over
        (FOUR, IGNORE, False, Budgets(3, 0)),  # one node after the other
        (FOUR, NEVER, False, Budgets(4, 1)),  # its move costs no restart
        (FOUR, Policy(), True, Budgets(0, 0)),
        (Placements(FOUR.ranks), Policy(), False, Budgets(4, 0)),
        (Placements(), IGNORE, False, Budgets(0, 0)),
    ],
)
def test_evictions_wait_for_moves_but_not_for_ever(
    desired: Placements, policy: Policy, overdue: bool, left: Budgets
) -> None:
    assert budgets_of_job(desired, policy, overdue=overdue) == left


def test_a_drain_is_overdue_after_its_time_and_no_other() -> None:
    drains = Drains(900.0)
    assert drains.update_nodes(["a"], 100.0) == ("a",)
    assert drains.update_nodes(["a", "b"], 500.0) == ("b",)
    assert not drains.is_any_overdue(999.9)
    assert drains.is_any_overdue(1000.0)
    drains.update_nodes(["b"], 1000.0)  # a is empty, or in service again
    assert not drains.is_any_overdue(1000.0)


def test_the_next_look_is_when_something_follows() -> None:
    drains = Drains(900.0)
    assert drains.next_change(100.0) is None
    drains.update_nodes(["a"], 100.0)
    assert drains.next_change(100.0) == 900.0
    assert drains.next_change(130.0) == 870.0
    assert drains.next_change(1000.0) is None


def test_a_node_that_comes_back_waits_anew() -> None:
    drains = Drains(900.0)
    drains.update_nodes(["a"], 100.0)
    drains.update_nodes([], 200.0)
    assert drains.update_nodes(["a"], 300.0) == ("a",)
    assert not drains.is_any_overdue(1199.0)
    assert drains.is_any_overdue(1200.0)


def test_jobs_open_one_after_the_other() -> None:
    openings = Openings()
    turns = [EvictionTurn(openings) for _ in range(60)]
    assert not any(turn.is_open_now(100.0, 900.0) for turn in turns)
    assert [turn.is_open_now(1000.0, 900.0) for turn in turns] == [True] + [False] * 59
    times = [turn.next_change(1000.0) or 0.0 for turn in turns[1:]]
    assert all(after - before == OPENING_GAP_SECONDS for before, after in pairwise(times))


def test_a_job_with_a_long_timeout_keeps_no_other_waiting() -> None:
    openings = Openings()
    slow, fast = EvictionTurn(openings), EvictionTurn(openings)
    assert not slow.is_open_now(0.0, 86_400.0)
    assert not fast.is_open_now(0.0, 900.0)
    assert fast.is_open_now(900.0, 900.0)


def test_a_turn_ends_and_comes_again() -> None:
    turn = EvictionTurn(Openings())
    found = {now: turn.is_open_now(now, 900.0) for now in (0.0, 899.0, 900.0, 959.0, 960.0, 1859.0, 1860.0)}
    assert [now for now, opened in found.items() if opened] == [900.0, 959.0, 1860.0]


def test_without_a_timeout_the_turn_never_ends() -> None:
    turn = EvictionTurn(Openings())
    assert all(turn.is_open_now(now, 0) for now in (100.0, 100.0, 5000.0))
    assert turn.next_change(5000.0) is None


def test_evictions_that_nobody_announced_take_one_rank_at_a_time() -> None:
    assert budgets_of_job(FOUR, Policy(), overdue=False, opened=True) == Budgets(3, 0)
