"""A coordinator that is restarted beside its living controller, at any point of any action: the result is the same.

The plays are those of an operator that is away; here it stays, and the coordinator's process is another one from one
point on. It knows only what the controller host has written down, what the agents say, and the operator's last order.
"""

from __future__ import annotations

from typing import Any

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_plays import PLAYS, AwayWorld, Play
from tests.rigs.coordinator_restart import replayed, restart_coordinator
from trainer_sidecar.coordinator.conversation.conversation import EventKind
from trainer_sidecar.coordinator.conversation.states import State


def played(play: Play, restart_at: int | None = None) -> dict[str, Any]:
    world = AwayWorld()
    for number, _ in enumerate(play(world)):
        if number == restart_at:
            restart_coordinator(world)
            world.advance(4.0)  # agents that do not answer are waited for
    world.advance(0.5)
    outcome = world.outcome()
    return {key: outcome[key] for key in ("calls", "processes", "conversation", "incarnation")}


@pytest.mark.parametrize(
    ("play", "restart_at"),
    [pytest.param(play, at, id=f"{play.__name__}-{at}") for play, points in PLAYS.items() for at in range(points)],
)
def test_restarted_coordinator_changes_nothing_in_the_result(play: Play, restart_at: int) -> None:
    assert played(play, restart_at) == played(play)


PREPARED = {"called": "prepare_action", "id": "a-1", "arguments": {"action": "hot switch", "ranks": [[2, 0], [3, 0]]}}
PREPARE_TAKEN = {"answer": "a-1", "call": "prepare_action", "code": 0}
PREPARE_REFUSED = {"answer": "a-1", "call": "prepare_action", "code": 1}
CANCELLED = {"called": "prepare_action", "id": "a-2", "arguments": {"action": "stop switch", "ranks": []}}
OFFER = {"event": "report_strategies", "arguments": [[], ["migration"]]}
CHOSEN = {"called": "change_strategy", "id": "a-3", "arguments": {"strategy": "migration"}}
MOVED = {"event": "report_result", "arguments": [0, "ok", [], "migration"]}
FAILED = {"event": "report_result", "arguments": [406, "no", [], "migration"]}
PAUSE = {"called": "pause", "id": "a-1", "arguments": {"timeout": 60, "incarnation": 2}}
PAUSED = {"event": "report_stop_complete", "arguments": [0, "Controller pause train success!", []]}
PAUSE_FAILED = {"event": "report_stop_complete", "arguments": [499, "no", []]}
PAUSE_OVER = {"event": "report_result", "arguments": [406, "Controller do pause wait failed.", [], ""]}
CONTINUE = {"called": "change_strategy", "id": "a-2", "arguments": {"strategy": "continue"}}
CONTINUE_TAKEN = {"answer": "a-2", "call": "change_strategy", "code": 0}
STOP = {"called": "stop_train", "id": "a-4", "arguments": {"ranks": [[3, 1]], "incarnation": 3}}
STOP_TAKEN = {"answer": "a-4", "call": "stop_train", "code": 0}
NOBODY = {"event": "report_fault_ranks", "arguments": [[], []]}
FAULT = {"event": "report_fault_ranks", "arguments": [[[1, 0]], [[1, "1234"]]]}
RETRY = {"called": "change_strategy", "id": "a-5", "arguments": {"strategy": "retry"}}
RETRY_FAILED = {"event": "report_result", "arguments": [405, "clean failed", [[1, 1]], "retry"]}


@pytest.mark.parametrize(
    ("log", "state"),
    [
        ([PREPARED], State.SWITCHING),
        ([PREPARED, PREPARE_TAKEN], State.SWITCHING),
        ([PREPARED, PREPARE_REFUSED], State.SERVING),
        ([PREPARED, PREPARE_TAKEN, OFFER], State.CHOOSING),
        ([PREPARED, PREPARE_TAKEN, OFFER, CHOSEN], State.MIGRATING),
        ([PREPARED, PREPARE_TAKEN, OFFER, CHOSEN, FAILED], State.FAILED_OPEN),
        ([MOVED], State.SERVING),
        ([PREPARED, PREPARE_TAKEN, CANCELLED], State.SERVING),
        ([PREPARED, PREPARE_TAKEN, CANCELLED, OFFER], State.CLOSED),
        ([PREPARED, PREPARE_TAKEN, STOP], State.STOPPING),
        ([PAUSE, PAUSED], State.PAUSED),
        ([PAUSE, PAUSE_FAILED], State.CLOSED),
        ([PAUSE, FAULT], State.CLOSED),
        ([PAUSE, PAUSED, PAUSE_OVER], State.SERVING),
        ([PAUSE, PAUSED, CONTINUE], State.CONTINUING),
        ([PAUSE, PAUSED, CONTINUE, CONTINUE_TAKEN, PAUSE_OVER], State.SERVING),
        ([PAUSE, PAUSED, CONTINUE, PAUSE_OVER, CONTINUE_TAKEN], State.CLOSED),
        ([PAUSE, PAUSED, STOP, STOP_TAKEN, PAUSE_OVER], State.SERVING),
        ([PAUSE, PAUSED, STOP, PAUSE_OVER, STOP_TAKEN], State.STOPPING),
        ([OFFER], State.CLOSED),
    ],
)
def test_planned_actions_in_the_log(log: list[dict[str, Any]], state: State) -> None:
    conversation = replayed(log)[0].conversation
    assert conversation.state is state
    assert conversation.is_blind is (state is State.CLOSED)


def test_ranks_are_expected_as_soon_as_mindio_knows_of_them() -> None:
    cases: list[tuple[list[dict[str, Any]], set[int]]] = [
        ([PREPARED], set()),
        ([PREPARED, PREPARE_TAKEN], {2, 3}),
        ([PREPARED, OFFER], {2, 3}),
        ([PREPARED, PREPARE_TAKEN, CANCELLED], set()),
    ]
    for log, expected in cases:
        assert set(replayed(log)[0].conversation.memory.named) == expected


def test_equal_call_ids_of_two_coordinators_are_told_apart() -> None:
    """The ids of two processes may be equal in the log of an older host; the last call before the answer is meant."""
    first = {"called": "stop_train", "id": 1, "arguments": {"ranks": [[3, 1]], "incarnation": 2}}
    naming = {"called": "on_global_rank", "id": 1, "arguments": {"ranks": [[3, 1]], "time": 1}}
    stopped = {"event": "report_stop_complete", "arguments": [0, "stop ok", [[3, 1]]]}
    log: list[dict[str, Any]] = [first, {"answer": 1, "code": 0}, stopped, naming, {"answer": 1, "code": 1}]
    assert replayed(log)[0].conversation.state is State.STOPPED


def test_ranks_lost_by_a_retry_are_lost_after_takeover() -> None:
    stop = {"called": "stop_train", "id": "a-1", "arguments": {"ranks": [[1, 0]], "incarnation": 2}}
    stopped = {"event": "report_stop_complete", "arguments": [0, "stop ok", [[1, 0]]]}
    naming = {"called": "on_global_rank", "id": "a-2", "arguments": {"ranks": [[1, 0]], "time": 1}}
    offer = {"event": "report_strategies", "arguments": [[[1, 0]], ["exit", "dump", "retry"]]}
    conversation = replayed([FAULT, stop, stopped, naming, offer, RETRY, RETRY_FAILED])[0].conversation
    assert conversation.state is State.RETRY_REFUSED
    assert conversation.memory.lost == {1: 1}


def test_a_fault_report_that_nobody_answered_is_handed_back() -> None:
    (asked,) = replayed([FAULT])[1].unanswered
    assert (asked.kind, asked.ranks, asked.codes) == (EventKind.FAULT, {1: 0}, {1: "1234"})
    assert not replayed([FAULT, STOP])[1].unanswered
    assert replayed([PAUSE, PAUSED, PAUSE_OVER, NOBODY])[1].unanswered


def test_unanswered_fault_is_answered_and_told(world: World) -> None:
    restart_coordinator(world, [FAULT])
    assert world.called("stop_train") == [{"ranks": [[1, 0]], "incarnation": 2}]
    assert [(fact.kind, list(fact.ranks), fact.code) for fact in world.facts] == [(pb.MEMORY_FAULT, [1], "1234")]


def test_callback_while_waiting_for_agents_is_not_lost(world: World) -> None:
    world.mindio.ask = "stop"
    world.agent(1).frozen = True
    restart_coordinator(world)
    assert world.state.conversation == "Offline"
    world.callback("report_fault_ranks", [[[1, 0]], [[1, ""]]])
    world.pump()
    world.agent(1).frozen = False
    world.advance(0.5)
    assert world.called("stop_train") == [{"ranks": [[1, 0]], "incarnation": 2}]


def test_controller_that_left_is_told_after_takeover(world: World) -> None:
    restart_coordinator(world, [PAUSE, PAUSE_FAILED])
    assert world.state.conversation == "Closed"
    assert not world.state.controller_ready
    assert [fact.kind for fact in world.facts] == [pb.CONTROLLER_LOST]


def test_call_refused_after_takeover_is_repeated(world: World) -> None:
    world.die(3)
    world.mindio.silent = True
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.2)
    assert len(world.called("on_global_rank")) == 1
    restart_coordinator(world, world.log[:-1])
    assert world.state.conversation == "Naming"
    world.answered("on_global_rank", 1)
    world.pump()
    assert world.state.conversation == "Stopped"
    world.advance(0.3)
    assert len(world.called("on_global_rank")) == 2


def test_unannounced_successor_stays_at_its_gate(world: World) -> None:
    """The predecessor was killed between the order and its first word to MindIO."""
    world.agent(1).powered = False
    world.new_pod(1, 2)
    world.core.job.order = pb.Order(action=pb.REPLACE, incarnation=2, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    new = world.agent(1)
    new.take(pb.NodeOrder(ranks=[pb.RankOrder(rank=rank, incarnation=2, run=True) for rank in (2, 3)]))
    new.live()
    world.mindio.silent = True
    restart_coordinator(world)
    assert world.called("stop_train") == [{"ranks": [[2, 1], [3, 1]], "incarnation": 2}]
    assert [process.phase for process in new.processes.values()] == [pb.AT_GATE] * 2
