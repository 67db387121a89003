"""Nothing is called saved that is not on the volume and whole."""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_checkpoints import answer_a_look, ask_for_a_start, looks_asked_of, world_with_checkpoints
from tests.rigs.coordinator_restart import restart_coordinator
from trainer_sidecar.coordinator.watch.checkpoints import NOT_KNOWN_BEFORE, VERIFY_SECONDS


def world_at_step_nine() -> World:
    """A job with a checkpoint of step 5 that is known, and nothing saved since."""
    world = world_with_checkpoints()
    ask_for_a_start(world)
    answer_a_look(world.agent(0), 1, 5)
    world.advance(0.6)
    for step in range(6, 10):
        world.step(step)
    return world


@pytest.fixture
def world() -> World:
    """A job with a checkpoint of step 5 that is told to save at step 9, and whose MindIO says that it has."""
    world = world_at_step_nine()
    world.order(pb.CHECKPOINT, incarnation=2, revision=1)
    asked = looks_asked_of(world.agent(0))
    world.mindio.result(0, "do dump success")
    world.pump()
    assert world.state.conversation == "Closed"
    assert looks_asked_of(world.agent(0)) == (asked or 0) + 1, "the agent looks at once"
    assert not saves(world)
    return world


def saves(world: World) -> list[pb.Milestone]:
    return [mark for mark in world.marks(pb.RESULT) if mark.strategy == "dump"]


def test_it_is_told_when_the_checkpoint_is_found(world: World) -> None:
    world.advance(3.0)
    assert not saves(world)
    answer_a_look(world.agent(0), 1, 9)
    world.advance(0.2)
    (mark,) = saves(world)
    assert (mark.incarnation, mark.result_code, mark.unverified) == (2, 0, "")


def test_what_is_not_found_is_not_saved(world: World) -> None:
    world.advance(VERIFY_SECONDS + 1.0)
    (mark,) = saves(world)
    assert mark.result_code == 499
    assert "the newest whole one there is of step 5" in mark.text


def test_after_a_failed_repair_an_older_checkpoint_is_no_save() -> None:
    world = world_at_step_nine()
    world.die(3)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.3)
    assert world.called("change_strategy")[-1]["strategy"] == "recover"
    world.mindio.result(406, "rollback failed", {3: 1})
    world.pump()
    world.order(pb.CHECKPOINT, revision=2, lost_ranks=[3])
    assert world.called("change_strategy")[-1]["strategy"] == "dump"
    world.mindio.result(0, "do dump success")
    world.pump()
    assert not saves(world)
    world.advance(VERIFY_SECONDS + 1.0)
    assert saves(world)[-1].result_code == 499


@pytest.mark.parametrize(("step", "unverified"), [(9, ""), (5, NOT_KNOWN_BEFORE)])
def test_another_coordinator_does_not_take_an_older_one(world: World, step: int, unverified: str) -> None:
    answer_a_look(world.agent(0), 1, step)
    restart_coordinator(world)
    world.advance(VERIFY_SECONDS + 1.0)
    (mark,) = saves(world)
    assert (mark.result_code, mark.unverified) == (0, unverified)


def test_what_cannot_be_looked_at_is_said_to_be_unverified(world: World) -> None:
    answer_a_look(world.agent(0), 1, 5, problem="the volume hangs")
    world.advance(0.2)
    (mark,) = saves(world)
    assert (mark.result_code, mark.unverified) == (0, "the volume hangs")


def test_where_no_agent_sees_the_volume_it_is_told_at_once() -> None:
    world = World()
    world.train(3)
    world.order(pb.CHECKPOINT, incarnation=2, revision=1)
    world.mindio.result(0, "do dump success")
    world.pump()
    (mark,) = saves(world)
    assert (mark.result_code, mark.unverified) == (0, "no agent sees the checkpoints")
