"""A controller that is lost while the job is smaller, becomes smaller or grows: another one is told who takes part."""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_growth import chosen_strategies, give_up_growth, leave_node_1_out, make_node_1_anew
from tests.rigs.coordinator_repairs import CLEANED, LOCKED, STOPPED, keep_store_at_gates
from tests.rigs.coordinator_restart import restart_coordinator
from trainer_sidecar.coordinator.takeover.resumption import DOWNGRADED, REBUILT_LARGER, REPAIRED_LARGER

LEFT_OUT_AGAIN = ["stop_train", "on_global_rank", "change_strategy"]
BY = pytest.mark.parametrize("by", ["controller", "pod"])


@pytest.fixture
def world() -> World:
    """Node 1 has left; two ranks train on."""
    found = World()
    found.gates_know = True
    found.train(1)
    keep_store_at_gates(found)
    leave_node_1_out(found)
    found.advance(4.0)
    found.mindio.calls.clear()
    found.milestones.clear()
    found.facts.clear()
    return found


def lose(world: World, by: str) -> None:
    world.mindio.strategies = ["exit", "dump", "recover", "downgrade"]
    world.mindio.calls.clear()
    if by == "controller":
        world.lose_controller()
    else:
        restart_coordinator(world, [], controller=False)
        world.advance(4.0)


def calls(world: World) -> list[str]:
    return [call for call, _ in world.mindio.calls]


def leaves_out_again(world: World) -> None:
    """MindIO is through with it; the operator has heard of no failure."""
    assert calls(world) == LEFT_OUT_AGAIN
    assert world.called("stop_train")[0]["ranks"] == [[2, 1], [3, 1]]
    assert world.called("change_strategy")[0] == {
        "strategy": "downgrade",
        "parameters": '{"scale-in-strategy":"DP"}',
    }
    world.callback("report_result", [201, "isolate", [[2, 1], [3, 1]], "downgrade"])
    world.pump()
    world.mindio.result(ranks={2: 1, 3: 1})
    world.pump()
    assert not world.facts


@BY
def test_a_shrunk_job_stays_shrunk_under_another_controller(world: World, by: str) -> None:
    lose(world, by)
    leaves_out_again(world)
    assert (world.state.conversation, world.state.controller_ready) == ("Shrunk", True)
    assert world.core.job.incidents.current is None
    assert world.core.job.roster.dropped == {2, 3}
    world.step(3)
    make_node_1_anew(world, 3)
    assert world.state.conversation == "Expanding"
    world.mindio.result()
    world.pump()
    assert (world.state.conversation, chosen_strategies(world)) == ("Serving", ["downgrade", "upgrade"])


@BY
def test_a_death_while_ranks_are_left_out_again_is_saved(world: World, by: str) -> None:
    """The operator knows nothing of the other incident: it decides about the death, under the next number."""
    world.agent(0).frozen = by == "controller"
    lose(world, by)
    if by == "controller":
        world.agent(0).frozen = False
    world.die(1)
    world.advance(1.0)
    assert world.state.conversation in ("Stopped", "Shrinking")
    if world.state.conversation == "Shrinking":  # it came after the naming: MindIO fails by itself
        world.mindio.result(406, "downgrade rebuild failed", {1: 1})
        world.pump()
    world.order(pb.CHECKPOINT, incarnation=world.state.incarnation + 1, revision=1, lost_ranks=[1])
    world.advance(0.5)
    assert chosen_strategies(world)[-1] == "dump"
    world.mindio.result()
    world.pump()
    result = world.marks(pb.RESULT)[-1]
    assert (result.result_code, result.strategy) == (0, "dump")
    assert result.incarnation == world.core.job.order.incarnation  # type: ignore[union-attr]


@pytest.mark.parametrize("answered", [[LOCKED], [LOCKED, STOPPED], [LOCKED, STOPPED, CLEANED, DOWNGRADED]])
@BY
def test_a_shrink_in_the_middle_begins_anew(answered: list[int], by: str) -> None:
    world = World()
    world.gates_know = True
    world.train(1)
    keep_store_at_gates(world)
    world.mindio.strategies = ["exit", "dump", "recover", "downgrade"]
    world.die(2)
    world.die(3)
    world.order(pb.SHRINK, incarnation=2, revision=1, lost_ranks=[2, 3])
    world.advance(0.2)
    assert world.state.conversation == "Shrinking"
    world.facts.clear()
    world.agent(0).answered = {0: list(answered), 1: list(answered)}
    lose(world, by)
    world.advance(0.5)
    leaves_out_again(world)
    assert world.state.conversation == "Shrunk"
    assert [mark.result_code for mark in world.marks(pb.RESULT)] == [201, 0], "the operator waits for it"
    assert {mark.incarnation for mark in world.marks(pb.RESULT)} == {2}


@pytest.mark.parametrize("answered", [[], [LOCKED, STOPPED], [LOCKED, STOPPED, CLEANED, REBUILT_LARGER]])
def test_growing_begins_anew_from_the_smaller_size(world: World, answered: list[int]) -> None:
    make_node_1_anew(world, 3)
    assert world.state.conversation == "Expanding"
    world.agent(0).answered = {0: list(answered), 1: list(answered)}
    returning = dict(world.agent(1).processes)
    world.milestones.clear()
    lose(world, "controller")
    world.step(2, [0, 1])
    world.advance(0.5)
    assert all(world.phase(rank) == pb.AT_GATE for rank in (2, 3)), "they wait"
    leaves_out_again(world)
    assert not world.marks(pb.RESULT), "for the operator the job grows, and nothing else"
    assert not world.marks(pb.RESUMED)
    world.agent(0).answered = {}
    world.advance(0.5)
    assert world.state.conversation == "Expanding"
    assert chosen_strategies(world) == ["downgrade", "upgrade"]
    assert dict(world.agent(1).processes) == returning, "nobody was started for it"
    world.step(5)
    world.mindio.result()
    world.pump()
    assert (world.state.conversation, world.core.job.roster.dropped) == ("Serving", set())
    assert [(mark.incarnation, mark.strategy) for mark in world.marks(pb.RESULT)] == [(3, "upgrade")]


def test_who_has_taken_part_in_growing_starts_once_more(world: World) -> None:
    make_node_1_anew(world, 3)
    for agent in world.agents.values():
        agent.answered = {rank: [REBUILT_LARGER, REPAIRED_LARGER] for rank in agent.processes}
    lose(world, "controller")
    world.advance(0.5)
    leaves_out_again(world)
    world.advance(0.5)
    assert world.state.conversation == "Expanding"
    assert [world.agent(1).processes[rank].name for rank in (2, 3)] == [(3, 1), (3, 1)]


def test_growth_that_was_through_is_not_undone(world: World) -> None:
    """Every rank trains: the gates of those that came back tell that they were let go."""
    make_node_1_anew(world, 3)
    world.agent(1).repaired = {2, 3}
    lose(world, "controller")
    world.advance(0.5)
    assert calls(world) == []
    assert (world.state.conversation, world.core.job.roster.dropped) == ("Serving", set())
    assert [(mark.result_code, mark.strategy) for mark in world.marks(pb.RESULT)] == [(0, "upgrade")]


def test_growth_given_up_meanwhile_ends_who_came_back(world: World) -> None:
    make_node_1_anew(world, 3)
    world.agent(0).frozen = True
    lose(world, "controller")
    give_up_growth(world, 3)
    world.agent(0).frozen = False
    world.advance(1.0)
    leaves_out_again(world)
    assert world.state.conversation == "Shrunk"
    assert [world.phase(rank) for rank in (2, 3)] == [pb.DEAD] * 2


def test_a_save_while_shrunk_begins_anew(world: World) -> None:
    world.mindio.strategies = ["exit", "dump"]
    world.order(pb.CHECKPOINT, incarnation=3, revision=1)
    world.advance(0.5)
    assert world.state.conversation == "Saving"
    world.agent(0).answered = {0: [LOCKED], 1: [LOCKED]}
    lose(world, "controller")
    world.advance(0.5)
    assert calls(world) == LEFT_OUT_AGAIN
    assert chosen_strategies(world) == ["dump"]
    assert world.called("on_global_rank")[0]["ranks"] == [[2, 1], [3, 1]]


def test_smaller_and_without_a_store_it_is_saved(world: World) -> None:
    """To be left out again they would have to meet: the step is locked, and another decision is asked for."""
    for agent in world.agents.values():
        agent.written = None
    lose(world, "pod")
    assert calls(world) == ["stop_train"]
    (result,) = world.marks(pb.RESULT)
    assert (result.result_code, result.strategy) == (406, "downgrade")
    world.order(pb.CHECKPOINT, incarnation=4, revision=1)
    world.advance(0.5)
    assert chosen_strategies(world) == ["dump"]
    world.mindio.result()
    world.pump()
    assert (world.marks(pb.RESULT)[-1].incarnation, world.state.conversation) == (4, "Closed")


def test_what_is_left_out_again_may_fail(world: World) -> None:
    """Then the operator decides: what is left is to save."""
    lose(world, "controller")
    world.mindio.result(406, "downgrade rebuild failed", {1: 1})
    world.pump()
    assert world.state.conversation == "FailedOpen"
    assert [mark.result_code for mark in world.marks(pb.RESULT)] == [406]


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("saving", [True, False])
@BY
def test_a_save_of_a_small_job_goes_on(world: World, by: str, kept: bool, saving: bool) -> None:
    """The order to save names nobody; who was left out has ended processes, or no pod."""
    if not kept:
        world.listed.remove("pod-1-1")
        world.agent(1).powered = False
        world.assign()
        world.advance(8.0)
    world.mindio.strategies = ["exit", "dump"]
    world.order(pb.CHECKPOINT, incarnation=3, revision=1)
    if saving:
        world.advance(0.5)
        assert world.state.conversation == "Saving"
    lose(world, by)
    world.mindio.strategies = ["exit", "dump"]
    world.advance(6.0)
    assert world.state.conversation == "Saving"
    assert world.called("on_global_rank")[-1]["ranks"] == [[2, 1], [3, 1]]
    world.mindio.result(0, "do dump success")
    world.pump()
    assert world.marks(pb.RESULT)[-1].result_code == 0
