"""A job for which MindIO can do nothing: its ranks register with nobody, and train, end and start again."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_restart import restart_coordinator
from trainer_sidecar.launcher.arguments import WITHOUT_MINDIO

LAUNCHED = ["pretrain_gpt.py", "--train-iters", "100"]
PRINTS = [3]


def unprotected(nodes: int = 2, launched: list[str] = LAUNCHED) -> World:
    """Two nodes of two ranks, of which the last one prints its steps."""
    world = World(nodes=nodes)
    world.environment, world.launched = {WITHOUT_MINDIO: "1"}, launched
    return world


def trained(steps: int = 3) -> World:
    world = unprotected()
    world.start()
    for step in range(1, steps + 1):
        world.step(step, PRINTS)
        world.advance(1)
    return world


def given(world: World) -> list[dict[str, str]]:
    """The variables that each rank was started with."""
    orders = [agent.order for agent in world.agents.values() if agent.order is not None]
    return [dict(entry.environment) for order in orders for entry in order.ranks]


def test_ranks_start_without_a_controller() -> None:
    world = unprotected()
    world.start()
    assert (world.controller["controller"], world.controller["store"]) == ("none", "listening")
    assert world.state.controller_ready
    assert not world.state.controller_problem
    assert all(WITHOUT_MINDIO in one for one in given(world))
    assert not world.controller["unfilled"], "nothing of this store was lost"


def test_the_lines_of_one_rank_tell_that_the_training_runs() -> None:
    world = unprotected()
    world.start()
    assert not world.state.HasField("step")
    world.step(1, PRINTS)
    assert [mark.step for mark in world.marks(pb.RESUMED)] == [1]
    assert world.state.step == 1


def test_a_death_is_told_and_no_step_of_mindio_is_tried() -> None:
    world = trained()
    world.die(0)
    world.advance(1)
    assert [fact.kind for fact in world.facts] == [pb.PROCESS_EXITED]
    assert not world.mindio.calls
    assert world.state.controller_ready


@pytest.mark.parametrize(
    ("action", "fields"),
    [
        (pb.CHECKPOINT, {}),
        (pb.PAUSE, {}),
        (pb.RETRY, {"lost_ranks": [0]}),
    ],
)
def test_an_order_for_mindio_asks_nobody_for_anything(action: pb.Action, fields: dict[str, Any]) -> None:
    world = trained()
    world.order(action, incarnation=2, **fields)
    world.advance(1)
    assert not world.mindio.calls


def test_the_next_start_trains_again() -> None:
    world = trained()
    world.die(0)
    world.attempt = 2
    world.assign()
    world.order(pb.START, incarnation=2)
    world.advance(2)
    assert [mark.incarnation for mark in world.marks(pb.STARTED)] == [1, 2]
    assert [mark.step for mark in world.marks(pb.STEP_BEFORE)] == [3]
    world.step(1, PRINTS)
    assert [mark.incarnation for mark in world.marks(pb.RESUMED)] == [1, 2]


def test_the_last_printed_step_is_the_end() -> None:
    world = unprotected()
    world.last_step = 2
    world.start()
    world.step(1, PRINTS)
    assert world.state.end == pb.TRAINS
    world.step(2, PRINTS)
    assert world.state.end == pb.LAST_STEP_ENDED
    for rank in range(4):
        world.finish(rank)
    assert world.marks(pb.FINISHED_ALL)


def test_a_standstill_is_found_by_the_lines_of_who_prints() -> None:
    world = unprotected()
    world.hang_rule = pb.HangRule(step_time_multiple=20, minimum_seconds=30)
    world.start()
    for step in range(1, 6):
        world.step(step, PRINTS)
        world.advance(1)
    assert not world.facts
    world.advance(45)
    assert [fact.kind for fact in world.facts] == [pb.HANG]


@pytest.mark.parametrize("launched", [["--enable-high-availability"], ["--enable_high_availability"]])
def test_a_script_that_switches_mindio_on_has_a_controller(launched: list[str]) -> None:
    world = unprotected(launched=[*LAUNCHED, *launched])
    world.start()
    assert world.controller["controller"] == "serving"
    assert world.mindio.registered == {0, 1, 2, 3}
    assert not any(WITHOUT_MINDIO in one for one in given(world))
    assert not world.controller["unfilled"]


def test_what_was_launched_may_tell_it_late() -> None:
    """An entry that knows nothing of MindIO: its ranks run, and would be waited for for ever."""
    world = World()
    world.launched = ["train_fsdp2.py", "--train-iters", "100"]
    for agent in world.agents.values():
        agent.start_delay = 1e6
    world.core.apply_controller_hello(world.controller, [], world.now)
    world.assign()
    world.order(pb.START, incarnation=1)
    world.advance(0.6)
    for agent in world.agents.values():
        agent.due = {rank: (0.0, process) for rank, (_, process) in agent.due.items()}
        agent.lease_until = 0.0
    world.environment = {WITHOUT_MINDIO: "1"}
    world.assign()
    assert all(WITHOUT_MINDIO in one for one in given(world))
    world.advance(0.2)
    assert world.state.controller_ready


def test_it_is_not_left_out_once_a_rank_has_registered() -> None:
    world = World()
    world.train(2)
    world.environment = {WITHOUT_MINDIO: "1"}
    world.assign()
    assert not any(WITHOUT_MINDIO in one for one in given(world))
    world.die(3)
    assert world.called("stop_train")


def test_a_coordinator_that_is_restarted_takes_the_ranks_up() -> None:
    world = trained()
    restart_coordinator(world)
    assert world.state.controller_ready
    assert not world.facts
    assert not [agent.ended for agent in world.agents.values() if agent.ended]
    world.step(4, PRINTS)
    assert world.state.step == 4
    world.advance(400)
    assert not world.facts, "nobody waits for ranks to register"


def test_another_coordinators_pod_opens_a_store_for_them() -> None:
    world = trained()
    for agent in world.agents.values():
        agent.written = [pb.StoreEntry(key=b"a", value=b"1")]
    world.gates_know = True
    restart_coordinator(world, controller=False)
    world.advance(2)
    assert world.controller["store"] == "listening"
    assert world.filled == {b"a": b"1"}
    assert not world.controller["unfilled"]
    assert world.state.controller_ready
    assert not world.facts


def test_a_store_that_nobody_can_fill_is_opened_empty() -> None:
    world = trained()
    restart_coordinator(world, controller=False)
    world.advance(15)
    assert world.controller["store"] == "listening"
    assert world.state.controller_ready
    assert not world.facts


def test_a_container_that_ends_is_told() -> None:
    """The operator makes another pod; nothing else comes of it."""
    world = trained()
    world.core.note_lost_controller_host(world.now)
    world.pump()
    assert [fact.kind for fact in world.facts] == [pb.CONTROLLER_LOST]
