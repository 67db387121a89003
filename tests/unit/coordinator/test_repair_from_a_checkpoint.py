"""A repair in which every rank loads a checkpoint: MindIO succeeds at once, and the steps go back."""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World


def repaired(step: int) -> World:
    """Rank 3 died at `step`; MindIO has repaired everybody and reports it before any step has ended."""
    world = World()
    world.train(step, seconds=0.1)
    world.die(3)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.5)
    world.mindio.result()
    world.pump()
    world.advance(0.1)
    return world


def test_the_first_step_is_told_although_the_incident_is_over() -> None:
    world = repaired(9)
    assert world.state.conversation == "Serving"
    before = len(world.marks(pb.RESUMED))
    world.step(6)
    world.advance(0.1)
    resumed = world.marks(pb.RESUMED)[before:]
    assert [(mark.step, mark.incarnation) for mark in resumed] == [(6, 2)]
    assert world.state.step == 6
    world.step(7)
    world.advance(0.1)
    assert len(world.marks(pb.RESUMED)) == before + 1
    assert world.state.step == 7


def test_next_fault_counts_from_the_repeated_steps() -> None:
    world = repaired(9)
    for one in (6, 7):
        world.step(one)
        world.advance(0.1)
    world.die(2)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[2], restart_ranks=[2])
    world.advance(0.5)
    assert world.marks(pb.STEP_BEFORE)[-1].step == 7


def test_a_fault_before_the_first_step_is_an_incident_of_its_own() -> None:
    world = repaired(9)
    before = len(world.marks(pb.RESUMED))
    world.die(2)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[2], restart_ranks=[2])
    world.advance(0.5)
    world.step(6)
    world.advance(0.1)
    assert [mark.incarnation for mark in world.marks(pb.RESUMED)[before:]] == [3]
