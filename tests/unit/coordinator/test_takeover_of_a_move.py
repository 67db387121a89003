"""A coordinator that is restarted in the middle of a hot switch: it goes on, or says that nobody protects the job."""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_restart import restart_coordinator


@pytest.fixture
def world(world: World) -> World:
    world.order(pb.MIGRATE, incarnation=2, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    return world


def phases(world: World, incarnation: int) -> list[pb.RankPhase]:
    return [process.phase for process in world.agents[f"pod-1-{incarnation}"].processes.values()]


def is_moved(world: World) -> None:
    """The second processes are the ranks, the first ones are ended, MindIO was told each thing once, and protects."""
    world.advance(0.3)
    world.step(2)
    world.advance(0.3)
    assert phases(world, 1) == [pb.DEAD] * 2
    world.mindio.result()
    world.advance(0.3)
    stands_after_the_move(world)


def stands_after_the_move(world: World) -> None:
    assert (world.state.conversation, world.state.controller_ready) == ("Serving", True)
    assert phases(world, 2) == [pb.LINKED] * 2
    arguments = {"action": "hot switch", "ranks": [[2, 0], [3, 0]], "incarnation": 2}
    assert world.called("prepare_action") == [arguments]
    assert world.called("change_strategy") == [{"strategy": "migration", "parameters": ""}]
    assert not world.facts
    assert world.core.job.incidents.current is None
    world.mindio.silent = False
    world.die(2)
    assert world.called("stop_train") == [{"ranks": [[2, 1]], "incarnation": 3}]


def until_prepared(world: World) -> None:
    """MindIO has taken the announcement, and not stopped the ranks yet."""
    world.mindio.silent = True
    world.new_pod(1, 2, start_delay=0.5)
    world.advance(1.0)
    assert world.state.conversation == "Switching"


def not_admitted(world: World) -> None:
    """The predecessor was killed before it could let the second processes pass."""
    second = world.agents["pod-1-2"]
    second.order = None
    for process in second.processes.values():
        process.phase = pb.AT_GATE


def offer(world: World) -> None:
    world.mindio.silent = False
    world.mindio.ask, world.mindio.strategies = "strategy", ["migration"]
    world.callback("report_strategies", [[], ["migration"]])


def test_before_the_second_processes_stand(world: World) -> None:
    world.new_pod(1, 2, start_delay=2.0)
    world.advance(0.5)
    restart_coordinator(world)
    assert not world.mindio.calls
    assert phases(world, 1) == [pb.LINKED] * 2
    world.advance(2.0)
    is_moved(world)


def test_second_processes_are_held_until_mindio_knows(world: World) -> None:
    """The predecessor was killed right before its word to MindIO."""
    new = world.new_pod(1, 2, start_delay=2.0)
    world.advance(0.5)
    new.start_delay = 0.0
    new.live()
    for rank, (_, process) in new.due.items():
        new.processes[rank] = process
    new.due.clear()
    world.mindio.silent = True
    restart_coordinator(world)
    assert phases(world, 1) == [pb.LINKED] * 2
    assert [name for name, _ in world.mindio.calls] == ["prepare_action"]
    offer(world)
    is_moved(world)


@pytest.mark.parametrize("answered", [True, False])
def test_when_mindio_has_been_told(world: World, *, answered: bool) -> None:
    until_prepared(world)
    log = list(world.log)
    assert "answer" in log[-1]
    if answered:
        restart_coordinator(world)
    else:
        not_admitted(world)
        restart_coordinator(world, log[:-1])
        assert phases(world, 2) == [pb.AT_GATE] * 2
        world.answered("prepare_action", 0)
        world.advance(0.3)
    assert phases(world, 1) == phases(world, 2) == [pb.LINKED] * 2
    assert (world.state.conversation, world.state.incarnation) == ("Switching", 2)
    offer(world)
    is_moved(world)


def test_the_margin_of_a_move_is_measured_anew(world: World) -> None:
    """A coordinator that has timed no step yet cannot know how many of them pass before MindIO's word."""
    until_prepared(world)
    restart_coordinator(world)
    for step in range(1, 5):
        world.step(step)
        world.advance(0.1)
    assert world.state.conversation == "Switching"
    order = world.agents["pod-0-1"].order
    assert order is not None
    assert order.steps_ahead == 10


def test_when_mindio_has_refused_it_is_asked_again(world: World) -> None:
    until_prepared(world)
    not_admitted(world)
    log = [*world.log[:-1], {**world.log[-1], "code": 1}]
    world.mindio.calls.clear()
    restart_coordinator(world, log)
    world.advance(0.3)
    assert phases(world, 2) == [pb.LINKED] * 2
    offer(world)
    is_moved(world)


def test_when_the_move_is_offered(world: World) -> None:
    until_prepared(world)
    world.mindio.ask, world.mindio.strategies = "strategy", ["migration"]
    world.mindio.silent = False
    world.note({"event": "report_strategies", "arguments": [[], ["migration"]]})
    restart_coordinator(world)
    assert world.state.conversation == "Migrating"
    is_moved(world)


def test_when_it_is_chosen(world: World) -> None:
    world.new_pod(1, 2)
    world.advance(1.0)
    assert world.state.conversation == "Migrating"
    restart_coordinator(world)
    assert world.state.conversation == "Migrating"
    assert phases(world, 1) == [pb.LINKED] * 2
    is_moved(world)


@pytest.mark.parametrize("gone", [True, False])
def test_when_the_second_processes_have_finished_a_step(world: World, *, gone: bool) -> None:
    world.new_pod(1, 2)
    world.advance(1.0)
    world.step(2)
    world.advance(0.3)
    if gone:
        del world.agents["pod-1-1"]
        world.listed.remove("pod-1-1")
    restart_coordinator(world)
    world.advance(3.5)
    assert phases(world, 2) == [pb.LINKED] * 2
    assert not world.called("stop_train")
    world.mindio.result()
    world.advance(0.3)
    stands_after_the_move(world)


@pytest.mark.parametrize("ended", [True, False])
def test_when_it_has_succeeded(world: World, *, ended: bool) -> None:
    """Nothing is asked of MindIO a second time; first processes that still live are ended."""
    world.new_pod(1, 2)
    world.advance(1.0)
    if ended:
        world.step(2)
        world.advance(0.3)
        world.mindio.result()
        world.pump()
    else:
        world.mindio.ask = "nothing"
        world.note({"event": "report_result", "arguments": [0, "ok", [], "migration"]})
    restart_coordinator(world)
    world.advance(1.0)
    assert phases(world, 1) == [pb.DEAD] * 2
    assert [mark.strategy for mark in world.marks(pb.RESULT)] == ["migration"], "the operator may have missed it"
    stands_after_the_move(world)


def test_a_first_process_that_dies_meanwhile_is_a_fault(world: World) -> None:
    until_prepared(world)
    world.agents["pod-1-1"].processes[2].phase = pb.DEAD
    world.mindio.silent = False
    restart_coordinator(world)
    assert world.called("stop_train") == [{"ranks": [[2, 1]], "incarnation": 3}]
    assert (world.state.conversation, world.state.incarnation) == ("Stopped", 3)


def test_a_second_process_that_dies_meanwhile_is_none(world: World) -> None:
    until_prepared(world)
    world.agents["pod-1-2"].processes[2].phase = pb.DEAD
    restart_coordinator(world)
    assert world.state.conversation == "Switching"
    assert not world.called("stop_train")
    assert phases(world, 1) == [pb.LINKED] * 2


def test_a_move_that_is_given_up_meanwhile(world: World) -> None:
    until_prepared(world)
    world.core.job.order = pb.Order(action=pb.CONTINUE, incarnation=2, revision=2)
    restart_coordinator(world)
    assert [arguments["action"] for arguments in world.called("prepare_action")] == ["hot switch", "stop switch"]
    assert (world.state.conversation, world.state.controller_ready) == ("Serving", True)
    assert phases(world, 1) == [pb.LINKED] * 2
    assert phases(world, 2) == [pb.DEAD] * 2
    world.mindio.silent = False
    world.die(0)
    assert world.called("stop_train") == [{"ranks": [[0, 1]], "incarnation": 3}]


@pytest.mark.parametrize("crossed", [True, False])
def test_move_given_up_when_offered_leaves_no_healthy_controller(world: World, *, crossed: bool) -> None:
    until_prepared(world)
    world.core.job.order = pb.Order(action=pb.CONTINUE, incarnation=2, revision=2)
    if crossed:
        world.note({"called": "prepare_action", "id": 9, "arguments": {"action": "stop switch", "ranks": []}})
    world.note({"event": "report_strategies", "arguments": [[], ["migration"]]})
    restart_coordinator(world)
    assert (world.state.conversation, world.state.controller_ready) == ("Closed", False)
    assert [fact.kind for fact in world.facts] == [pb.CONTROLLER_LOST]
    assert len(world.mindio.calls) == 1


def test_a_fault_in_the_middle_goes_on_as_one(world: World) -> None:
    until_prepared(world)
    world.mindio.silent = False
    world.die(0)
    assert world.state.conversation == "Stopped"
    restart_coordinator(world)
    assert (world.state.conversation, world.state.incarnation) == ("Stopped", 3)
    world.order(pb.IN_PLACE, incarnation=3, revision=1, lost_ranks=[0], restart_ranks=[0])
    world.advance(0.5)
    assert world.called("on_global_rank") == [{"ranks": [[0, 1]], "time": 1}]
    assert phases(world, 2) == [pb.DEAD] * 2
    world.step(2)
    world.mindio.result()
    world.pump()
    assert world.state.conversation == "Serving"
    assert phases(world, 1) == [pb.LINKED] * 2


def test_a_first_pod_that_is_not_heard_keeps_its_ranks(world: World) -> None:
    until_prepared(world)
    world.agents["pod-1-1"].frozen = True
    restart_coordinator(world)
    world.advance(7.0)
    assert [(fact.kind, fact.incarnation) for fact in world.facts] == [(pb.AGENT_SILENT, 1)]
    assert not world.called("stop_train")
    world.agents["pod-1-1"].frozen = False
    world.advance(1.0)
    assert phases(world, 1) == [pb.LINKED] * 2
