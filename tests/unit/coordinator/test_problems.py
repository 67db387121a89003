"""What does not pass by itself travels up as a level, each kind once."""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_restart import restart_coordinator
from trainer_sidecar.controller_protocol import HUNG

FAILED = {"attempt": 1, "controller": "failed", "store": "listening", "problem": "no mindio_ttp", "kind": "package"}


def codes(world: World) -> list[str]:
    world.pump()
    return [problem.code for problem in world.core.next_report(world.now).state.problems]


def test_unusable_image_is_believed_the_second_time() -> None:
    world = World()
    world.core.apply_controller_hello(world.controller, [], world.now)
    world.assign()
    world.core.apply_order(pb.Order(action=pb.START, incarnation=1), world.now)
    for certain, pause in ((False, 1.0), (True, 5.0), (True, 5.0)):
        assert [request.call for request in world.core.job.effects.take_requests()] == ["start"]
        world.core.apply_controller_state(FAILED, world.now)
        state = world.core.next_report(world.now).state
        assert state.controller_problem == "no mindio_ttp"
        assert [problem.code for problem in state.problems] == ["ImageUnusable"] * certain
        world.now += pause - 0.1
        world.keep_alive()
        world.core.check_time_limits(world.now, 0.0)
        assert world.core.job.effects.take_requests() == []
        world.now += 0.1
        world.core.check_time_limits(world.now, 0.0)


def test_a_start_that_has_not_answered_is_not_repeated_soon() -> None:
    world = World()
    world.core.apply_controller_hello(world.controller, [], world.now)
    world.assign()
    world.core.apply_order(pb.Order(action=pb.START, incarnation=1), world.now)
    assert [request.call for request in world.core.job.effects.take_requests()] == ["start"]
    world.now += 4.9
    world.core.check_time_limits(world.now, 0.0)
    assert world.core.job.effects.take_requests() == []


def test_a_port_that_is_taken_says_nothing_about_the_image() -> None:
    world = World()
    world.start()
    world.core.apply_controller_state({**FAILED, "kind": "port"}, world.now)
    assert codes(world) == []


def test_worn_controller_is_told_also_after_a_restart() -> None:
    world = World()
    world.start()
    assert world.state.controller_problem == ""
    world.gates_know, world.serial = True, 12_500
    restart_coordinator(world)
    world.advance(2.0)
    assert "restart the job at a convenient time" in world.state.controller_problem
    assert world.state.controller_ready


def test_hung_controller_protects_nobody_until_it_answers() -> None:
    world = World()
    world.start()
    serving = dict(world.controller)
    for kind, problem in ((HUNG, "no answer for 10 s"), ("", ""), (HUNG, "no answer for 10 s")):
        world.core.apply_controller_state({**serving, "kind": kind, "problem": problem}, world.now)
        state = world.core.next_report(world.now).state
        assert (state.controller_ready, state.controller_problem) == (not problem, problem)


def test_agents_problems_are_told_once_of_current_pods() -> None:
    world = World()
    world.start()
    for agent in world.agents.values():
        report = agent.report()
        report.problems.add(code="CopiesNotRegistered", message=f"node {agent.node_rank}")
        world.core.apply_agent_report(agent.uid, report, world.now)
    (problem,) = world.core.next_report(world.now).state.problems
    assert problem.message == "node 0"
    world.listed = [world.agent(1).uid]
    world.assign()
    (problem,) = world.core.next_report(world.now).state.problems
    assert problem.message == "node 1"
    world.core.apply_agent_report(world.agent(1).uid, world.agent(1).report(), world.now)
    assert codes(world) == []


def test_connections_from_outside_are_added_up_for_good() -> None:
    world = World()
    world.start()
    for node_rank, strangers in ((0, 2), (1, 4), (0, 3)):
        agent = world.agent(node_rank)
        report = agent.report()
        report.strangers = strangers
        world.core.apply_agent_report(agent.uid, report, world.now)
    world.listed = [world.agent(1).uid]
    world.assign()
    assert world.core.next_report(world.now).state.strangers == 7
