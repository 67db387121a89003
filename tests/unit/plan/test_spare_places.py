"""What is lost or moved goes onto the spare nodes that are ready, and each of them is taken once."""

from __future__ import annotations

from dataclasses import replace

from hajob.domain.actions import Action
from hajob.domain.facts import FactKind, Source
from hajob.plan import events as e
from hajob.plan.policy import Policy
from hajob.plan.recoverability import recoverability
from hajob.plan.state import JobPhase, JobState
from tests.rigs.plan_rig import Rig
from tests.rigs.plan_worlds import VIEW

NAMES = {rank: f"node-{rank}" for rank in range(4)}
TWO = replace(VIEW, spares=("spare-a", "spare-b"), free_nodes=0, node_names=NAMES)


def places(rig: Rig) -> dict[tuple[int, str], str]:
    """Spare node of each pod that has one, by node rank and purpose."""
    return {(pod.node_rank, pod.purpose.value): pod.place for pod in rig.pods.ranks if pod.place}


def test_a_lost_node_is_replaced_by_the_first_spare() -> None:
    rig = Rig.running(view=TWO)
    rig.silent(0)
    assert rig.at(JobPhase.GATHERING)
    assert places(rig) == {(0, "Serving"): "spare-a"}


def test_a_second_loss_takes_the_next_spare() -> None:
    rig = Rig.running(view=TWO)
    rig.silent(0)
    rig.silent(2)
    assert places(rig) == {(0, "Serving"): "spare-a", (2, "Serving"): "spare-b"}


def test_more_losses_than_spares_leave_the_rest_to_the_scheduler() -> None:
    rig = Rig.running(view=replace(TWO, spares=("spare-a",)))
    rig.silent(0)
    rig.silent(3)
    assert places(rig) == {(0, "Serving"): "spare-a"}


def test_a_replacement_lost_on_its_spare_gets_another() -> None:
    rig = Rig.running(view=TWO)
    rig.silent(0)
    rig.view = replace(TWO, spares=("spare-b",), node_names={**NAMES, 0: "spare-a"})
    rig.see(FactKind.POD_LOST, node=0, source=Source.POD)
    assert places(rig) == {(0, "Serving"): "spare-b"}


def test_places_are_forgotten_with_their_incident() -> None:
    rig = Rig.running(view=TWO)
    rig.silent(0)
    rig.recover()
    assert rig.at(JobPhase.RUNNING)
    assert places(rig) == {}


def test_only_the_second_pod_of_a_move_goes_to_the_spare() -> None:
    rig = Rig.running(view=TWO)
    rig.tell(e.MigrateRequested(nodes=(1,), avoid=("spare-a",)))
    assert places(rig) == {(1, "SecondPlace"): "spare-b"}


def test_a_restart_puts_what_lost_its_node_on_spares() -> None:
    rig = Rig.running(view=replace(TWO, nodes_to_avoid=("node-2",)))
    rig.tell(e.RestartRequested())
    rig.tell(e.ResultReported(rig.incident.incarnation, 0, strategy="dump"))
    assert rig.at(JobPhase.RESTARTING)
    assert places(rig) == {(2, "Serving"): "spare-a"}


def test_a_pod_lost_while_starting_gets_a_spare() -> None:
    rig = Rig(JobState(), view=TWO)
    rig.tell(e.Accepted())
    assert places(rig) == {}
    rig.see(FactKind.POD_LOST, node=1, source=Source.POD)
    assert places(rig) == {(1, "Serving"): "spare-a"}


def test_what_a_start_kept_off_is_a_spare_once_it_trains() -> None:
    rig = Rig(JobState(), view=replace(TWO, nodes_to_avoid=("spare-a",)))
    for event in (e.Accepted(), e.PodsReady(), e.AllRanksStarted(1, 1), e.Resumed(1, 1)):
        rig.tell(event)
    assert rig.at(JobPhase.RUNNING)
    rig.silent(2)
    assert places(rig) == {(2, "Serving"): "spare-a"}
    assert rig.pods.ranks[2].avoid == ("node-2",)


def test_replace_would_work_where_only_spares_are_free() -> None:
    def replacing(view: object) -> tuple[str, str]:
        found = recoverability(Rig.running().state, view, Policy())  # type: ignore[arg-type]
        (one,) = (each for each in found if each.action is Action.REPLACE)
        return one.status.value, one.message

    assert replacing(replace(TWO, spares=())) == ("False", "")
    assert replacing(TWO) == ("True", "ready: 2 spare nodes")


def test_a_spare_of_another_super_pod_is_left_alone() -> None:
    blocks = {0: "a", 1: "a", 2: "b", 3: "b"}
    view = replace(TWO, super_pods=blocks, spare_super_pods={"spare-a": "a", "spare-b": "b"})
    rig = Rig.running(view=view)
    rig.silent(3)
    assert places(rig) == {(3, "Serving"): "spare-b"}
    rig.silent(2)
    assert places(rig) == {(3, "Serving"): "spare-b"}, "the other one is of no use to this block"


def test_a_super_pod_without_a_free_node_is_named_before() -> None:
    view = replace(VIEW, free_nodes=3, bare_super_pods=("a", "c"))
    found = recoverability(Rig.running().state, view, Policy())
    (unmet,) = [miss for one in found if one.action is Action.REPLACE for miss in one.unmet if miss.name == "FreeNode"]
    assert unmet.message.startswith("no node is free in super pod a, c; a node of its blocks")
