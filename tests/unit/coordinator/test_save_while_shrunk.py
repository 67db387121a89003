"""A job that trains with fewer ranks is suspended, or saved after a fault: the step is locked first, then saved."""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_growth import (
    chosen_strategies,
    give_up_growth,
    isolate_node_1,
    leave_node_1_out,
    make_node_1_anew,
)


@pytest.fixture
def world(world: World) -> World:
    """Node 1 has left; two ranks train on."""
    leave_node_1_out(world)
    return world


def ask_to_save(world: World, incarnation: int, *lost: int) -> None:
    """The operator orders it, and MindIO offers it after a stop, and nothing else."""
    world.mindio.strategies = ["exit", "dump"]
    world.order(pb.CHECKPOINT, incarnation=incarnation, revision=1, lost_ranks=lost)
    world.advance(0.5)


def saved(world: World) -> None:
    """MindIO saves, and everything is over."""
    assert (world.state.conversation, chosen_strategies(world)[-1], world.called("dump")) == ("Saving", "dump", [])
    world.mindio.result(0, "do dump success")
    world.pump()
    assert world.state.conversation == "Closed"
    result = world.marks(pb.RESULT)[-1]
    assert (result.result_code, result.strategy) == (0, "dump")


def test_a_shrunk_job_that_is_suspended_is_stopped_and_saved(world: World) -> None:
    """A plain request to save is not heard there; who is missing is named, because somebody must be."""
    ask_to_save(world, 3)
    missing = [[2, 1], [3, 1]]
    assert world.called("stop_train")[-1]["ranks"] == missing
    assert world.called("on_global_rank")[-1]["ranks"] == missing
    saved(world)


def test_a_fault_while_shrunk_is_named_and_saved(world: World) -> None:
    world.die(1)
    ask_to_save(world, 3, 1)
    assert world.called("on_global_rank")[-1]["ranks"] == [[1, 1]]
    saved(world)


def test_suspended_after_growth_was_given_up_it_is_saved(world: World) -> None:
    make_node_1_anew(world, 3)
    give_up_growth(world, 3)
    ask_to_save(world, 4)
    assert world.called("stop_train")[-1]["ranks"] == [[2, 1], [3, 1]]
    saved(world)


@pytest.mark.parametrize("dies_first", [True, False])
def test_a_fault_before_mindio_calls_the_shrink_done_is_saved(*, dies_first: bool) -> None:
    """The training goes on up to 2 s before MindIO's own success: the operator's next decision comes before it."""
    world = World()
    world.start()
    world.step(1)
    isolate_node_1(world)
    world.step(2)
    if dies_first:
        world.die(1)
    world.order(pb.CHECKPOINT, incarnation=3, revision=1, lost_ranks=[1])
    world.advance(0.5)
    world.mindio.result(ranks={2: 1, 3: 1})
    world.mindio.strategies = ["exit", "dump"]
    world.pump()
    if not dies_first:
        world.die(1)
    world.advance(0.5)
    assert world.called("on_global_rank")[-1]["ranks"] == [[1, 1]]
    saved(world)
