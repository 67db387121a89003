"""A coordinator that was restarted: beside a living controller it goes on where its predecessor stood."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import ENDPOINT, World
from tests.rigs.coordinator_peers import Process
from tests.rigs.coordinator_restart import replayed, restart_coordinator
from trainer_sidecar.coordinator.conversation.states import State
from trainer_sidecar.coordinator.core import CoordinatorCore
from trainer_sidecar.coordinator.state.job import Limits, Setup

STOP = {"called": "stop_train", "id": 2, "arguments": {"ranks": [[3, 1]], "incarnation": 2}}
STOP_TAKEN = {"answer": 2, "call": "stop_train", "code": 0}
STOPPED = {"event": "report_stop_complete", "arguments": [0, "stop ok", [[3, 1]]]}
NAMING = {"called": "on_global_rank", "id": 3, "arguments": {"ranks": [[3, 1]], "time": 1}}
OFFER = {"event": "report_strategies", "arguments": [[[3, 1]], ["exit", "dump", "recover"]]}
CHOSEN = {"called": "change_strategy", "id": 4, "arguments": {"strategy": "recover"}}
SUCCESS = {"event": "report_result", "arguments": [0, "ok", [], "recover"]}


@pytest.mark.parametrize(
    ("log", "state"),
    [
        ([], State.SERVING),
        ([STOP], State.STOPPING),
        ([{"called": "stop_train", "id": 2, "arguments": {}}, {"answer": 2, "code": 1}], State.SERVING),
        ([STOP, STOPPED, STOP_TAKEN], State.STOPPED),  # the callback may come before the answer
        ([STOP, STOP_TAKEN, STOPPED, NAMING], State.NAMING),
        ([STOP, STOPPED, NAMING, OFFER], State.CHOOSING),
        ([STOP, STOPPED, NAMING, OFFER, CHOSEN], State.RECOVERING),
        ([SUCCESS], State.SERVING),
        ([{"event": "report_result", "arguments": [0, "ok", [[3, 1]], "downgrade"]}], State.SHRUNK),
        ([{"event": "report_result", "arguments": [0, "ok", [], "dump"]}], State.CLOSED),
        ([STOP, {"event": "report_result", "arguments": [406, "no", [], "recover"]}], State.FAILED_OPEN),
        ([STOP, {"event": "report_result", "arguments": [499, "no", [], "recover"]}], State.CLOSED),
        ([{"called": "pause", "id": 9}, STOPPED], State.PAUSED),
    ],
)
def test_the_log_tells_where_the_conversation_stands(log: list[dict[str, Any]], state: State) -> None:
    assert replayed(log)[0].conversation.state is state


def pids(world: World) -> list[tuple[int, int]]:
    return [(p.incarnation, p.start) for agent in world.agents.values() for p in agent.processes.values()]


def test_a_running_job_is_taken_over_and_stays_recoverable(world: World) -> None:
    restart_coordinator(world, [])
    assert world.state.conversation == "Serving"
    assert world.state.controller_ready
    assert pids(world) == [(1, 0)] * 4
    assert not [agent.ended for agent in world.agents.values() if agent.ended]
    world.die(3)
    assert world.called("stop_train") == [{"ranks": [[3, 1]], "incarnation": 2}]


def test_an_incident_in_the_middle_goes_on_under_its_number(world: World) -> None:
    world.die(3)
    assert world.state.incarnation == 2
    restart_coordinator(world, [STOP, STOP_TAKEN, STOPPED])
    assert (world.state.conversation, world.state.incarnation) == ("Stopped", 2)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.2)
    assert len(world.called("stop_train")) == 1
    assert world.called("on_global_rank") == [{"ranks": [[3, 1]], "time": 1}]
    world.step(2)
    world.mindio.result()
    world.pump()
    assert world.state.conversation == "Serving"


def test_an_order_that_was_carried_out_is_not_carried_out_again(world: World) -> None:
    world.die(3)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.2)
    world.step(2)
    world.mindio.result()
    world.pump()
    calls, before = len(world.mindio.calls), pids(world)
    restart_coordinator(world, [SUCCESS])
    world.advance(1.0)
    assert len(world.mindio.calls) == calls
    assert pids(world) == before
    assert [mark.result_code for mark in world.marks(pb.RESULT)] == [0], "the operator may have missed it"


def test_a_recovery_whose_successor_stands_at_the_gate_goes_on(world: World) -> None:
    world.die(3)
    world.mindio.silent = True
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.2)
    assert world.agent(1).processes[3].phase == pb.AT_GATE
    restart_coordinator(world, [STOP, STOP_TAKEN, STOPPED, NAMING])
    assert world.state.conversation == "Naming"
    world.mindio.silent = False
    world.mindio.ask = "strategy"
    world.callback("report_fault_ranks", [[[3, 1]], []])
    world.callback("report_strategies", [[[3, 1]], ["exit", "dump", "recover"]])
    world.advance(0.3)
    assert world.agent(1).processes[3].phase == pb.LINKED
    assert world.called("change_strategy") == [{"strategy": "recover", "parameters": ""}]


@pytest.mark.parametrize("recovered_before", [False, True])
def test_lost_controller_is_told_and_no_blind_one_started(world: World, recovered_before: bool) -> None:
    if recovered_before:
        world.die(3)
        world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
        world.advance(0.2)
        world.step(2)
        world.mindio.result()
        world.pump()
    restart_coordinator(world, [], controller=False)
    world.advance(1.0)
    assert world.state.conversation == "Lost"
    assert not world.state.controller_ready
    assert [fact.kind for fact in world.facts] == [pb.CONTROLLER_LOST]
    assert all(p.phase == pb.LINKED for agent in world.agents.values() for p in agent.processes.values())
    calls = len(world.mindio.calls)
    world.die(1)
    assert len(world.mindio.calls) == calls
    assert world.facts[-1].kind == pb.PROCESS_EXITED


def test_a_controller_that_dies_is_told_at_once(world: World) -> None:
    world.core.apply_controller_state({**world.controller, "controller": "lost", "problem": "signal 9"}, world.now)
    world.pump()
    assert world.state.conversation == "Lost"
    assert [(fact.kind, fact.message[:8]) for fact in world.facts] == [(pb.CONTROLLER_LOST, "signal 9")]
    assert world.facts[0].incarnation == world.core.job.attempt.incarnation > 0


def test_a_coordinator_alone_does_not_end_what_it_does_not_know(world: World) -> None:
    """Before the operator has spoken, agents get leases but no orders."""
    assignment = world.core.job.assignment
    world.core = CoordinatorCore(Setup(ENDPOINT, Limits()), world.now)
    world.core.apply_controller_hello(world.controller, [], world.now)
    assert assignment is not None
    world.core.apply_assignment(assignment, world.now)
    for agent in world.agents.values():
        agent.told, agent.order = None, None
    world.advance(2.0)
    assert all(agent.order is None for agent in world.agents.values())
    assert all(agent.lease_until > world.now for agent in world.agents.values())


def test_death_told_before_takeover_is_kept(world: World) -> None:
    """Agents repeat to a new coordinator what the old one had not acknowledged, before the operator has spoken."""
    assignment, order = world.core.job.assignment, world.core.job.order
    assert assignment is not None
    assert order is not None
    world.core = CoordinatorCore(Setup(ENDPOINT, Limits()), world.now)
    world.core.apply_controller_hello(world.controller, [], world.now)
    world.core.apply_assignment(assignment, world.now)
    world.facts = []
    for agent in world.agents.values():
        agent.told = None
        world.core.note_connected_agent(agent.uid, world.now)
    world.die(3)
    assert not world.mindio.calls
    world.core.apply_order(order, world.now)
    world.advance(0.3)
    assert [fact.kind for fact in world.facts] == [pb.PROCESS_EXITED]
    assert len(world.called("stop_train")) == 1


@pytest.mark.parametrize("controller", [True, False])
@pytest.mark.parametrize("early", [[0, 1, 2, 3], [0, 1, 2], [3]])
def test_a_training_that_ends_while_nobody_listens_has_ended(world: World, controller: bool, early: list[int]) -> None:
    for rank in early:
        world.agent(rank // 2).processes[rank].phase = pb.FINISHED
    restart_coordinator(world, [], controller=controller)
    for rank in {0, 1, 2, 3} - set(early):
        world.finish(rank)
    world.advance(0.2)
    assert len(world.marks(pb.FINISHED_ALL)) == 1
    assert pids(world) == [(1, 0)] * 4
    assert [fact.kind for fact in world.facts] == ([] if controller else [pb.CONTROLLER_LOST])


def test_takeover_without_one_agent_counts_its_ranks_later(world: World) -> None:
    world.agent(1).frozen = True
    restart_coordinator(world, [], controller=False)
    assert world.state.conversation == "Offline"
    world.advance(3.0)
    assert world.state.conversation == "Lost"
    world.agent(1).frozen = False
    world.advance(0.5)
    for rank in range(4):
        world.finish(rank)
    world.advance(0.2)
    assert len(world.marks(pb.FINISHED_ALL)) == 1
    assert pids(world) == [(1, 0)] * 4


def test_a_pod_that_stays_silent_after_the_takeover_is_told(world: World) -> None:
    world.agent(1).frozen = True
    restart_coordinator(world, [])
    world.advance(7.0)
    assert [(fact.kind, list(fact.ranks)) for fact in world.facts] == [(pb.AGENT_SILENT, [2, 3])]


def test_lost_controller_concludes_every_order(world: World) -> None:
    world.die(3)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.2)
    restart_coordinator(world, [], controller=False)
    world.advance(1.0)
    assert world.core.job.incidents.current is None
    for rank in range(4):
        world.finish(rank)
    assert [mark.kind for mark in world.milestones] == [pb.FINISHED_ALL]


def test_a_start_that_reached_one_pod_only_is_completed(world: World) -> None:
    second = world.agent(1)
    second.processes = {rank: Process(0, 0, pb.ABSENT, 0) for rank in (2, 3)}
    second.order = None
    world.mindio.registered -= {2, 3}
    restart_coordinator(world, [])
    world.advance(0.5)
    assert pids(world) == [(1, 0)] * 4
    assert world.mindio.registered == {0, 1, 2, 3}


def test_a_start_that_is_a_successors_only_ends_what_runs() -> None:
    world = World()
    world.core = CoordinatorCore(Setup(ENDPOINT, Limits(), 1), world.now)
    world.start()
    world.step(1)
    world.attempt = 2
    world.order(pb.START, incarnation=2)
    for node_rank in (0, 1):
        world.new_pod(node_rank, 2)
    world.advance(5.0)
    old, new = [agent for agent in world.agents.values() if agent.incarnation == 1], [world.agent(0), world.agent(1)]
    assert {process.phase for agent in old for process in agent.processes.values()} == {pb.DEAD}
    assert [agent.order for agent in new] == [None, None]
    assert (world.state.attempt, world.state.controller_ready) == (1, False)
    assert not world.facts
    world.core = CoordinatorCore(Setup(ENDPOINT, Limits(), 2), world.now)
    world.core.apply_controller_hello(world.controller, [], world.now)
    world.assign()
    world.order(pb.START, incarnation=2)
    world.advance(5.0)
    assert {process.phase for agent in new for process in agent.processes.values()} == {pb.LINKED}
    assert not world.facts


def test_steps_of_the_attempt_before_do_not_count() -> None:
    """Nobody had acknowledged them: the agents of pods that are being deleted tell the new coordinator of them."""
    world = World()
    before = dict(world.agents)
    for agent in before.values():
        first = agent.node_rank * world.per_node
        agent.processes = {rank: Process(1, 0, pb.DEAD) for rank in (first, first + 1)}
    world.core = CoordinatorCore(Setup(ENDPOINT, Limits(), 2), world.now)
    world.core.apply_controller_hello(world.controller, [], world.now)
    world.attempt = 2
    new = [world.new_pod(node_rank, 2) for node_rank in (0, 1)]
    world.order(pb.START, incarnation=2)
    for agent in before.values():
        steps = [pb.StepFinished(rank=rank, step=step) for rank in agent.processes for step in (8, 9)]
        world.core.apply_agent_report(agent.uid, agent.report(steps=steps), world.now)
    world.listed = [agent.uid for agent in new]
    world.assign()
    world.advance(2.0)
    world.step(5, [0])
    assert world.marks(pb.RESUMED) == []
    world.step(5, [1, 2, 3])
    assert [mark.step for mark in world.marks(pb.RESUMED)] == [5]
    assert world.state.step == 5


def test_mindios_wait_counts_from_its_own_word() -> None:
    log: list[dict[str, Any]] = [
        STOP,
        {**STOPPED, "t": 40_000_000_000},
        {"event": "report_fault_ranks", "arguments": [[]]},
    ]
    assert replayed(log, 60.0)[0].conversation.memory.due == 140.0


def test_a_word_that_is_read_late_is_answered_in_its_time(world: World) -> None:
    """A coordinator that stood still does not get more time than MindIO gives it."""
    world.die(3)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.3)
    world.core.apply_callback("report_result", [406, "no", [[3, 1]], "recover"], world.now - 30.0, world.now)
    memory = world.core.job.conversation.memory
    assert memory.due == pytest.approx(world.now - 30.0 + memory.answer_seconds)


def shrinking(world: World) -> None:
    """Rank 3 has died and its whole group is isolated; its agent lives."""
    world.mindio.strategies = ["exit", "dump", "downgrade"]
    world.die(3)
    world.order(pb.SHRINK, revision=1, lost_ranks=[2, 3])
    world.advance(0.2)
    world.callback("report_result", [201, "isolated", [[2, 1], [3, 1]], "downgrade"])
    world.pump()


@pytest.mark.parametrize("shrunk", [False, True])
def test_ranks_that_were_left_out_on_purpose_are_no_fault(world: World, *, shrunk: bool) -> None:
    shrinking(world)
    for ended in [shrunk, not shrunk]:
        if ended:
            world.step(2, [0, 1])
            world.mindio.result(0, "ok", {2: 1, 3: 1})
            world.pump()
        else:
            restart_coordinator(world)
        world.advance(0.5)
    assert world.state.conversation == "Shrunk"
    assert len(world.called("stop_train")) == 1
    assert {world.phase(rank) for rank in (0, 1)} == {pb.LINKED}


def test_unheard_ranks_do_not_disturb_the_end(world: World) -> None:
    world.agent(1).frozen = True
    restart_coordinator(world)
    world.advance(6)
    world.finish(0)
    world.finish(1)
    world.advance(125)
    assert world.state.conversation == "Finishing"


def test_ranks_not_yet_linked_by_a_start_are_not_named() -> None:
    world = World()
    world.agents["pod-1-1"].start_delay = 30.0
    world.core.apply_controller_hello(world.controller, [], world.now)
    world.assign()
    world.order(pb.START, incarnation=1)
    world.advance(0.6)
    restart_coordinator(world)
    assert world.core.job.roster.registered == {0, 1}
    world.advance(31)
    assert world.core.job.roster.registered == {0, 1, 2, 3}


def test_an_order_that_joined_an_incident_is_not_repeated(world: World) -> None:
    """A second node was lost under a higher number; the first one's pod was made under the lower, and serves."""
    world.agent(1).powered = False
    world.order(pb.REPLACE, incarnation=2, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    world.new_pod(1, 2)
    world.agent(0).powered = False
    world.order(pb.REPLACE, incarnation=3, revision=1, lost_ranks=[0, 1, 2, 3], replaced_nodes=[0, 1])
    world.new_pod(0, 3)
    world.advance(4.0)
    world.step(2)
    world.mindio.result()
    world.advance(4.0)
    assert world.state.conversation == "Serving"
    restart_coordinator(world)
    world.advance(4.0)
    assert (world.state.conversation, len(world.called("stop_train"))) == ("Serving", 1)
    assert [(mark.incarnation, mark.strategy) for mark in world.marks(pb.RESULT)] == [(3, "recover")]


def test_a_dropped_rank_that_nobody_has_ended_is_ended(world: World) -> None:
    """The coordinator was killed between MindIO's word and its own: MindIO leaves the rank blocked for ever."""
    world.agent(1).powered = False
    shrinking(world)
    agent = world.agent(1)
    agent.powered, agent.order = True, None
    assert world.phase(2) == pb.LINKED
    restart_coordinator(world)
    world.advance(0.5)
    assert world.phase(2) == pb.DEAD
    world.step(2, [0, 1])
    world.mindio.result(0, "ok", {2: 1, 3: 1})
    world.pump()
    assert (world.state.conversation, len(world.called("stop_train"))) == ("Shrunk", 1)
