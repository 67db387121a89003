"""Ranks are moved off a node that still works."""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World


@pytest.fixture
def world(world: World) -> World:
    world.order(pb.MIGRATE, incarnation=2, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    return world


def test_second_processes_take_over_with_their_first_step(world: World) -> None:
    old = world.agent(1)
    world.advance(1.0)
    assert not world.mindio.calls
    new = world.new_pod(1, 2, start_delay=1.0)
    world.advance(0.5)
    assert not world.mindio.calls, "nothing is said before all of them stand at their gates"
    world.advance(1.0)
    arguments = {"action": "hot switch", "ranks": [[2, 0], [3, 0]], "incarnation": 2}
    assert world.called("prepare_action") == [arguments]
    assert world.called("change_strategy") == [{"strategy": "migration", "parameters": ""}]
    assert old.processes[2].phase == new.processes[2].phase == pb.LINKED
    world.advance(0.2)
    world.step(2)
    world.advance(0.2)
    assert old.processes[2].phase == pb.DEAD
    world.mindio.result()
    world.pump()
    assert world.state.conversation == "Serving"
    assert not world.facts
    kinds = [pb.MilestoneKind.Name(mark.kind) for mark in world.milestones if mark.incarnation == 2]
    assert kinds == [
        "REPLACEMENTS_STARTED",
        "REPLACEMENTS_READY",
        "STRATEGIES",
        "STEP_BEFORE",
        "STRATEGY_SENT",
        "RESUMED",
        "RESULT",
    ]
    world.die(2)
    assert world.called("stop_train") == [{"ranks": [[2, 1]], "incarnation": 3}]


@pytest.mark.parametrize("heartbeat", [False, True])
def test_a_late_word_of_a_first_process_is_no_first_step(world: World, *, heartbeat: bool) -> None:
    """It prints its last step, and the line is read only when MindIO has offered the move already."""
    world.step(1)
    old = world.agent(1)
    new = world.new_pod(1, 2)
    world.advance(0.5)
    assert world.state.conversation == "Migrating"
    late = [pb.StepFinished(rank=rank, step=2, heartbeat=heartbeat) for rank in old.processes]
    world.core.apply_agent_report(old.uid, old.report(steps=late), world.now)
    world.advance(0.2)
    assert world.state.conversation == "Migrating"
    assert old.processes[2].phase == pb.LINKED, "it may still give its data"
    assert pb.RESUMED not in [mark.kind for mark in world.milestones if mark.incarnation == 2]
    first = [pb.StepFinished(rank=rank, step=3, heartbeat=heartbeat) for rank in new.processes]
    world.core.apply_agent_report(new.uid, new.report(steps=first), world.now)
    world.advance(0.2)
    assert old.processes[2].phase == pb.DEAD
    assert [mark.step for mark in world.milestones if mark.kind == pb.RESUMED and mark.incarnation == 2] == [3]


def test_a_move_that_is_given_up_leaves_the_training_alone(world: World) -> None:
    new = world.new_pod(1, 2, start_delay=1.0)
    world.advance(0.5)
    world.order(pb.CONTINUE, incarnation=2, revision=2)
    world.advance(2.0)
    assert not world.mindio.calls
    assert all(process.phase == pb.DEAD for process in new.processes.values())
    world.step(2)
    world.die(1)
    assert world.called("stop_train") == [{"ranks": [[1, 1]], "incarnation": 3}]


def test_the_second_processes_of_a_newer_move_count(world: World) -> None:
    """A coordinator that has found those of a move that was given up is told of the next one only."""
    old = world.new_pod(1, 2, start_delay=9.0)
    world.advance(0.5)
    world.order(pb.MIGRATE, incarnation=4, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    new = world.new_pod(1, 4, start_delay=0.5)
    world.advance(2.0)
    assert [arguments["ranks"] for arguments in world.called("prepare_action")] == [[[2, 0], [3, 0]]]
    assert [process.phase for process in new.processes.values()] == [pb.LINKED] * 2
    assert all(process.phase == pb.DEAD for process in old.processes.values())


def test_fault_during_a_move_drops_the_second_processes(world: World) -> None:
    world.new_pod(1, 2, start_delay=9.0)
    world.advance(0.5)
    world.die(0)
    assert world.state.conversation == "Stopped"
    world.order(pb.IN_PLACE, incarnation=3, revision=1, lost_ranks=[0], restart_ranks=[0])
    world.advance(0.5)
    assert world.called("on_global_rank") == [{"ranks": [[0, 1]], "time": 1}]
    world.step(2)
    world.mindio.result()
    world.pump()
    assert world.state.conversation == "Serving"


def test_a_move_for_which_nobody_could_be_held_is_over_at_once(world: World) -> None:
    """MindIO offers nothing but the end, and would hold every rank for its whole wait."""
    world.mindio.silent = True
    world.new_pod(1, 2)
    world.advance(0.5)
    world.callback("report_strategies", [[], ["exit"]])
    world.pump()
    ends_without_a_controller(world, [499])
    assert not world.called("change_strategy")


def test_a_move_that_fails_can_not_be_saved_and_is_over_at_once(world: World) -> None:
    """The list in force is the move's: a dump would be answered with the end."""
    world.new_pod(1, 2)
    world.advance(0.5)
    assert world.state.conversation == "Migrating"
    world.mindio.result(406, "rollback failed", {2: 1})
    world.pump()
    ends_without_a_controller(world, [406, 499])
    world.order(pb.CHECKPOINT, incarnation=2, revision=2, lost_ranks=[2, 3])
    assert [call["strategy"] for call in world.called("change_strategy")] == ["migration"]


@pytest.mark.parametrize(("step_seconds", "ahead"), [(0.1, 10), (0.4, 3), (30.0, 1)])
def test_mindio_is_told_more_steps_until_its_offer(step_seconds: float, ahead: int) -> None:
    """It stops ranks one step after the one they are at when it asks: that step would be over before it says so."""
    world = World()
    world.train(4, seconds=step_seconds)
    world.order(pb.MIGRATE, incarnation=2, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    world.mindio.silent = True
    world.new_pod(1, 2, start_delay=0.5)
    world.advance(0.2)
    assert told_ahead(world) == {0}
    world.advance(1.0)
    assert world.state.conversation == "Switching"
    assert told_ahead(world) == {ahead}
    world.mindio.ask, world.mindio.strategies = "strategy", ["migration"]
    world.callback("report_strategies", [[], ["migration"]])
    world.pump()
    assert told_ahead(world) == {0}


def told_ahead(world: World) -> set[int]:
    """How many steps more agents are to tell MindIO."""
    return {agent.order.steps_ahead for agent in world.agents.values() if agent.order is not None}


def test_a_memory_fault_after_a_given_up_move_is_retried(world: World) -> None:
    """The call that takes a move back leaves a word behind, which ends MindIO at the next fault: another one comes."""
    world.gates_know = True
    world.mindio.silent = True
    second = world.new_pod(1, 2)
    world.advance(0.5)
    assert world.state.conversation == "Switching"
    former = world.controller["instance"]
    world.mindio.silent = False
    world.order(pb.CONTINUE, incarnation=2, revision=2)
    world.advance(1.0)
    assert [arguments["action"] for arguments in world.called("prepare_action")] == ["hot switch"]
    assert world.controller["instance"] != former
    assert (world.state.conversation, world.state.controller_ready) == ("Serving", True)
    assert world.mindio.registered == {0, 1, 2, 3}
    assert all(process.phase == pb.DEAD for process in second.processes.values())
    assert not world.facts
    world.step(2)
    world.mindio.strategies = ["exit", "dump", "retry"]
    world.mindio.ask = "stop"
    world.callback("report_fault_ranks", [[[1, 0]], [[1, "1234abcd"]]])
    world.pump()
    world.order(pb.RETRY, incarnation=3, revision=1, lost_ranks=[1])
    assert world.called("change_strategy") == [{"strategy": "retry", "parameters": ""}]


def ends_without_a_controller(world: World, results: list[int]) -> None:
    """The operator hears it as a result of the move, and of a controller that has left."""
    assert (world.state.conversation, world.state.controller_ready) == ("Closed", False)
    assert [(mark.incarnation, mark.result_code) for mark in world.marks(pb.RESULT)] == [(2, code) for code in results]
    assert [fact.kind for fact in world.facts] == [pb.CONTROLLER_LOST]
    assert world.core.job.incidents.current is None


@pytest.mark.parametrize("given_up", [True, False])
def test_a_node_that_is_moved_may_be_lost(world: World, *, given_up: bool) -> None:
    """MindIO was told that second processes come for its ranks, which is no loss."""
    world.mindio.silent = True
    world.new_pod(1, 2)
    world.advance(0.5)
    assert world.state.conversation == "Switching"
    if given_up:
        world.order(pb.CONTINUE, incarnation=2, revision=2)
    world.mindio.silent = False
    world.agents["pod-1-1"].powered = False
    world.order(pb.REPLACE, incarnation=3, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    assert world.called("stop_train") == [{"ranks": [[2, 1], [3, 1]], "incarnation": 3}]
