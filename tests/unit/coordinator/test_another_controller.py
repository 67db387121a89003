"""A lost MindIO controller: another one takes its place, and the training notices nothing."""

from __future__ import annotations

import pytest

from hajob.domain.facts import NO_SUCCESSOR
from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_repairs import (
    CLEANED,
    LOCKED,
    PAUSED,
    REBUILT,
    RENAMED,
    REPAIRED,
    ROLLED_BACK,
    SAVED,
    STOPPED,
    keep_store_at_gates,
)
from tests.rigs.coordinator_restart import restart_coordinator
from trainer_sidecar.coordinator.conversation.effects import HELD_AGAIN_SECONDS
from trainer_sidecar.coordinator.takeover.guards import TAKEOVER_SECONDS
from trainer_sidecar.coordinator.takeover.progress import SPARE_SERIALS


@pytest.fixture
def modern() -> World:
    """Two nodes, all of whose gates can make ranks known."""
    world = World()
    world.gates_know = True
    world.train(2)
    return world


def recover(world: World, rank: int) -> None:
    """The operator orders what MindIO repairs."""
    world.order(pb.IN_PLACE, lost_ranks=[rank], restart_ranks=[rank], revision=1)
    world.advance(0.3)
    world.step(world.state.step + 1)
    world.mindio.result()
    world.pump()


def test_another_controller_is_wound_on_and_knows_all(modern: World) -> None:
    modern.lose_controller()
    assert modern.mindio.wound == {"serials": modern.serial + SPARE_SERIALS, "counter": 2}
    assert modern.mindio.registered == {0, 1, 2, 3}
    assert (modern.state.conversation, modern.state.controller_ready) == ("Serving", True)
    assert not modern.facts
    assert [mark.duration_nanoseconds for mark in modern.marks(pb.TAKEN_OVER)] == [0]


def test_the_next_fault_is_recovered_by_the_new_controller(modern: World) -> None:
    modern.lose_controller()
    modern.die(3)
    recover(modern, 3)
    assert modern.state.conversation == "Serving"
    assert [call for call, _ in modern.mindio.calls] == ["stop_train", "on_global_rank", "change_strategy"]


def test_a_silent_gate_delays_the_new_controller_by_its_lease(modern: World) -> None:
    modern.agent(1).frozen = True
    modern.lose_controller()
    assert modern.controllers == 1
    assert not modern.state.controller_ready
    modern.advance(3.2)
    assert modern.controllers == 2


def test_a_death_in_the_gap_waits_until_all_are_known(modern: World) -> None:
    modern.agent(1).frozen = True
    modern.lose_controller()
    modern.die(1)
    assert modern.called("stop_train") == []
    assert not modern.facts, "an older operator could only start the job anew"
    assert (modern.state.controller_ready, modern.state.taking_over) == (False, True)
    modern.agent(1).frozen = False
    modern.advance(1.0)
    assert (modern.state.controller_ready, modern.state.taking_over) == (True, False)
    assert modern.called("stop_train") == [{"ranks": [[1, 1]], "incarnation": 2}]
    assert [fact.kind for fact in modern.facts] == [pb.PROCESS_EXITED]
    recover(modern, 1)
    assert modern.state.conversation == "Serving"


def test_a_fault_is_told_in_time_if_no_controller_comes(modern: World) -> None:
    modern.agent(1).frozen = True
    modern.lose_controller()
    modern.die(1)
    modern.mindio.no_process = True
    modern.advance(4.5)
    assert not [fact for fact in modern.facts if fact.kind == pb.PROCESS_EXITED]
    modern.advance(1.0)
    assert [fact for fact in modern.facts if fact.kind == pb.PROCESS_EXITED]


def test_a_fault_told_in_one_breath_with_the_loss_is_decided(modern: World) -> None:
    """A busy machine: it was known before the loss, and no report had gone out in between."""
    modern.agent(1).frozen = True
    modern.die(0, pump=False)
    modern.lose_controller()
    assert [fact.kind for fact in modern.facts] == [pb.PROCESS_EXITED]
    assert (modern.state.controller_ready, modern.state.taking_over) == (False, True)
    modern.order(pb.IN_PLACE, lost_ranks=[0], restart_ranks=[0], incarnation=2, revision=1)
    modern.agent(1).frozen = False
    modern.advance(1.0)
    modern.step(2)
    modern.mindio.result()
    modern.pump()
    assert modern.state.conversation == "Serving"


def test_ranks_of_a_lost_node_are_made_known_by_another(modern: World) -> None:
    modern.agent(1).powered = False
    modern.lose_controller()
    modern.advance(4.0)
    assert modern.agent(0).known.keys() == {0, 1, 2, 3}
    modern.order(pb.REPLACE, lost_ranks=[2, 3], replaced_nodes=[1], incarnation=2, revision=1)
    assert modern.called("stop_train") == [{"ranks": [[2, 1], [3, 1]], "incarnation": 2}]


def test_a_new_controller_lost_again_is_followed_by_another(modern: World) -> None:
    modern.agent(1).frozen = True
    modern.lose_controller()
    modern.agent(1).frozen = False
    modern.advance(0.5)
    modern.lose_controller()
    modern.advance(1.5)
    assert modern.controllers == 3
    assert modern.state.controller_ready
    assert len(modern.marks(pb.TAKEN_OVER)) == 2


def test_frames_that_a_gate_cannot_read_leave_it_lost(modern: World) -> None:
    """What a rank registered would be said to another controller in bytes that nobody here understands."""
    modern.step(3)
    modern.agent(1).frames_unreadable = True
    modern.step(4)
    modern.lose_controller()
    (lost,) = modern.facts
    assert (lost.kind, lost.code) == (pb.CONTROLLER_LOST, "NoSuccessor")
    assert lost.message.startswith("signal 9; ranks speak to MindIO in a way that the gates cannot read")
    modern.advance(60.0)
    assert modern.controllers == 1, "no other one was asked for"


def test_agents_of_an_older_version_leave_it_lost(modern: World) -> None:
    modern.gates_know = False
    modern.step(3)
    modern.lose_controller()
    (lost,) = modern.facts
    assert (lost.kind, lost.code) == (pb.CONTROLLER_LOST, "NoSuccessor")
    assert lost.message == "signal 9; agents of an older version cannot make their ranks known to another one"
    assert (modern.state.controller_ready, modern.state.taking_over) == (False, False)
    assert modern.controllers == 1


def test_a_successor_of_a_worn_controller_is_called_worn(modern: World) -> None:
    """It goes on from the serials of the one before."""
    modern.serial = 19_000
    modern.pump()
    modern.lose_controller()
    modern.advance(1.0)
    assert modern.controllers == 2
    assert "restart the job at a convenient time" in modern.state.controller_problem


def test_none_takes_over_when_no_serial_is_left(modern: World) -> None:
    modern.serial = 19_960
    modern.pump()
    modern.lose_controller()
    assert modern.controllers == 1
    assert "action 19960 of the 20000" in modern.facts[-1].message


def test_a_rank_that_never_dials_again_is_started_anew(modern: World) -> None:
    """Its agent was away for more than 15 s: it trains, and no controller will ever hear of it."""
    modern.agent(1).processes[3].phase = pb.STARTING
    modern.lose_controller()
    modern.advance(15.0)
    assert modern.state.taking_over
    modern.advance(10.0)
    assert not modern.state.taking_over
    assert modern.called("stop_train")[-1]["ranks"] == [[3, 1]]
    assert [(fact.kind, list(fact.ranks)) for fact in modern.facts] == [(pb.PROCESS_FAULT, [3])]
    modern.order(pb.IN_PLACE, lost_ranks=[3], restart_ranks=[3], revision=1)
    modern.advance(5.0)
    assert 3 in modern.agent(1).ended
    assert modern.phase(3) == pb.LINKED
    assert [call for call, _ in modern.mindio.calls] == ["stop_train", "on_global_rank", "change_strategy"]


def test_a_hung_controller_is_replaced(modern: World) -> None:
    modern.core.apply_controller_state({**modern.controller, "kind": "hung", "problem": "silent for 10 s"}, modern.now)
    modern.pump()
    assert modern.controllers == 2
    assert modern.state.controller_ready


def test_a_restarted_job_has_a_controller_that_is_not_wound(modern: World) -> None:
    modern.lose_controller()
    assert modern.mindio.wound
    modern.attempt = 2
    modern.assign()
    modern.order(pb.START, incarnation=5)
    modern.advance(4.0)
    assert modern.mindio.wound is None
    assert modern.core.job.change.serial == modern.serial


def test_what_it_says_early_is_heard_when_all_are_known(modern: World) -> None:
    modern.mindio.no_process = True
    modern.lose_controller()
    modern.advance(0.3)
    modern.agent(1).frozen = True
    modern.mindio.no_process = False
    modern.advance(1.2)
    assert modern.controllers == 2
    modern.core.apply_callback("report_fault_ranks", [[[0, 0]], []], modern.now, modern.now)
    assert modern.called("stop_train") == []
    modern.agent(1).frozen = False
    modern.advance(1.0)
    assert modern.called("stop_train") == [{"ranks": [[0, 0]], "incarnation": 2}]


def test_a_hung_controller_that_wakes_up_is_not_heard(modern: World) -> None:
    """It finds all links gone, and would say so while its successor is not there yet."""
    in_a_repair(modern, [LOCKED, STOPPED, CLEANED])
    modern.agent(0).busy = {1}
    modern.core.apply_controller_state({**modern.controller, "kind": "hung", "problem": "silent for 10 s"}, modern.now)
    modern.pump()
    modern.advance(11.0)
    assert modern.controllers == 1
    failed = [406, "do last repair failed!", [[rank, 1] for rank in range(4)], "recover"]
    modern.core.apply_callback("report_result", failed, modern.now, modern.now)
    modern.agent(0).busy = set()
    modern.advance(1.0)
    assert modern.called("on_global_rank")
    assert modern.state.conversation == "Recovering"


def restart_amid_the_takeover(world: World, *, dead: int | None = None) -> None:
    """The coordinator's container restarts when another controller serves and does not know everybody yet."""
    world.mindio.no_process = True
    world.lose_controller()
    world.advance(0.3)
    if dead is not None:
        world.die(dead)
    world.agent(1).frozen = True
    world.mindio.no_process = False
    world.advance(1.2)
    assert (world.controllers, world.state.taking_over) == (2, True)
    restart_coordinator(world, [])
    world.agent(1).frozen = False
    world.advance(5.0)


def in_a_repair(world: World, answered: list[int], *, successor: bool = True) -> None:
    """Rank 3 has died, recover was chosen, the survivors have answered so much; then the controller is lost."""
    world.die(3)
    world.order(pb.IN_PLACE, lost_ranks=[3], restart_ranks=[3], revision=1)
    world.advance(0.3)
    assert world.state.conversation == "Recovering"
    for agent in world.agents.values():
        agent.answered = {rank: list(answered) for rank in agent.processes if rank != 3 or successor}
    world.mindio.calls.clear()


@pytest.mark.parametrize(
    ("answered", "repaired"),
    [
        ([LOCKED], False),
        ([LOCKED, STOPPED], False),
        ([LOCKED, STOPPED, CLEANED], False),
        ([LOCKED, STOPPED, CLEANED, REBUILT], False),
        ([LOCKED, STOPPED, CLEANED, REBUILT, REPAIRED], True),
        ([LOCKED, STOPPED, CLEANED, REBUILT, REPAIRED, ROLLED_BACK], True),
    ],
)
def test_a_repair_in_the_middle_begins_anew(modern: World, answered: list[int], repaired: bool) -> None:
    in_a_repair(modern, answered)
    modern.lose_controller()
    modern.advance(0.5)
    assert [call for call, _ in modern.mindio.calls] == ["stop_train", "on_global_rank", "change_strategy"]
    assert modern.called("stop_train")[0]["ranks"] == [[3, 1]]
    assert all(agent.order is not None and agent.order.repaired is repaired for agent in modern.agents.values())
    modern.step(3)
    modern.mindio.result()
    modern.pump()
    assert (modern.state.conversation, modern.state.controller_ready) == ("Serving", True)
    assert not [fact for fact in modern.facts if fact.kind == pb.CONTROLLER_LOST]


def test_a_handler_that_runs_is_waited_for(modern: World) -> None:
    """The successor receives its data when the controller goes: what it will answer decides what is possible."""
    in_a_repair(modern, [LOCKED, STOPPED, CLEANED, REBUILT])
    modern.agent(0).answered = {rank: [LOCKED, STOPPED, CLEANED, REBUILT, REPAIRED] for rank in (0, 1)}
    modern.agent(1).busy = {3}
    modern.lose_controller()
    modern.advance(2.0)
    assert modern.controllers == 1
    modern.agent(1).busy = set()
    modern.agent(1).answered[3] = [REBUILT, REPAIRED]
    modern.advance(0.5)
    assert [call for call, _ in modern.mindio.calls] == ["stop_train", "on_global_rank", "change_strategy"]
    assert all(agent.order is not None and agent.order.repaired for agent in modern.agents.values())


def test_a_handler_that_never_ends_is_not_waited_for(modern: World) -> None:
    in_a_repair(modern, [LOCKED, STOPPED])
    modern.agent(0).busy = {1}
    modern.lose_controller()
    modern.advance(179.0)
    assert modern.controllers == 1
    modern.advance(2.0)
    assert modern.controllers == 2


@pytest.mark.parametrize("in_another_pod", [False, True])
def test_a_repair_that_has_lost_its_successor_is_saved(modern: World, in_another_pod: bool) -> None:
    """Its partner gives its data once: nobody can be repaired, and what the others have is saved."""
    keep_store_at_gates(modern)
    in_a_repair(modern, [LOCKED, STOPPED, CLEANED, REBUILT, REPAIRED], successor=False)
    if in_another_pod:
        restart_coordinator(modern, [], controller=False)
    else:
        modern.lose_controller()
    modern.advance(4.0)
    assert [call for call, _ in modern.mindio.calls] == ["stop_train"]
    (result,) = modern.marks(pb.RESULT)
    assert (result.result_code, result.strategy, result.incarnation) == (406, "recover", 2)
    assert "a successor that is gone" in result.text
    modern.order(pb.CHECKPOINT, incarnation=2, lost_ranks=[3], revision=2)
    modern.advance(0.3)
    assert modern.called("change_strategy") == [{"strategy": "dump", "parameters": ""}]


def test_a_store_that_ends_alone_asks_for_another_pod(modern: World) -> None:
    """No repair could end without it; another pod's is filled with what it held."""
    ended = {"store": "lost", "problem": "the store process was ended by signal 9", "kind": "lost"}
    modern.core.apply_controller_state({**modern.controller, **ended}, modern.now)
    modern.advance(1.0)
    (lost,) = modern.facts
    assert (lost.kind, lost.code) == (pb.CONTROLLER_LOST, "ContainerEnded")
    assert lost.message == "the store process was ended by signal 9"
    assert not modern.state.controller_ready


def test_what_no_other_can_go_on_with_is_told(modern: World) -> None:
    in_a_repair(modern, [LOCKED, SAVED, RENAMED])
    modern.lose_controller()
    modern.advance(0.5)
    (lost,) = [fact for fact in modern.facts if fact.kind == pb.CONTROLLER_LOST]
    assert lost.code == "NoSuccessor"
    assert "when the checkpoint of the fault was complete" in lost.message
    assert not modern.mindio.calls
    assert not modern.state.controller_ready


def test_a_repair_that_is_through_is_not_repeated(modern: World) -> None:
    in_a_repair(modern, [])
    modern.step(3)
    assert modern.state.conversation == "Confirming"
    modern.lose_controller()
    modern.advance(0.5)
    assert modern.mindio.calls == []
    assert modern.state.conversation == "Serving"
    (result,) = modern.marks(pb.RESULT)
    assert (result.result_code, result.strategy) == (0, "recover")


@pytest.mark.parametrize("by", ["controller", "pod"])
@pytest.mark.parametrize("answered", [[LOCKED], [LOCKED, SAVED], [LOCKED, STOPPED, CLEANED, SAVED]])
def test_a_save_in_the_middle_begins_anew(modern: World, answered: list[int], by: str) -> None:
    """Some have saved already: they save again, over what is there; else the steps since the last one would be lost."""
    modern.die(3)
    modern.order(pb.CHECKPOINT, lost_ranks=[3], revision=1)
    modern.advance(0.3)
    assert modern.state.conversation == "Saving"
    modern.agent(0).answered = {0: list(answered), 1: [LOCKED]}
    modern.agent(1).answered = {2: [LOCKED]}
    modern.mindio.calls.clear()
    if by == "controller":
        modern.lose_controller()
        modern.advance(0.5)
    else:
        restart_coordinator(modern, [], controller=False)
        modern.advance(4.0)
    assert [call for call, _ in modern.mindio.calls] == ["stop_train", "on_global_rank", "change_strategy"]
    assert modern.called("change_strategy")[0]["strategy"] == "dump"
    assert modern.state.conversation == "Saving"
    assert not [fact for fact in modern.facts if fact.kind == pb.CONTROLLER_LOST]


def test_a_save_without_a_fault_begins_anew(modern: World) -> None:
    modern.order(pb.CHECKPOINT, incarnation=2, revision=1)
    modern.advance(0.3)
    assert modern.state.conversation == "Saving"
    for agent in modern.agents.values():
        agent.answered = {rank: [LOCKED, SAVED] for rank in agent.processes}
    modern.mindio.calls.clear()
    modern.lose_controller()
    modern.advance(0.5)
    assert [call for call, _ in modern.mindio.calls] == ["dump"]


@pytest.mark.parametrize("by", ["controller", "pod"])
@pytest.mark.parametrize("goes_on", ["before", "after"])
def test_ranks_that_are_held_are_let_go_by_another(modern: World, goes_on: str, by: str) -> None:
    """Nobody else knows that they wait: the new controller holds them once more, which their gates answer."""
    modern.order(pb.PAUSE, incarnation=2, revision=1, timeout_seconds=300)
    modern.advance(0.3)
    assert modern.state.conversation == "Paused"
    for agent in modern.agents.values():
        agent.answered = {rank: [PAUSED] for rank in agent.processes}
    if goes_on == "before":
        modern.mindio.silent = True
        modern.order(pb.CONTINUE, incarnation=2, revision=2)
        modern.mindio.silent = False
    modern.mindio.calls.clear()
    if by == "controller":
        modern.lose_controller()
        modern.advance(0.5)
    else:
        restart_coordinator(modern, [], controller=False)
        modern.advance(4.0)
    if goes_on == "after":
        assert modern.state.conversation == "Paused"
        modern.order(pb.CONTINUE, incarnation=2, revision=2)
        modern.advance(0.3)
    calls = [call for call, _ in modern.mindio.calls]
    assert calls == ["pause", "change_strategy"], modern.state
    assert modern.called("pause")[0]["timeout"] in (300, HELD_AGAIN_SECONDS)
    modern.mindio.result()
    modern.pump()
    assert (modern.state.conversation, modern.state.controller_ready) == ("Serving", True)


def test_a_death_among_held_ranks_is_stopped_at_once(modern: World) -> None:
    modern.order(pb.PAUSE, incarnation=2, revision=1, timeout_seconds=300)
    modern.advance(0.3)
    for agent in modern.agents.values():
        agent.answered = {rank: [PAUSED] for rank in agent.processes if rank != 3}
    modern.mindio.calls.clear()
    modern.agent(1).frozen = True
    modern.lose_controller()
    modern.agent(1).frozen = False
    modern.die(3)
    modern.advance(4.0)
    assert [call for call, _ in modern.mindio.calls][:1] == ["stop_train"]
    assert modern.called("stop_train")[0]["ranks"] == [[3, 1]]


def test_another_pod_takes_over_a_training(modern: World) -> None:
    """The coordinator's pod was lost: nobody knows anything but the agents and the operator."""
    restart_coordinator(modern, [], controller=False)
    modern.advance(4.0)
    assert modern.mindio.wound == {"serials": modern.serial + SPARE_SERIALS, "counter": 2}
    assert (modern.state.conversation, modern.state.controller_ready) == ("Serving", True)
    assert modern.mindio.registered == {0, 1, 2, 3}
    assert not modern.facts
    modern.die(2)
    recover(modern, 2)
    assert modern.state.conversation == "Serving"


def test_ranks_cut_off_with_the_lost_pod_are_no_new_ones(modern: World) -> None:
    """Their links ended with the former controller; that they had registered is what their gates know."""
    for agent in modern.agents.values():
        for process in agent.processes.values():
            process.phase = pb.AT_GATE
    restart_coordinator(modern, [], controller=False)
    modern.advance(4.0)
    assert (modern.state.conversation, modern.state.controller_ready) == ("Serving", True)
    assert not modern.facts


@pytest.mark.parametrize("answered", [[LOCKED, STOPPED, CLEANED], [LOCKED, STOPPED, CLEANED, REBUILT, REPAIRED]])
def test_restarted_amid_a_takeover_of_a_repair_it_goes_on(modern: World, answered: list[int]) -> None:
    in_a_repair(modern, answered)
    restart_amid_the_takeover(modern)
    assert [call for call, _ in modern.mindio.calls] == ["stop_train", "on_global_rank", "change_strategy"]


def test_restarted_amid_a_takeover_a_dead_rank_is_known(modern: World) -> None:
    restart_amid_the_takeover(modern, dead=3)
    assert modern.mindio.registered == {0, 1, 2, 3}
    assert modern.called("stop_train")


def test_restarted_after_a_takeover_it_replays(modern: World) -> None:
    """What knows every rank stays, and so does its store."""
    modern.lose_controller()
    modern.advance(1.0)
    assert (modern.controllers, modern.state.controller_ready) == (2, True)
    restart_coordinator(modern, [])
    modern.advance(3.0)
    assert (modern.controllers, modern.state.controller_ready) == (2, True)
    assert modern.filled is None


def test_restarted_while_a_store_is_filled_it_is_filled_again(modern: World) -> None:
    """A repair would wait for ever in one that nobody has filled."""
    keep_store_at_gates(modern)
    in_a_repair(modern, [LOCKED, STOPPED, CLEANED, REBUILT])
    modern.fills = False
    restart_coordinator(modern, [], controller=False)
    modern.advance(2.0)
    restart_coordinator(modern, [])
    modern.advance(4.0)
    assert all(agent.order is not None and agent.order.store_held for agent in modern.agents.values())
    assert not modern.called("change_strategy")
    modern.fills = True
    restart_coordinator(modern, [])
    modern.advance(4.0)
    assert modern.called("change_strategy")


def test_another_pod_goes_on_with_a_repair(modern: World) -> None:
    keep_store_at_gates(modern)
    in_a_repair(modern, [LOCKED, STOPPED, CLEANED, REBUILT])
    restart_coordinator(modern, [], controller=False)
    modern.advance(4.0)
    names = [call for call, _ in modern.mindio.calls]
    assert names[:3] == ["stop_train", "on_global_rank", "change_strategy"], modern.state
    modern.step(3)
    modern.mindio.result()
    modern.pump()
    assert modern.state.conversation == "Serving"


def test_a_repair_without_what_was_in_the_store_is_saved(modern: World) -> None:
    """Ranks that cannot meet would wait for each other: the step is locked again, and another decision is asked for."""
    in_a_repair(modern, [LOCKED, STOPPED, CLEANED])
    restart_coordinator(modern, [], controller=False)
    modern.advance(4.0)
    assert [call for call, _ in modern.mindio.calls] == ["stop_train"]
    (result,) = modern.marks(pb.RESULT)
    assert (result.result_code, result.strategy, result.incarnation) == (406, "recover", 2)
    modern.order(pb.CHECKPOINT, incarnation=2, lost_ranks=[3], revision=2)
    modern.advance(0.3)
    assert modern.called("change_strategy") == [{"strategy": "dump", "parameters": ""}]


def test_stopped_ranks_that_cannot_meet_start_anew(modern: World) -> None:
    """To save they would be stopped again, and wait for ever."""
    in_a_repair(modern, [LOCKED, STOPPED])
    restart_coordinator(modern, [], controller=False)
    modern.advance(4.0)
    assert [mark.result_code for mark in modern.marks(pb.RESULT)] == [499]


def test_another_pod_names_whom_it_finds_dead(modern: World) -> None:
    modern.agent(0).processes[1].phase = pb.DEAD
    restart_coordinator(modern, [], controller=False)
    modern.advance(4.0)
    assert modern.called("stop_train")[0]["ranks"] == [[1, 1]]


def test_another_pod_goes_on_with_a_retry(modern: World) -> None:
    """Named with the kind that a retry is offered for: as a dead process it would have to be started anew."""
    keep_store_at_gates(modern)
    modern.mindio.strategies = ["exit", "dump", "retry"]
    modern.callback("report_fault_ranks", [[[1, 0]], []])
    modern.pump()
    modern.order(pb.RETRY, lost_ranks=[1], revision=1)
    modern.advance(0.3)
    assert modern.state.conversation == "Retrying"
    for agent in modern.agents.values():
        agent.answered = {rank: [LOCKED, STOPPED, CLEANED] for rank in agent.processes}
    modern.mindio.calls.clear()
    restart_coordinator(modern, [], controller=False)
    modern.advance(4.0)
    assert modern.called("stop_train")[0]["ranks"] == [[1, 0]]
    assert modern.called("change_strategy") == [{"strategy": "retry", "parameters": ""}]
    modern.step(3)
    modern.mindio.result()
    modern.pump()
    assert (modern.state.conversation, modern.state.controller_ready) == ("Serving", True)


def test_another_pod_saves_what_was_asked_for(modern: World) -> None:
    """A save without a fault that had not begun, or not ended: nobody else will ask for it again."""
    modern.mindio.silent = True
    modern.order(pb.CHECKPOINT, incarnation=2, revision=1)
    modern.mindio.silent = False
    modern.mindio.calls.clear()
    restart_coordinator(modern, [], controller=False)
    modern.advance(4.0)
    assert [call for call, _ in modern.mindio.calls] == ["dump"]


def test_another_pod_saves_without_ranks_of_a_lost_pod(modern: World) -> None:
    """Nobody tells of their end any more, but the order that was about them."""
    modern.agent(1).powered = False
    modern.advance(7.0)
    modern.order(pb.CHECKPOINT, incarnation=2, lost_ranks=[2, 3], revision=1)
    modern.advance(0.3)
    modern.agent(0).answered = {0: [LOCKED], 1: [LOCKED]}
    modern.mindio.calls.clear()
    restart_coordinator(modern, [], controller=False)
    modern.advance(8.0)
    assert modern.called("stop_train")[0]["ranks"] == [[2, 1], [3, 1]]
    assert modern.called("change_strategy")[0]["strategy"] == "dump"


@pytest.mark.parametrize("why", ["no process", "not known"])
def test_a_takeover_that_never_ends_is_given_up_in_words(modern: World, why: str) -> None:
    """Nobody waits for ever for a controller that cannot be started, or for a rank that is not made known to it."""
    modern.mindio.no_process = why == "no process"
    if why == "not known":
        modern.agent(1).known = UNTEACHABLE
    modern.lose_controller()
    modern.advance(TAKEOVER_SECONDS - 1.0)
    assert modern.state.taking_over
    assert not [fact for fact in modern.facts if fact.kind == pb.CONTROLLER_LOST]
    modern.advance(2.0)
    (lost,) = [fact for fact in modern.facts if fact.kind == pb.CONTROLLER_LOST]
    assert (lost.code, modern.state.taking_over, modern.state.controller_ready) == (NO_SUCCESSOR, False, False)
    assert "within 300 s: " in lost.message
    assert ("could be started" if why == "no process" else "(pods pod-1-1)") in lost.message


class Unteachable(dict[int, str]):
    """What an agent has told another controller: never anything."""

    def __setitem__(self, rank: int, controller: str) -> None:
        """Forget it."""


UNTEACHABLE = Unteachable()
