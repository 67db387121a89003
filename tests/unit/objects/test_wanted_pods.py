"""The level that the job controller reconciles with survives a journey through the journal."""

from __future__ import annotations

from hajob.domain.incidents import IncidentOutcome
from hajob.objects.wanted_pods import WantedPods, apply
from hajob.plan import effects


def test_a_start_asks_for_every_pod_and_a_coordinator() -> None:
    wanted = WantedPods().with_rank_pods(attempt=1, incarnation=1).with_coordinator(1)
    assert [wanted.incarnation_of(rank) for rank in range(4)] == [1, 1, 1, 1]
    assert wanted.coordinator == 1


def test_a_replaced_node_rank_gets_the_new_incarnation_and_shuns_its_old_node() -> None:
    wanted = WantedPods().with_rank_pods(1, 1).with_replaced([0], 3, {0: "node-a"})
    assert [wanted.incarnation_of(rank) for rank in range(2)] == [3, 1]
    assert wanted.avoided == {0: ("node-a",)}


def test_a_node_rank_remembers_every_node_it_was_driven_off() -> None:
    wanted = WantedPods().with_rank_pods(1, 1).with_replaced([0], 2, {0: "a"}).with_replaced([0], 3, {0: "b"})
    assert wanted.with_replaced([0], 4, {0: "b"}).avoided == {0: ("a", "b")}


def test_a_released_node_rank_has_no_pod_until_it_is_replaced() -> None:
    wanted = WantedPods().with_rank_pods(1, 1).with_released([2])
    assert wanted.incarnation_of(2) == 0
    assert wanted.with_replaced([2], 5, {}).incarnation_of(2) == 5


def test_a_new_start_forgets_rewanteds_but_not_bad_nodes() -> None:
    wanted = WantedPods().with_rank_pods(1, 1).with_replaced([1], 2, {1: "bad"}).with_rank_pods(2, 3)
    assert wanted.incarnation_of(1) == 3
    assert wanted.avoided == {}


def test_what_is_older_goes_and_what_is_newer_stays() -> None:
    wanted = WantedPods().with_rank_pods(1, 3).with_coordinator(3)
    assert wanted.without_rank_pods(below=3) == wanted
    assert wanted.without_coordinator(below=3) == wanted
    assert (wanted.without_rank_pods(below=4).base, wanted.without_coordinator(below=4).coordinator) == (0, 0)
    assert (wanted.stopped().base, wanted.stopped().coordinator, wanted.stopped().attempt) == (0, 0, 1)


def test_a_start_may_shun_nodes_for_every_node_rank() -> None:
    wanted = WantedPods().with_rank_pods(1, 1, ["sick"]).with_replaced([1], 2, {1: "dead"})
    assert wanted.avoided_by(0) == ("sick",)
    assert wanted.avoided_by(1) == ("dead", "sick")


def test_effects_change_the_wish() -> None:
    wanted = apply(WantedPods(), effects.CreateAllPods(attempt=1, incarnation=1), {}, {"dead"})
    assert (wanted.base, wanted.avoided_by(0)) == (1, ("dead",))
    wanted = apply(wanted, effects.CreateCoordinator(1), {})
    wanted = apply(wanted, effects.ReplacePods((2,), 2, ("node-c",)), {2: "node-c"})
    assert (wanted.coordinator, wanted.incarnation_of(2), wanted.avoided_by(2)) == (1, 2, ("dead", "node-c"))
    assert apply(wanted, effects.CloseIncident(2, IncidentOutcome.RECOVERED), {}).avoided == {}
    assert apply(wanted, effects.CompleteJob(), {}).coordinator == 0
    assert apply(wanted, effects.FailJob("Reason", "why"), {}).base == 0
    assert apply(wanted, effects.Announce("Held", "a fact waits"), {}) == wanted
