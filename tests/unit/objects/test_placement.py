"""The level that the desk reconciles with survives a journey through the journal."""

from __future__ import annotations

from hajob.objects.placement import Placement


def test_a_start_asks_for_every_pod_and_a_coordinator() -> None:
    placement = Placement().started(attempt=1, incarnation=1)
    assert [placement.incarnation_of(rank) for rank in range(4)] == [1, 1, 1, 1]
    assert placement.coordinator == 1


def test_a_replaced_node_rank_gets_the_new_incarnation_and_shuns_its_old_node() -> None:
    placement = Placement().started(1, 1).with_replaced([0], 3, {0: "node-a"})
    assert [placement.incarnation_of(rank) for rank in range(2)] == [3, 1]
    assert placement.avoided == {0: ("node-a",)}


def test_a_node_rank_remembers_every_node_it_was_driven_off() -> None:
    placement = Placement().started(1, 1).with_replaced([0], 2, {0: "a"}).with_replaced([0], 3, {0: "b"})
    assert placement.with_replaced([0], 4, {0: "b"}).avoided == {0: ("a", "b")}


def test_a_released_node_rank_has_no_pod_until_it_is_replaced() -> None:
    placement = Placement().started(1, 1).with_released([2])
    assert placement.incarnation_of(2) == 0
    assert placement.with_replaced([2], 5, {}).incarnation_of(2) == 5


def test_a_new_start_forgets_replacements_but_not_bad_nodes() -> None:
    placement = Placement().started(1, 1).with_replaced([1], 2, {1: "bad"}).started(2, 3)
    assert placement.incarnation_of(1) == 3
    assert placement.avoided == {1: ("bad",)}


def test_stopped_and_finished() -> None:
    placement = Placement().started(1, 1)
    assert (placement.stopped().base, placement.stopped().coordinator, placement.stopped().attempt) == (0, 0, 1)
    assert (placement.finished().base, placement.finished().coordinator) == (1, 0)


def test_the_journal_keeps_everything() -> None:
    placement = Placement().started(2, 4).with_replaced([0, 3], 6, {0: "a", 3: ""}).with_released([1])
    assert Placement.from_journal(placement.to_journal()) == placement
    assert Placement.from_journal({}) == Placement()
