"""Any nodes lost at once, or one after the other: one incident, one decision, exactly these pods made anew.

Every set of nodes up to half of them, over layouts with one and two pods for a data-parallel rank and with two
data-parallel ranks in a pod, in both rank orders. Which copies survive is counted here by hand (docs/user/layout.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import pytest

from hajob.domain.actions import Action, OrderCommand
from hajob.domain.facts import FactKind
from hajob.domain.incidents import IncidentOutcome, RestoredFrom
from hajob.domain.layout import Layout, RankOrder
from hajob.domain.loss import plan_repairs
from hajob.plan import effects as do
from hajob.plan import events as e
from hajob.plan.state import JobPhase
from tests.rigs.plan_rig import Rig
from tests.rigs.plan_worlds import VIEW

SIZES = ((4, 2, 2, 1), (8, 2, 2, 2), (4, 4, 2, 1), (8, 2, 4, 1), (6, 2, 2, 1), (4, 4, 2, 2))
"""Nodes, chips of each, tensor, pipeline."""
LAYOUTS = [
    pytest.param(
        Layout(nodes, chips, tensor, pipeline, rank_order=order), id=f"{nodes}x{chips} {tensor},{pipeline} {order}"
    )
    for nodes, chips, tensor, pipeline in SIZES
    for order in RankOrder
]

Nodes = tuple[int, ...]


def sets_of_nodes(layout: Layout) -> Iterator[Nodes]:
    """Every set of up to half of the nodes; node 0, with rank 0, is one like the others."""
    for count in range(1, layout.num_nodes // 2 + 1):
        yield from combinations(range(layout.num_nodes), count)


def ranks_on(layout: Layout, nodes: Nodes) -> tuple[int, ...]:
    return tuple(node * layout.chips_per_node + chip for node in nodes for chip in range(layout.chips_per_node))


def partner(layout: Layout, rank: int) -> int:
    """Who holds the same shard: half of the data-parallel ranks away."""
    before = layout.tensor * (layout.pipeline if layout.rank_order is RankOrder.TENSOR_PIPELINE_DATA else 1)
    place = rank // before % layout.data
    return rank + before * ((place + layout.data // 2) % layout.data - place)


def copy_survives(layout: Layout, lost: tuple[int, ...]) -> bool:
    return not any(partner(layout, rank) in lost for rank in lost)


def running(layout: Layout) -> Rig:
    names = {node: f"node-{node}" for node in range(layout.num_nodes)}
    return Rig.running(view=replace(VIEW, layout=layout, free_nodes=layout.num_nodes, node_names=names))


def assert_replaced(rig: Rig, nodes: Nodes) -> None:
    """One incident is open, its newest order replaces exactly these nodes in new pods, every other pod is as it was."""
    layout = rig.view.layout
    assert (rig.state.phase, rig.action, rig.incident.number) == (JobPhase.GATHERING, Action.REPLACE, 2)
    assert (rig.incident.replaced_nodes, rig.incident.restart_ranks) == (nodes, ())
    assert rig.incident.lost_ranks == ranks_on(layout, nodes)
    assert rig.served == {node: 2 if node in nodes else 1 for node in range(layout.num_nodes)}
    assert len(rig.pods.ranks) == layout.num_nodes
    sound = copy_survives(layout, rig.incident.lost_ranks)
    assert (rig.incident.restored_from is RestoredFrom.OPTIMIZER_COPY) is sound
    for repair in plan_repairs(layout, rig.incident.lost_ranks):
        assert repair.giver == (partner(layout, repair.rank) if sound else None)


def assert_recovers(rig: Rig) -> None:
    """One naming, one rebuild, and the incident closes."""
    served = rig.served
    rig.tell(e.ReplacementsReady(2, rig.incident.revision))
    rig.tell(e.Named(2, rig.incident.revision))
    assert rig.at(JobPhase.RESUMING)
    rig.tell(e.Resumed(2, 6))
    (closing,) = rig.tell(e.ResultReported(2, 0, "", "recover"))
    assert closing == do.CloseIncident(2, IncidentOutcome.RECOVERED)
    assert (rig.state.phase, rig.served, rig.state.restarts_infrastructure) == (JobPhase.RUNNING, served, 0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_nodes_lost_together_are_replaced_together(layout: Layout) -> None:
    for nodes in sets_of_nodes(layout):
        rig = running(layout)
        for node in nodes:
            rig.silent(node)
        assert_replaced(rig, nodes)
        assert_recovers(rig)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nodes_lost_one_after_the_other_join_one_incident(layout: Layout) -> None:
    """The first ones are on their way, stopped, or ready already; the newest order alone counts."""
    for nodes in sets_of_nodes(layout):
        rig = running(layout)
        rig.silent(nodes[-1])
        rig.tell(e.Stopped(2, ranks_on(layout, nodes[-1:])))
        for count, node in enumerate(reversed(nodes[:-1]), start=2):
            rig.tell(e.ReplacementsReady(2, rig.incident.revision), rig.now + 60_000)
            revision = rig.incident.revision
            order = rig.order(rig.silent(node))
            assert (order.command, order.revision) == (OrderCommand.REPLACE, revision + 1)
            assert order.replaced_nodes == nodes[-count:]
            assert rig.tell(e.ReplacementsReady(2, revision)) == (), "an answer to the order before"
            assert not rig.incident.ready
        assert_replaced(rig, nodes)
        assert_recovers(rig)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_node_lost_after_the_naming_costs_a_save_and_a_restart(layout: Layout) -> None:
    for nodes in sets_of_nodes(layout):
        *earlier, last = nodes
        rig = running(layout)
        if not earlier or not copy_survives(layout, ranks_on(layout, nodes)):
            continue
        for node in earlier:
            rig.silent(node)
        rig.tell(e.Named(2, rig.incident.revision))
        rig.silent(last)
        assert (rig.state.phase, rig.action) == (JobPhase.SAVING, Action.CHECKPOINT)
        assert Action.REPLACE in rig.incident.escalated_from
        assert set(rig.incident.lost_ranks) == set(ranks_on(layout, nodes))
        rig.tell(e.ResultReported(2, 406, "do repair failed, ret: 1", "recover"))
        rig.tell(e.ResultReported(2, 0, "", "dump"))
        assert (rig.state.phase, rig.action) == (JobPhase.RESTARTING, Action.RESTART)
        assert (rig.incident.number, rig.incident.restored_from) == (2, RestoredFrom.SAVED_CHECKPOINT)
        assert rig.incident.escalated_from == (Action.REPLACE, Action.CHECKPOINT)
        assert set(rig.served.values()) == {rig.state.base}


def test_mindios_own_word_about_a_late_death_is_kept() -> None:
    rig = running(Layout(4, 2, 2))
    rig.silent(1)
    rig.tell(e.Named(2, 1))
    rig.tell(e.ResultReported(2, 406, "do repair failed, ret: 1", "recover"))
    assert (rig.state.phase, rig.incident.escalated_from) == (JobPhase.SAVING, (Action.REPLACE,))
    assert rig.state.problem == "recover failed: 406 do repair failed, ret: 1"


def test_no_new_pod_goes_to_any_node_that_fell_silent() -> None:
    """Kubernetes calls them ready for another 40 s, and the scheduler would put one's pod on the other's node."""
    rig = running(Layout(num_nodes=4, chips_per_node=2, tensor=2))
    rig.silent(0)
    rig.silent(1)
    assert [one.avoid for one in rig.pods.ranks][:2] == [("node-0", "node-1")] * 2
    rig.recover()
    assert [one.avoid for one in rig.pods.ranks] == [()] * 4


def test_pods_that_failed_on_living_nodes_may_change_places() -> None:
    rig = running(Layout(num_nodes=4, chips_per_node=2, tensor=2))
    for node in (0, 1):
        rig.see(FactKind.POD_FAILED, node=node)
    assert [one.avoid for one in rig.pods.ranks][:2] == [("node-0",), ("node-1",)]
