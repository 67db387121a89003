"""Recoveries in virtual time: what MindIO is told, when, and what the operator hears."""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World


@pytest.fixture
def world() -> World:
    world = World()
    world.start()
    for step in range(1, 4):
        world.step(step)
    return world


def finish_recovery(world: World, step: int) -> None:
    world.advance(0.1)
    world.step(step)
    world.advance(2.0)
    world.mindio.result()
    world.pump()


def test_every_rank_is_started_once_the_controller_serves(world: World) -> None:
    assert world.state.controller_ready
    assert all(p.phase == pb.LINKED for agent in world.agents.values() for p in agent.processes.values())


def test_an_exit_stops_the_training_before_anybody_is_asked(world: World) -> None:
    world.die(3)
    assert world.called("stop_train") == [{"ranks": [[3, 1]], "incarnation": 2}]
    assert [fact.kind for fact in world.facts] == [pb.PROCESS_EXITED]
    assert world.state.incarnation == 2
    assert world.state.conversation == "Stopped"
    assert not world.called("on_global_rank")


def test_in_place_names_when_the_successor_is_ready(world: World) -> None:
    world.die(3)
    world.agent(1).start_delay = 1.0
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.9)
    assert not world.called("on_global_rank")
    world.advance(0.3)
    assert world.called("on_global_rank") == [{"ranks": [[3, 1]], "time": 1}]
    assert world.called("change_strategy") == [{"strategy": "recover", "parameters": ""}]
    finish_recovery(world, 4)
    assert world.state.conversation == "Serving"
    kinds = [pb.MilestoneKind.Name(mark.kind) for mark in world.milestones]
    assert kinds == [
        "STARTED",
        "RESUMED",
        "STOP_ACCEPTED",
        "STOPPED",
        "REPLACEMENTS_STARTED",
        "REPLACEMENTS_READY",
        "NAMED",
        "STRATEGIES",
        "STEP_BEFORE",
        "STRATEGY_SENT",
        "RESUMED",
        "RESULT",
    ]
    assert world.marks(pb.STEP_BEFORE)[0].step == 3
    assert {mark.incarnation for mark in world.milestones[2:]} == {2}


def test_an_order_in_force_is_no_news(world: World) -> None:
    """It is applied again with every event; the operator does not have to hear of that."""
    world.die(3)
    world.agent(1).start_delay = 1.0
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.2)
    world.core.check_time_limits(world.now + 0.1, 0.0)
    assert (world.core.job.effects.changed, world.core.job.effects.urgent) == (False, False)


def test_a_successor_may_not_pass_before_mindio_has_named_it(world: World) -> None:
    world.die(3)
    world.mindio.silent = True
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(1.0)
    assert len(world.called("on_global_rank")) == 1
    assert world.agent(1).processes[3].phase == pb.AT_GATE
    world.callback("report_fault_ranks", [[[3, 1]], []])
    world.pump()
    assert world.agent(1).processes[3].phase == pb.LINKED


def test_everything_that_dies_before_the_naming_is_named_once(world: World) -> None:
    world.agent(0).start_delay = world.agent(1).start_delay = 5.0
    world.die(3)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(3.0)
    world.die(0)
    world.advance(3.0)
    assert not world.called("on_global_rank"), "rank 0 is dead and not in the order yet"
    world.order(pb.IN_PLACE, revision=2, lost_ranks=[0, 3], restart_ranks=[0, 3])
    world.advance(6.0)
    assert world.called("on_global_rank") == [{"ranks": [[0, 1], [3, 1]], "time": 1}]
    assert len(world.called("stop_train")) == 1
    finish_recovery(world, 4)
    assert world.state.conversation == "Serving"


def test_successor_dead_before_the_naming_is_restarted(world: World) -> None:
    world.agent(0).start_delay = 5.0
    world.die(3)
    world.die(0)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[0, 3], restart_ranks=[0, 3])
    world.advance(1.0)
    world.die(3)
    world.order(pb.IN_PLACE, revision=2, lost_ranks=[0, 3], restart_ranks=[0, 3])
    world.advance(6.0)
    assert (world.agent(1).processes[3].incarnation, world.agent(1).processes[3].start) == (2, 1)
    assert len(world.called("on_global_rank")) == 1
    finish_recovery(world, 4)
    assert world.state.conversation == "Serving"


def test_death_after_the_naming_is_saved_after_406(world: World) -> None:
    world.die(3)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.1)
    world.die(1)
    world.order(pb.CHECKPOINT, revision=2, lost_ranks=[1, 3])
    assert len(world.called("stop_train")) == len(world.called("on_global_rank")) == 1
    world.mindio.result(406, "rollback failed", {3: 1})
    world.pump()
    assert world.called("change_strategy")[-1]["strategy"] == "dump"
    world.mindio.result(0, "do dump success")
    world.pump()
    assert world.state.conversation == "Closed"
    assert all(p.phase == pb.DEAD for agent in world.agents.values() for p in agent.processes.values())
    assert len([fact for fact in world.facts if fact.kind == pb.PROCESS_EXITED]) == 2, "ended ranks are no faults"


def test_death_before_the_result_is_the_next_incident(world: World) -> None:
    """MindIO would answer it with 406; two seconds later it is recovered like any other."""
    world.die(3)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.1)
    world.step(4)
    world.die(1)
    assert len(world.called("stop_train")) == 1
    world.mindio.result()
    world.pump()
    assert world.called("stop_train")[1:] == [{"ranks": [[1, 1]], "incarnation": 3}]
    assert world.state.incarnation == 3
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[1], restart_ranks=[1])
    finish_recovery(world, 5)
    assert world.state.conversation == "Serving"


def test_decision_may_come_before_mindio_confirms(world: World) -> None:
    """Its successor starts at once, under the order's number; MindIO hears of it after its own report."""
    world.die(3)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.1)
    world.step(4)
    world.die(3)
    world.order(pb.IN_PLACE, incarnation=3, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.5)
    assert world.agent(1).processes[3].incarnation == 3
    assert world.agent(1).processes[3].phase == pb.AT_GATE
    assert len(world.called("stop_train")) == 1
    world.mindio.result()
    world.pump()
    world.advance(0.2)
    assert world.called("stop_train")[1:] == [{"ranks": [[3, 1]], "incarnation": 3}]
    finish_recovery(world, 5)
    assert world.state.conversation == "Serving"
    assert world.state.incarnation == 3
    assert world.agent(1).processes[3].start == 0


def test_an_order_that_comes_twice_or_too_late_changes_nothing(world: World) -> None:
    world.die(3)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3], incarnation=2)
    finish_recovery(world, 4)
    calls = len(world.mindio.calls)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3], incarnation=2)
    world.order(pb.IN_PLACE, revision=2, lost_ranks=[1], restart_ranks=[1], incarnation=2)
    world.advance(1.0)
    assert len(world.mindio.calls) == calls


@pytest.mark.parametrize(("kind", "unexplained"), [(0, False), (1, True)])
def test_mindio_misses_a_process_and_cannot_tell_why(world: World, kind: int, unexplained: bool) -> None:
    world.callback("report_fault_ranks", [[[1, kind]], []])
    world.pump()
    assert [fact.unexplained for fact in world.facts] == [unexplained]


def test_a_memory_fault_is_answered_at_once_and_retried(world: World) -> None:
    world.mindio.strategies = ["exit", "dump", "retry", "recover"]
    world.mindio.ask = "stop"
    world.callback("report_fault_ranks", [[[1, 0]], [[1, "1234abcd"]]])
    world.pump()
    assert world.called("stop_train") == [{"ranks": [[1, 0]], "incarnation": 2}]
    fact = world.facts[0]
    assert (fact.kind, list(fact.ranks), fact.code) == (pb.MEMORY_FAULT, [1], "1234abcd")
    world.order(pb.RETRY, revision=1, lost_ranks=[1])
    assert world.called("on_global_rank") == [{"ranks": [[1, 0]], "time": 1}]
    assert world.called("change_strategy")[0]["strategy"] == "retry"
    finish_recovery(world, 4)
    assert world.state.conversation == "Serving"


def test_refused_retry_becomes_a_recovery(world: World) -> None:
    world.mindio.strategies = ["exit", "dump", "retry"]
    world.mindio.ask = "stop"
    world.callback("report_fault_ranks", [[[1, 0]], [[1, ""]]])
    world.pump()
    world.order(pb.RETRY, revision=1, lost_ranks=[1])
    world.mindio.strategies = ["exit", "dump", "recover"]
    world.mindio.result(405, "notify device clean failed", {1: 1})
    world.pump()
    assert world.state.conversation == "RetryRefused"
    world.order(pb.IN_PLACE, revision=2, lost_ranks=[1], restart_ranks=[1])
    world.advance(0.2)
    assert world.called("on_global_rank")[1] == {"ranks": [[1, 1]], "time": 1}
    assert world.called("change_strategy")[1]["strategy"] == "recover"
    finish_recovery(world, 4)
    assert world.state.conversation == "Serving"


def test_successor_dead_after_a_refused_retry_is_restarted(world: World) -> None:
    """What was named for the retry is to be named anew, so MindIO has let nobody in yet."""
    world.mindio.strategies = ["exit", "dump", "retry", "recover"]
    world.mindio.ask = "stop"
    world.callback("report_fault_ranks", [[[1, 0]], [[1, ""]]])
    world.pump()
    world.order(pb.RETRY, revision=1, lost_ranks=[1])
    world.mindio.result(405, "clean failed", {1: 1})
    world.pump()
    world.die(3)
    world.agent(1).start_delay = 5.0
    world.order(pb.IN_PLACE, revision=2, lost_ranks=[1, 3], restart_ranks=[1, 3])
    world.advance(1.0)
    world.die(1)
    world.order(pb.IN_PLACE, revision=3, lost_ranks=[1, 3], restart_ranks=[1, 3])
    world.advance(6.0)
    process = world.agent(0).processes[1]
    assert (process.incarnation, process.start, process.phase) == (2, 1, pb.LINKED)
    assert world.called("on_global_rank")[1:] == [{"ranks": [[1, 1], [3, 1]], "time": 1}]
    finish_recovery(world, 4)
    assert world.state.conversation == "Serving"


def memory_fault(world: World, *strategies: str) -> None:
    world.mindio.strategies = ["exit", "dump", *strategies]
    world.mindio.ask = "stop"
    world.callback("report_fault_ranks", [[[1, 0]], [[1, ""]]])
    world.pump()


def test_a_retry_that_a_death_has_overtaken_names_nobody(world: World) -> None:
    """With a lost process among the names a retry is not offered, and the one naming would be spent."""
    memory_fault(world, "recover")
    world.die(3)
    world.order(pb.RETRY, revision=1, lost_ranks=[1])
    world.advance(1.0)
    assert not world.called("on_global_rank")
    world.order(pb.IN_PLACE, revision=2, lost_ranks=[1, 3], restart_ranks=[1, 3])
    world.advance(0.5)
    assert world.called("on_global_rank") == [{"ranks": [[1, 1], [3, 1]], "time": 1}]
    assert [call["strategy"] for call in world.called("change_strategy")] == ["recover"]
    finish_recovery(world, 4)
    assert world.state.conversation == "Serving"


def test_a_retry_covers_what_no_process_was_lost_by(world: World) -> None:
    """A second rank with a memory fault is repaired by the same retry."""
    memory_fault(world, "retry")
    world.core.job.conversation.lose_ranks({2: 0}, world.now)
    world.order(pb.RETRY, revision=1, lost_ranks=[1])
    assert world.called("on_global_rank") == [{"ranks": [[1, 0], [2, 0]], "time": 1}]
    assert [call["strategy"] for call in world.called("change_strategy")] == ["retry"]


def test_a_shrink_that_a_death_has_overtaken_takes_nobody_along(world: World) -> None:
    """Which ranks leave was planned without it."""
    world.mindio.strategies = ["exit", "dump", "downgrade"]
    world.die(3)
    world.die(1)
    world.order(pb.SHRINK, revision=1, lost_ranks=[2, 3])
    world.advance(1.0)
    assert not world.called("on_global_rank")
    world.order(pb.CHECKPOINT, revision=2, lost_ranks=[1, 2, 3])
    assert world.called("on_global_rank") == [{"ranks": [[1, 1], [2, 1], [3, 1]], "time": 1}]
    assert [call["strategy"] for call in world.called("change_strategy")] == ["dump"]


def test_late_successors_are_admitted_with_the_strategy(world: World) -> None:
    """They were named as faulty, and a recover waits for whoever was."""
    memory_fault(world, "recover")
    world.order(pb.RETRY, revision=1, lost_ranks=[1])
    assert world.state.conversation == "Choosing"
    world.order(pb.IN_PLACE, revision=2, lost_ranks=[1], restart_ranks=[1])
    world.advance(0.5)
    assert [call["strategy"] for call in world.called("change_strategy")] == ["recover"]
    process = world.agent(0).processes[1]
    assert (process.incarnation, process.phase) == (2, pb.LINKED)
    finish_recovery(world, 4)
    assert world.state.conversation == "Serving"


def test_memory_fault_in_place_restarts_the_process(world: World) -> None:
    world.mindio.ask = "stop"
    world.callback("report_fault_ranks", [[[1, 0]], [[1, ""]]])
    world.pump()
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[1], restart_ranks=[1])
    world.advance(0.2)
    assert world.agent(0).processes[1].incarnation == 2
    assert world.called("on_global_rank") == [{"ranks": [[1, 1]], "time": 1}]
    assert [fact.kind for fact in world.facts] == [pb.MEMORY_FAULT]


def test_save_and_exit_without_a_fault(world: World) -> None:
    world.order(pb.CHECKPOINT, incarnation=2, revision=1)
    assert [call for call, _ in world.mindio.calls] == ["dump"]
    world.mindio.result(0, "do dump success")
    world.pump()
    assert world.state.conversation == "Closed"
    assert sorted(world.agent(0).ended + world.agent(1).ended) == [0, 1, 2, 3]


def test_a_rank_that_never_registered_is_not_named(world: World) -> None:
    """One stranger in the dictionary refuses the whole call."""
    world.core.job.roster.registered.discard(3)
    world.die(3)
    assert not world.called("stop_train")
    assert [fact.kind for fact in world.facts] == [pb.PROCESS_EXITED]


def test_a_refused_stop_is_tried_again(world: World) -> None:
    world.mindio.registered.discard(3)
    world.die(3)
    assert len(world.called("stop_train")) == 1
    world.mindio.registered.add(3)
    world.advance(0.3)
    assert len(world.called("stop_train")) == 2
    assert world.state.conversation == "Stopped"


def test_after_the_first_rank_has_left_nothing_is_said_to_mindio(world: World) -> None:
    world.finish(0)
    world.die(3, code=1)
    assert not world.mindio.calls
    assert world.state.conversation == "Finishing"


def test_a_repair_after_ranks_have_left_is_refused_at_once(world: World) -> None:
    world.finish(0)
    world.die(3, code=1)
    order = {"lost_ranks": [3], "restart_ranks": [3], "incarnation": world.state.incarnation + 1}
    world.order(pb.IN_PLACE, revision=1, **order)
    world.advance(1)
    (result,) = world.marks(pb.RESULT)
    assert (result.result_code, result.strategy, result.incarnation) == (499, "recover", order["incarnation"])
    assert "left MindIO at the end" in result.text
    assert not world.mindio.calls
    assert world.phase(3) == pb.DEAD, "nobody starts a process that nobody would let in"


def test_a_new_attempt_gets_a_new_controller_and_new_processes(world: World) -> None:
    world.order(pb.STOP, incarnation=2, revision=1)
    world.advance(0.2)
    assert all(p.phase == pb.DEAD for agent in world.agents.values() for p in agent.processes.values())
    world.attempt = 2
    world.order(pb.START, incarnation=3)
    assert not any(p.phase == pb.LINKED for agent in world.agents.values() for p in agent.processes.values())
    world.assign()
    world.advance(0.6)
    assert {p.incarnation for agent in world.agents.values() for p in agent.processes.values()} == {3}
    assert len(world.marks(pb.STARTED)) == 2
    world.die(2)
    assert world.state.incarnation == 4
    assert world.state.conversation == "Stopped"


def test_same_revision_with_another_decision_is_heard(world: World) -> None:
    """The one before it was killed between its order and its record of it."""
    world.agent(1).start_delay = 5.0
    world.die(3)
    world.order(pb.IN_PLACE, incarnation=2, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.order(pb.CHECKPOINT, incarnation=2, revision=1, lost_ranks=[3])
    assert world.called("change_strategy") == [{"strategy": "dump", "parameters": ""}]


def test_failure_after_confirming_keeps_the_orders_number(
    world: World,
) -> None:
    """The operator has opened an incident of its own for the death; what MindIO says from then on is about that one."""
    world.die(3)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.3)
    world.step(4)
    assert world.state.conversation == "Confirming"
    world.die(1)
    world.order(pb.CHECKPOINT, incarnation=3, revision=1, lost_ranks=[1])
    world.mindio.result(406, "do last repair failed!", {1: 1})
    world.pump()
    assert world.called("change_strategy")[-1]["strategy"] == "dump"
    world.mindio.result(0, "do dump success")
    world.pump()
    assert [(mark.result_code, mark.incarnation) for mark in world.marks(pb.RESULT)] == [(406, 3), (0, 3)]


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_a_fault_that_mindio_reports_names_the_ranks_line(world: World, kind: int) -> None:
    line = "RuntimeError: UCE ERROR. time us= 1763800000000000."
    agent = world.agent(0)
    told = agent.report()
    told.ranks[1].error_line = line
    world.core.apply_agent_report(agent.uid, told, world.now)
    world.callback("report_fault_ranks", [[[1, kind]], []])
    world.pump()
    assert (world.facts[-1].message, world.facts[-1].unexplained) == (f"found by MindIO: {line}", False)
