"""How many pods evictions have to leave while the nodes below a job are drained."""

from __future__ import annotations

import pytest

from hajob.plan.placements import CoordinatorPlacement, Placement, Placements, PodPurpose
from hajob.plan.policy import CoordinatorLossPolicy, NodePolicy, Policy
from hajob.scheduling.drains import NOTICE_SECONDS, Budgets, Drains, budgets

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
        (FOUR, NEVER, False, Budgets(4, 0)),  # nobody would move the coordinator
        (FOUR, Policy(), True, Budgets(0, 0)),
        (Placements(FOUR.ranks), Policy(), False, Budgets(4, 0)),
        (Placements(), IGNORE, False, Budgets(0, 0)),
    ],
)
def test_evictions_wait_for_moves_but_not_for_ever(
    desired: Placements, policy: Policy, overdue: bool, left: Budgets
) -> None:
    assert budgets(desired, policy, overdue=overdue) == left


def test_a_drain_is_overdue_after_its_time_and_no_other() -> None:
    drains = Drains(900.0)
    assert drains.look(["a"], 100.0) == ("a",)
    assert drains.look(["a", "b"], 500.0) == ("b",)
    assert not drains.overdue(999.9)
    assert drains.overdue(1000.0)
    drains.look(["b"], 1000.0)  # a is empty, or in service again
    assert not drains.overdue(1000.0)


def test_the_next_look_is_when_something_follows() -> None:
    drains = Drains(900.0)
    assert drains.next_change(100.0) is None
    drains.look(["a"], 100.0)
    assert drains.next_change(100.0) == NOTICE_SECONDS
    assert drains.next_change(100.0 + NOTICE_SECONDS) == 900.0 - NOTICE_SECONDS
    assert drains.next_change(1000.0) is None


def test_a_node_that_comes_back_waits_anew() -> None:
    drains = Drains(900.0)
    drains.look(["a"], 100.0)
    drains.look([], 200.0)
    assert drains.look(["a"], 300.0) == ("a",)
    assert not drains.noticed("a", 300.0 + NOTICE_SECONDS - 1)
    assert drains.noticed("a", 300.0 + NOTICE_SECONDS)


def test_the_notice_is_never_longer_than_half_the_timeout() -> None:
    assert (Drains(20.0).notice, Drains(0.0).notice, Drains(900.0).notice) == (10.0, 0.0, NOTICE_SECONDS)
