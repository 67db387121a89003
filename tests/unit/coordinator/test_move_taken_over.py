"""A controller that is lost while second processes are about to take over: the move begins anew under another one."""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_repairs import LOCKED, PAUSED, REBUILT, REPAIRED, keep_store_at_gates
from tests.rigs.coordinator_restart import restart_coordinator


@pytest.fixture
def world() -> World:
    """Node 1 is to be left; its second pod is about to come."""
    found = World()
    found.gates_know = True
    found.train(2)
    keep_store_at_gates(found)
    found.order(pb.MIGRATE, incarnation=2, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    found.milestones.clear()
    return found


def is_moved(world: World) -> None:
    """The second processes are the ranks, under a controller that was told each thing once."""
    assert world.state.conversation == "Migrating"
    world.step(3)
    world.advance(0.3)
    world.mindio.result()
    world.advance(0.3)
    assert (world.state.conversation, world.state.controller_ready) == ("Serving", True)
    assert [process.phase for process in world.agents["pod-1-1"].processes.values()] == [pb.DEAD] * 2
    assert [process.phase for process in world.agents["pod-1-2"].processes.values()] == [pb.LINKED] * 2
    assert [(mark.result_code, mark.strategy) for mark in world.marks(pb.RESULT)] == [(0, "migration")]
    assert not world.facts


def test_before_the_second_processes_stand_nothing_changes(world: World) -> None:
    second = world.new_pod(1, 2, start_delay=2.0)
    world.advance(0.5)
    world.lose_controller()
    world.advance(0.5)
    assert world.mindio.calls == []
    assert world.state.conversation == "Serving"
    world.advance(2.5)
    assert [process.start for process in second.processes.values()] == [0, 0]
    is_moved(world)


def test_second_processes_that_had_registered_start_anew(world: World) -> None:
    """The running ones are no loss: nobody is named, and the training goes on."""
    world.mindio.silent = True
    second = world.new_pod(1, 2)
    world.advance(1.0)
    assert world.state.conversation == "Switching"
    world.mindio.calls.clear()
    world.mindio.silent = False
    world.lose_controller()
    world.advance(1.0)
    assert [call for call, _ in world.mindio.calls] == ["prepare_action", "change_strategy"]
    assert [process.name for process in second.processes.values()] == [(2, 1), (2, 1)]
    is_moved(world)


@pytest.mark.parametrize("answered", [[LOCKED, PAUSED], [PAUSED, REBUILT], [PAUSED, REBUILT, REPAIRED]])
def test_ranks_that_were_stopped_for_a_move_start_anew(world: World, answered: list[int]) -> None:
    """They have left their step, and wait for the controller that had them leave it."""
    world.new_pod(1, 2)
    world.advance(1.0)
    assert world.state.conversation == "Migrating"
    for agent in world.agents.values():
        agent.answered = {rank: list(answered) for rank in agent.processes}
    world.mindio.calls.clear()
    world.lose_controller()
    world.advance(0.5)
    assert world.mindio.calls == []
    (result,) = world.marks(pb.RESULT)
    assert (result.incarnation, result.result_code) == (2, 499)
    (lost,) = [fact for fact in world.facts if fact.kind == pb.CONTROLLER_LOST]
    assert lost.code == "NoSuccessor"
    assert "for a move" in lost.message


def test_a_move_that_was_through_counts(world: World) -> None:
    world.new_pod(1, 2)
    world.advance(1.0)
    world.agents["pod-1-2"].repaired = {2, 3}
    world.mindio.calls.clear()
    world.lose_controller()
    world.advance(0.5)
    assert world.mindio.calls == []
    assert [process.phase for process in world.agents["pod-1-1"].processes.values()] == [pb.DEAD] * 2
    assert [(mark.result_code, mark.strategy) for mark in world.marks(pb.RESULT)] == [(0, "migration")]
    assert (world.state.conversation, world.state.controller_ready) == ("Serving", True)
    world.die(2)
    assert world.called("stop_train")[0]["ranks"] == [[2, 1]]


def test_a_fault_that_ends_a_move_goes_before(world: World) -> None:
    world.mindio.silent = True
    world.new_pod(1, 2)
    world.advance(1.0)
    world.agent(0).frozen = True
    world.mindio.calls.clear()
    world.mindio.silent = False
    world.lose_controller()
    world.die(0)
    world.agent(0).frozen = False
    world.advance(1.0)
    assert world.called("stop_train")[0]["ranks"] == [[0, 1]]
    world.order(pb.IN_PLACE, incarnation=3, revision=1, lost_ranks=[0], restart_ranks=[0])
    world.advance(0.5)
    world.step(3)
    world.mindio.result()
    world.pump()
    assert world.state.conversation == "Serving"


def test_another_pod_gives_the_move_up(world: World) -> None:
    """So the operator has ordered with the loss; the running processes are the ranks."""
    world.mindio.silent = True
    world.new_pod(1, 2)
    world.advance(1.0)
    world.order(pb.CONTINUE, incarnation=2, revision=2)
    world.mindio.calls.clear()
    world.mindio.silent = False
    restart_coordinator(world, [], controller=False)
    world.advance(4.0)
    assert (world.state.conversation, world.state.controller_ready) == ("Serving", True)
    assert [process.phase for process in world.agents["pod-1-1"].processes.values()] == [pb.LINKED] * 2
    assert [process.phase for process in world.agents["pod-1-2"].processes.values()] == [pb.DEAD] * 2
    assert not [fact for fact in world.facts if fact.kind == pb.CONTROLLER_LOST]
    assert world.mindio.calls == []


def test_a_moves_ranks_are_kept_when_their_coordinator_moves(world: World) -> None:
    """A drained node has a rank pod and the coordinator: one goes right after the other, and the old pod lingers."""
    world.new_pod(1, 2)
    world.advance(1.0)
    world.step(3)
    world.advance(0.3)
    world.mindio.result()
    world.advance(0.3)
    assert world.state.conversation == "Serving"
    world.mindio.calls.clear()
    world.mindio.registered.clear()
    restart_coordinator(world, [], controller=False)
    world.advance(3.0)
    assert [process.name for process in world.agents["pod-1-2"].processes.values()] == [(2, 0), (2, 0)]
    assert [process.phase for process in world.agents["pod-1-2"].processes.values()] == [pb.LINKED] * 2
    assert "stop_train" not in [call for call, _ in world.mindio.calls]
    assert (world.state.conversation, world.state.controller_ready) == ("Serving", True)
    assert not world.facts
