"""Growing back that does not go smoothly: whoever was to come back dies, others die, or the step is to be saved."""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_growth import (
    GrowingOperator,
    chosen_strategies,
    give_up_growth,
    leave_node_1_out,
    make_node_1_anew,
)
from tests.rigs.coordinator_restart import restart_coordinator

GROWN = ["downgrade", "upgrade"]


@pytest.fixture
def world(world: World) -> World:
    """Node 1 has left; two ranks train on."""
    leave_node_1_out(world)
    return world


def grown(world: World, incarnation: int) -> None:
    """All ranks train again, and the growth was asked for once."""
    world.step(2)
    world.mindio.result()
    world.pump()
    assert (world.state.conversation, chosen_strategies(world)) == ("Serving", GROWN)
    assert [world.phase(rank) for rank in range(4)] == [pb.LINKED] * 4
    marks = [mark.kind for mark in world.milestones if mark.incarnation == incarnation]
    assert [kind for kind in marks if kind in (pb.STRATEGY_SENT, pb.RESUMED, pb.RESULT)] == [
        pb.STRATEGY_SENT,
        pb.RESUMED,
        pb.RESULT,
    ]


def test_a_process_that_was_given_up_with_its_node_is_ended() -> None:
    """MindIO leaves it blocked for ever; here it shares a living agent with the one that died."""
    other = World()
    other.start()
    other.step(1)
    other.mindio.strategies = ["exit", "dump", "downgrade"]
    other.die(3)
    other.order(pb.SHRINK, incarnation=2, revision=1, lost_ranks=[2, 3])
    other.advance(0.2)
    assert other.phase(2) == pb.LINKED
    other.callback("report_result", [201, "isolate", [[2, 1], [3, 1]], "downgrade"])
    other.pump()
    assert other.phase(2) == pb.DEAD
    assert [fact.kind for fact in other.facts] == [pb.PROCESS_EXITED]


@pytest.mark.parametrize("restarted", [False, True])
def test_growing_is_given_up_and_begun_anew(world: World, *, restarted: bool) -> None:
    """MindIO goes on waiting for the ranks: it lets the next processes in, and is not asked a second time."""
    make_node_1_anew(world, 3)
    assert world.state.conversation == "Expanding"
    world.die(3)
    give_up_growth(world, 3)
    assert world.state.conversation == "Shrunk"
    assert world.core.job.incidents.current is None
    assert world.phase(2) == pb.DEAD
    if restarted:
        restart_coordinator(world)
        assert world.state.conversation == "Shrunk"
    make_node_1_anew(world, 4)
    assert world.state.conversation == "Expanding"
    grown(world, 4)
    assert not world.called("stop_train")[1:]


def test_new_processes_are_let_in_without_a_second_call(world: World) -> None:
    """The order to give up never came: it was overtaken by the next growth."""
    make_node_1_anew(world, 3)
    world.die(3)
    make_node_1_anew(world, 4)
    assert [world.phase(rank) for rank in (2, 3)] == [pb.LINKED] * 2
    assert chosen_strategies(world) == GROWN
    world.mindio.result()
    world.pump()
    assert world.state.conversation == "Serving"


def test_a_rank_that_dies_before_it_has_come_back_stops_nobody(world: World) -> None:
    world.listed.remove("pod-1-1")
    world.agent(1).powered = False
    world.order(pb.EXPAND, incarnation=3, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    new = world.new_pod(1, 3, start_delay=4.0)
    world.advance(3.5)
    new.due[2] = (world.now + 9.0, new.due[2][1])
    world.advance(1.0)
    assert [world.phase(rank) for rank in (2, 3)] == [pb.ABSENT, pb.AT_GATE]
    world.die(3)
    assert len(world.called("stop_train")) == 1, "that of the fault before"
    assert world.facts[-1].kind == pb.PROCESS_EXITED
    give_up_growth(world, 3)
    assert world.state.conversation == "Shrunk"
    make_node_1_anew(world, 4)
    grown(world, 4)


def test_deaths_after_growth_was_given_up_are_named_at_once(world: World) -> None:
    make_node_1_anew(world, 3)
    world.die(3)
    give_up_growth(world, 3)
    world.die(1)
    assert world.called("stop_train")[1:] == [{"ranks": [[1, 1]], "incarnation": 4}]


def test_deaths_before_growth_is_given_up_are_named_then(world: World) -> None:
    """Before that MindIO may be taking the ranks back, and would keep the word for its next fault."""
    make_node_1_anew(world, 3)
    world.die(1)
    world.die(3)
    assert len(world.called("stop_train")) == 1
    give_up_growth(world, 3)
    assert world.called("stop_train")[1:] == [{"ranks": [[1, 1]], "incarnation": 4}]


def test_deaths_while_growing_are_found_by_mindio(world: World) -> None:
    """Everybody known dead is in the answer: a silent rank that is not would cost MindIO five seconds."""
    make_node_1_anew(world, 3)
    world.die(0)
    world.die(1)
    facts = len(world.facts)
    world.mindio.ask = "stop"
    world.callback("report_fault_ranks", [[[0, 1]], [[0, ""]]])
    world.pump()
    assert world.called("stop_train")[1:] == [{"ranks": [[0, 1], [1, 1]], "incarnation": 4}]
    assert len(world.facts) == facts, "their deaths were told before"


def test_the_step_is_saved_while_mindio_waits_for_the_ranks(world: World) -> None:
    """A plain request to save is ignored there and takes the growth with it: the training is stopped first."""
    make_node_1_anew(world, 3)
    world.mindio.strategies = ["exit", "dump"]
    world.die(1)
    world.order(pb.CHECKPOINT, incarnation=3, revision=2, lost_ranks=[1])
    assert (world.state.conversation, chosen_strategies(world), world.called("dump")) == (
        "Saving",
        [*GROWN, "dump"],
        [],
    )
    assert world.called("stop_train")[-1]["ranks"] == [[1, 1]]
    world.mindio.result(0, "do dump success")
    world.pump()
    assert world.state.conversation == "Closed"
    result = world.marks(pb.RESULT)[-1]
    assert (result.incarnation, result.result_code, result.strategy) == (3, 0, "dump")


def test_save_crossing_a_failed_growth_is_its_answer(world: World) -> None:
    """MindIO drops the word with its report."""
    make_node_1_anew(world, 3)
    world.mindio.silent = True
    world.order(pb.CHECKPOINT, incarnation=3, revision=2, lost_ranks=[1])
    world.mindio.silent = False
    world.mindio.strategies = ["exit", "dump"]
    world.mindio.ask = "strategy"
    world.callback("report_result", [406, "upgrade repair failed", [[3, 1]], "upgrade"])
    world.pump()
    assert (world.state.conversation, chosen_strategies(world)) == ("Saving", [*GROWN, "dump"])


def test_save_crossing_a_successful_growth_is_repeated(world: World) -> None:
    """What succeeded is not the save: nobody may be ended yet."""
    make_node_1_anew(world, 3)
    world.mindio.silent = True
    world.order(pb.CHECKPOINT, incarnation=4, revision=1)
    assert len(world.called("stop_train")) == 2
    world.mindio.silent = False
    world.mindio.ask, world.mindio.strategies = "nothing", ["exit", "dump"]
    world.callback("report_result", [0, "Mindio do repair operation ok", [], "upgrade"])
    world.pump()
    assert (world.state.conversation, len(world.called("stop_train"))) == ("Saving", 3)
    assert not [mark for mark in world.marks(pb.RESULT) if mark.strategy == "dump"]
    assert [world.phase(rank) for rank in range(4)] == [pb.LINKED] * 4
    world.mindio.result(0, "do dump success")
    world.pump()
    assert world.state.conversation == "Closed"
    assert [world.phase(rank) for rank in range(4)] == [pb.DEAD] * 4


def test_failed_growth_after_giving_up_can_be_saved(world: World) -> None:
    make_node_1_anew(world, 3)
    world.die(3)
    give_up_growth(world, 3)
    world.mindio.strategies = ["exit", "dump"]
    world.mindio.result(406, "upgrade rebuild failed", {3: 1})
    world.pump()
    assert (world.state.conversation, world.state.controller_ready) == ("FailedOpen", True)
    world.order(pb.CHECKPOINT, incarnation=4, revision=1, lost_ranks=[3])
    assert chosen_strategies(world) == [*GROWN, "dump"]


def test_successful_growth_after_giving_up_is_full_size(world: World) -> None:
    """MindIO misses the ranks that were ended, and says so like any other fault."""
    make_node_1_anew(world, 3)
    give_up_growth(world, 3)
    world.mindio.result()
    world.pump()
    assert (world.state.conversation, world.state.controller_ready) == ("Serving", True)
    assert not world.core.job.roster.dropped
    world.mindio.ask = "stop"
    world.callback("report_fault_ranks", [[[2, 1], [3, 1]], []])
    world.pump()
    assert world.called("stop_train")[1:] == [{"ranks": [[2, 1], [3, 1]], "incarnation": 4}]


@pytest.mark.parametrize("seed", range(30))
def test_growing_at_random_ends_at_full_size_small_or_saved(world: World, seed: int) -> None:
    """MindIO is told nothing that its phase does not ask for, and nobody stands at a gate for good."""
    growth = GrowingOperator(world, seed)
    for _ in range(40):
        growth.act()
        if world.state.conversation == "Serving":
            assert [world.phase(rank) for rank in range(4)] == [pb.LINKED] * 4
            return
        if world.phase(1) == pb.DEAD:
            growth.end()
            world.advance(0.5)
            assert world.state.conversation == "Saving", "whoever dies, the step is saved"
            return
    assert world.state.conversation in ("Shrunk", "Expanding")
    growth.end()
    growth.grow()
    world.advance(5.0)
    growth.end()
    assert world.state.conversation == "Serving"


def test_a_dropped_rank_that_had_died_again_is_not_named() -> None:
    """Its successor dies after the naming, so the job is shrunk by it; MindIO knows that it is gone."""
    world = World()
    world.start()
    world.step(1)
    world.mindio.strategies = ["exit", "dump", "recover", "downgrade"]
    world.die(3)
    world.order(pb.IN_PLACE, incarnation=2, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.2)
    assert world.state.conversation == "Recovering"
    world.die(3)
    world.order(pb.SHRINK, incarnation=2, revision=2, lost_ranks=[2, 3])
    assert world.state.conversation == "Shrinking"
    world.callback("report_result", [201, "isolate", [[2, 1], [3, 1]], "downgrade"])
    world.pump()
    world.mindio.result(ranks={2: 1, 3: 1})
    world.pump()
    assert (world.state.conversation, len(world.called("stop_train"))) == ("Shrunk", 1)
