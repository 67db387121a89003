"""The pods of a job follow from its state: what a life of moves, losses and requests leaves standing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.domain.layout import Layout
from hajob.plan import events as e
from hajob.plan.placements import CoordinatorPlacement, Placement, Placements, PodPurpose, placements
from hajob.plan.policy import Policy
from hajob.plan.state import JobPhase, JobState
from tests.rigs.plan_rig import Rig, from_dict, in_words, to_dict
from tests.rigs.plan_worlds import VIEW

SECOND = PodPurpose.SECOND_PLACE


def pods(rig: Rig) -> str:
    """All pods as one line, and the same after a change of leader."""
    found = rig.pods
    assert placements(from_dict(to_dict(rig.state)), rig.view.layout.num_nodes) == found
    return " | ".join(in_words(one) for one in found)


def moving() -> Rig:
    rig = Rig.running()
    rig.tell(e.MigrateRequested(nodes=(1,), avoid=("sick",)))
    return rig


def test_a_start_wants_every_pod_and_a_coordinator() -> None:
    rig = Rig(JobState(), view=replace(VIEW, nodes_to_avoid=("dead",)))
    assert pods(rig) == ""
    rig.tell(e.Accepted())
    assert pods(rig) == "0:1 off dead | 1:1 off dead | 2:1 off dead | 3:1 off dead | coordinator:1"


def test_a_move_begun_has_both_pods_of_its_node_rank() -> None:
    assert pods(moving()) == ("0:1 | 1:1 off node-1,sick | 2:1 | 3:1 | 1:2 SecondPlace off node-1,sick | coordinator:1")


def test_a_move_finished_keeps_the_second_pod() -> None:
    rig = moving()
    rig.tell(e.ReplacementsReady(2, 1))
    rig.tell(e.Resumed(2, 7))
    assert rig.at(JobPhase.RUNNING)
    assert pods(rig) == "0:1 | 1:2 | 2:1 | 3:1 | coordinator:1"


def test_a_move_too_late_keeps_the_first_pod() -> None:
    rig = moving()
    rig.deadline("Recovery")
    assert rig.at(JobPhase.RUNNING)
    assert pods(rig) == "0:1 | 1:1 | 2:1 | 3:1 | coordinator:1"


def test_a_move_disturbed_by_a_fault_keeps_the_first_pod() -> None:
    rig = moving()
    rig.silent(3)
    assert pods(rig) == "0:1 | 1:1 | 2:1 | 3:3 off node-3 | coordinator:1"


def test_a_moving_node_that_dies_is_replaced() -> None:
    rig = moving()
    rig.silent(1)
    assert pods(rig) == "0:1 | 1:3 off node-1 | 2:1 | 3:1 | coordinator:1"


def test_a_second_move_is_made_from_where_the_first_led() -> None:
    rig = moving()
    rig.tell(e.Resumed(2, 7))
    rig.tell(e.MigrateRequested(nodes=(1, 2)))
    assert pods(rig).startswith("0:1 | 1:2 off node-1,node-2 | 2:1 off node-1,node-2 | 3:1 | 1:3 SecondPlace")
    rig.tell(e.Resumed(3, 9))
    assert pods(rig) == "0:1 | 1:3 | 2:3 | 3:1 | coordinator:1"


def test_a_replaced_node_avoids_every_node_it_lost_until_the_end() -> None:
    rig = Rig.running()
    rig.silent(2)
    assert pods(rig) == "0:1 | 1:1 | 2:2 off node-2 | 3:1 | coordinator:1"
    rig.view = replace(rig.view, node_names={**VIEW.node_names, 2: "node-9"})
    rig.silent(2)
    assert pods(rig) == "0:1 | 1:1 | 2:3 off node-2,node-9 | 3:1 | coordinator:1"
    rig.recover()
    assert pods(rig) == "0:1 | 1:1 | 2:3 | 3:1 | coordinator:1"


def shrunk(*, release: bool) -> Rig:
    """Node 2 is lost, and node 6 is in its data-parallel rank."""
    layout = Layout(num_nodes=8, chips_per_node=2, tensor=2, pipeline=2)
    rig = Rig.running(view=replace(VIEW, layout=layout, free_nodes=0), policy=Policy(release_shrunk_pods=release))
    rig.silent(2)
    rig.deadline("Recovery")
    rig.tell(e.Resumed(2, 11))
    assert rig.at(JobPhase.SHRUNK)
    assert rig.state.shrunk is not None
    assert (rig.state.shrunk.nodes, rig.state.shrunk.lost_nodes) == ((2, 6), (2,))
    return rig


def test_a_shrink_with_keep_gives_up_the_lost_pod_only() -> None:
    assert pods(shrunk(release=False)) == "0:1 | 1:1 | 3:1 | 4:1 | 5:1 | 6:1 | 7:1 | coordinator:1"


def test_a_shrink_with_release_gives_up_the_healthy_pod_too() -> None:
    assert pods(shrunk(release=True)) == "0:1 | 1:1 | 3:1 | 4:1 | 5:1 | 7:1 | coordinator:1"


@pytest.mark.parametrize("release", [False, True])
def test_growing_back_makes_what_was_released(*, release: bool) -> None:
    rig = shrunk(release=release)
    released = rig.state.released
    assert released == ((2, 6) if release else (2,))
    rig.policy = Policy(release_shrunk_pods=not release)  # changed meanwhile
    rig.view = replace(rig.view, free_nodes=2)
    rig.tell(e.CapacityAvailable(nodes=2))
    rig.deadline("Expand")
    assert rig.at(JobPhase.EXPANDING)
    assert {one.node_rank for one in rig.pods.ranks} == set(range(8))
    assert all(rig.served[node] == 3 for node in released)
    rig.deadline("Recovery")
    assert rig.at(JobPhase.SHRUNK)
    assert set(rig.state.released) >= set(released)


def test_a_shrunk_job_that_completes_makes_nothing_again() -> None:
    rig = shrunk(release=False)
    rig.tell(e.AllFinished())
    assert rig.at(JobPhase.COMPLETE)
    assert pods(rig) == "0:1 | 1:1 | 3:1 | 4:1 | 5:1 | 6:1 | 7:1"


def test_a_restart_wants_every_pod_anew() -> None:
    rig = shrunk(release=True)
    rig.tell(e.RestartRequested())
    if rig.at(JobPhase.SAVING):
        rig.tell(e.ResultReported(rig.state.incarnation, 0, "", "dump"))
    number = rig.state.incarnation
    assert pods(rig) == " | ".join([*(f"{rank}:{number}" for rank in range(8)), f"coordinator:{number}"])


def test_a_lost_coordinator_alone_is_made_anew() -> None:
    rig = Rig.running()
    rig.tell(e.CoordinatorLost())
    assert pods(rig) == "0:1 | 1:1 | 2:1 | 3:1 | coordinator:2"
    rig.state = replace(rig.state, apart=False)
    assert pods(rig) == "0:1 | 1:1 | 2:1 | 3:1 | coordinator:2 anywhere"


def test_suspended_failed_and_deleted_jobs_have_no_pods() -> None:
    rig = moving()
    rig.tell(e.SuspendRequested())
    rig.tell(e.ResultReported(rig.state.incarnation, 0, "", "dump"))
    assert rig.at(JobPhase.SUSPENDED)
    assert rig.pods == Placements()
    failed, deleted = moving(), moving()
    failed.policy = Policy(active_deadline_seconds=1)
    failed.tell(e.PolicyChanged())
    failed.deadline("Active")
    deleted.tell(e.Deleted())
    assert (failed.state.phase, deleted.state.phase) == (JobPhase.FAILED, JobPhase.DELETED)
    assert failed.pods == deleted.pods == Placements()


def test_a_thousand_replaced_pods_are_all_remembered() -> None:
    """What is forgotten of processes makes old facts stale; of pods it would make the wrong ones."""
    from hajob.plan.incident_state import renew_incarnations

    state = Rig.running().state
    for node_rank in range(1000):
        state = renew_incarnations(state, 5, node_rank + 2, nodes=(node_rank,))
    found = placements(state, 1001).ranks
    assert [one.incarnation for one in found] == [*range(2, 1002), 1]


def test_where_a_pod_must_not_go_does_not_tell_pods_apart() -> None:
    assert Placement(1, 2, avoid=("a",)) == Placement(1, 2)
    assert Placement(1, 2) != Placement(1, 2, SECOND)
    assert [*Placements((Placement(0, 1),), CoordinatorPlacement(1))] == [Placement(0, 1), CoordinatorPlacement(1)]
