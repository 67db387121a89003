"""After the last step nothing is left to train: MindIO is left alone, and a death is told and stops nobody."""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_checkpoints import answer_a_look, ask_for_a_start, looks_asked_of, world_with_checkpoints


def ending_world(step: int = 1) -> World:
    """Two nodes with two ranks each; every rank has ended the last step, and checkpoints are looked at."""
    world = world_with_checkpoints()
    world.last_step = 1
    ask_for_a_start(world)
    answer_a_look(world.agent(0), 1, 0)
    world.advance(1.0)
    world.step(step)
    return world


def test_the_last_step_of_every_rank_is_the_end() -> None:
    world = world_with_checkpoints()
    world.last_step = 1
    ask_for_a_start(world)
    answer_a_look(world.agent(0), 1, 0)
    world.advance(1.0)
    world.step(1, [0, 1, 2])
    assert world.state.end == pb.TRAINS
    world.step(1)
    assert (world.state.end, world.state.conversation) == (pb.LAST_STEP_ENDED, "Finishing")


@pytest.mark.parametrize("last_step", [0, 5])
def test_a_step_that_is_not_the_last_is_no_end(last_step: int) -> None:
    world = World()
    world.last_step = last_step
    world.train(4)
    assert (world.state.end, world.state.conversation) == (pb.TRAINS, "Serving")


def test_an_end_in_order_is_the_end_of_unknown_steps(world: World) -> None:
    world.finish(0)
    assert world.state.end == pb.LAST_STEP_ENDED


def test_a_death_after_the_last_step_is_told_and_stops_nobody() -> None:
    world = ending_world()
    before = looks_asked_of(world.agent(0))
    world.die(3, code=-11)
    world.advance(1)
    assert [fact.kind for fact in world.facts] == [pb.PROCESS_EXITED]
    assert not world.mindio.calls
    assert looks_asked_of(world.agent(0)) != before, "the final checkpoint decides what the death means"
    assert not world.marks(pb.FINISHED_ALL)


def test_nothing_is_said_of_a_hang_while_ranks_save() -> None:
    world = ending_world()
    world.hang_rule = pb.HangRule(minimum_seconds=5)
    world.assign()
    world.advance(5000)
    assert not world.facts


def test_after_the_final_checkpoint_every_end_is_one() -> None:
    world = ending_world()
    answer_a_look(world.agent(0), 1, 1)
    world.advance(1)
    assert world.state.end == pb.FINAL_CHECKPOINT
    for rank in (0, 1, 2):
        world.die(rank, code=-11)
    assert not world.marks(pb.FINISHED_ALL)
    world.die(3, code=-11)
    world.advance(1)
    assert len(world.marks(pb.FINISHED_ALL)) == 1


def test_a_node_lost_after_the_final_checkpoint_is_not_awaited() -> None:
    world = ending_world()
    answer_a_look(world.agent(0), 1, 1)
    world.advance(1)
    world.finish(0)
    world.finish(1)
    world.agent(1).powered = False
    world.advance(10)
    assert len(world.marks(pb.FINISHED_ALL)) == 1


@pytest.mark.parametrize("found", [pb.CheckpointState(step=0, tracked=True), pb.CheckpointState(step=1)])
def test_an_older_or_untracked_checkpoint_is_not_the_final_one(found: pb.CheckpointState) -> None:
    world = ending_world()
    world.agent(0).checkpoint = found
    world.advance(1)
    assert world.state.end == pb.LAST_STEP_ENDED
    for rank in range(4):
        world.die(rank, code=-11)
    world.advance(1)
    assert not world.marks(pb.FINISHED_ALL)
