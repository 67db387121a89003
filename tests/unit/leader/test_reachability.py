"""Who is the suspect when coordinators are silent."""

from __future__ import annotations

import pytest

from hajob.leader.reachability import OFFER_SECONDS, Reach, Suspicion, count_reachable
from hajob.leader.reachability import ExpectedCoordinator as Expected
from hajob.sources.node import NodeView


def nodes(ready: int, away: int) -> dict[str, NodeView]:
    """Nodes r0, r1, … that are ready, a0, a1, … that are not."""
    found = [NodeView(f"r{n}") for n in range(ready)] + [NodeView(f"a{n}", ready=False) for n in range(away)]
    return {node.name: node for node in found}


@pytest.mark.parametrize(
    ("total", "silent", "cut_off"),
    [
        (0, 0, False),
        (1, 1, False),
        (2, 1, False),
        (2, 2, True),
        (3, 2, True),
        (4, 2, False),
        (5, 3, True),
        (5, 0, False),
    ],
)
def test_more_than_half_and_two_silent_make_it_the_suspect(total: int, silent: int, cut_off: bool) -> None:
    assert Reach(total, silent).is_cut_off is cut_off


def test_a_dead_node_takes_its_coordinators_along() -> None:
    seen = [Expected("a0", reached=False)] * 3 + [Expected("r0", reached=True)]
    assert count_reachable(seen, nodes(4, 1)) == Reach(1, 0)


def test_a_node_that_is_gone_explains_the_silence_too() -> None:
    assert count_reachable([Expected("gone", reached=False)] * 3, nodes(4, 0)) == Reach(0, 0)


def test_nodes_that_are_nearly_all_away_explain_nothing() -> None:
    seen = [
        Expected("a0", reached=False),
        Expected("a1", reached=False),
        Expected("r0", reached=True),
    ]
    assert count_reachable(seen, nodes(1, 4)) == Reach(3, 2)


def test_who_answers_counts_whatever_its_node_is_called() -> None:
    assert count_reachable([Expected("a0", reached=True)] * 2, nodes(4, 1)) == Reach(2, 0)


def test_the_suspect_offers_its_lease_only_after_a_while() -> None:
    suspicion = Suspicion()
    suspicion.update_suspicion(Reach(3, 3), 100.0)
    suspicion.update_suspicion(Reach(3, 2), 101.0)
    assert suspicion.why_suspect.startswith("2 of 3 coordinators cannot be reached")
    assert not suspicion.has_lasted(100.0 + OFFER_SECONDS - 0.1)
    assert suspicion.has_lasted(100.0 + OFFER_SECONDS)


def test_a_silence_that_ends_is_counted_anew() -> None:
    suspicion = Suspicion()
    suspicion.update_suspicion(Reach(2, 2), 100.0)
    suspicion.update_suspicion(Reach(2, 1), 104.0)
    assert (suspicion.why_suspect, suspicion.has_lasted(200.0)) == ("", False)
    suspicion.update_suspicion(Reach(2, 2), 105.0)
    assert not suspicion.has_lasted(109.0)
