"""A pause that is not ended in time, or cannot be made at all."""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World


def test_unended_pause_is_a_fault_and_costs_no_step(world: World) -> None:
    """MindIO stops and names nobody; the operator is told of somebody, and may have the step repeated."""
    world.order(pb.PAUSE, incarnation=2, revision=1, timeout_seconds=60)
    assert world.state.conversation == "Paused"
    world.mindio.pause_ends()
    world.pump()
    assert world.state.conversation == "Stopped"
    assert world.called("stop_train") == [{"ranks": [], "incarnation": 3}]
    (fact,) = world.facts
    assert (fact.kind, list(fact.ranks), fact.incarnation) == (pb.COMMUNICATION_FAULT, [0], 3)
    assert "pause" in fact.message
    world.order(pb.RETRY, incarnation=3, revision=1, lost_ranks=[0])
    world.advance(0.2)
    assert world.called("on_global_rank") == [{"ranks": [[0, 2]], "time": 1}]
    assert world.called("change_strategy") == [{"strategy": "retry", "parameters": ""}]
    world.step(2)
    world.mindio.result()
    world.pump()
    assert world.state.conversation == "Serving"
    assert world.state.controller_ready


def test_unended_pause_without_operator_is_retried() -> None:
    world = World()
    world.standing = pb.StandingOrders(decision_timeout_milliseconds=5000, allow_retry=True)
    world.start()
    world.step(1)
    world.order(pb.PAUSE, incarnation=2, revision=1, timeout_seconds=60)
    world.mindio.pause_ends()
    world.advance(5.5)
    assert world.state.standing_action == pb.RETRY
    assert world.called("change_strategy") == [{"strategy": "retry", "parameters": ""}]


def test_a_controller_that_could_not_pause_is_said_to_be_gone(world: World) -> None:
    world.mindio.silent = True
    world.order(pb.PAUSE, incarnation=2, revision=1, timeout_seconds=60)
    world.die(3)
    world.callback("report_stop_complete", [499, "no pause points", []])
    world.pump()
    assert world.state.conversation == "Closed"
    assert not world.state.controller_ready
    assert "no pause points" in world.state.controller_problem
    assert [fact.kind for fact in world.facts] == [pb.PROCESS_EXITED, pb.CONTROLLER_LOST]
    assert [(mark.incarnation, mark.result_code) for mark in world.marks(pb.RESULT)] == [(2, 499)]
    assert not world.called("stop_train")
    assert world.core.job.incidents.current is None


def test_a_controller_that_is_not_understood_is_said_to_be_gone(world: World) -> None:
    world.callback("report_strategies", [[], ["exit", "dump"]])
    world.pump()
    assert world.state.conversation == "Closed"
    assert not world.state.controller_ready
    assert "report_strategies" in world.state.controller_problem
    assert [fact.kind for fact in world.facts] == [pb.CONTROLLER_LOST]
    world.die(3)
    assert not world.mindio.calls


def test_a_save_that_succeeded_is_no_lost_controller(world: World) -> None:
    world.order(pb.CHECKPOINT, incarnation=2, revision=1)
    world.mindio.result()
    world.pump()
    assert world.state.conversation == "Closed"
    assert world.state.controller_ready
    assert not world.facts


def test_death_before_result_of_continue_is_the_next_incident(world: World) -> None:
    """MindIO would need ten seconds to see it."""
    world.order(pb.PAUSE, incarnation=2, revision=1, timeout_seconds=60)
    world.order(pb.CONTINUE, incarnation=2, revision=2)
    assert world.state.conversation == "Continuing"
    world.die(3)
    assert not world.called("stop_train"), "MindIO may be waiting for nothing at this moment"
    world.mindio.result()
    world.pump()
    assert world.called("stop_train") == [{"ranks": [[3, 1]], "incarnation": 3}]
    assert world.state.conversation == "Stopped"
