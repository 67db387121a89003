"""What a restarted coordinator reads from the host's log is what the one before knew, wherever that was cut off."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_faults import RoundOfFaults, cause_a_fault, check_one_process_per_rank
from tests.rigs.coordinator_growth import GrowingOperator, leave_node_1_out
from tests.rigs.coordinator_plays import PLAYS, AwayWorld, Play
from tests.rigs.coordinator_restart import replayed, restart_coordinator
from trainer_sidecar.coordinator.conversation.conversation import Conversation
from trainer_sidecar.coordinator.conversation.states import BLIND, CARRIES_OUT, State


def known(conversation: Conversation) -> dict[str, Any]:
    """What calls and callbacks tell. Of steps, of who died since the last call, and of a growth that was given up they
    tell nothing: agents and the operator's order do."""
    memory, state = conversation.memory, conversation.state
    if state is State.CONFIRMING:
        state = CARRIES_OUT[memory.strategy]
    if state is State.SHRUNK and memory.strategy == "upgrade":
        state = State.EXPANDING
    named = set() if state is State.EXPANDING else set(memory.named)
    return {"state": state, "named": named, "offered": set(memory.offered), "strategy": memory.strategy}


def compare(world: World) -> None:
    """The log as it is now, read by another process."""
    live = world.core.job.conversation
    if live.state in BLIND or live.state is State.FINISHING:
        return
    job, read = replayed(world.log, world.now)
    assert known(job.conversation) == known(live), world.log
    assert not read.unanswered
    assert set(job.conversation.memory.lost) <= {*live.memory.lost, *live.memory.named}
    incident, before = job.incidents.current, world.core.job.incidents.current
    if incident is not None and before is not None and live.memory.strategy != "upgrade":
        assert incident.incarnation == before.incarnation
        assert incident.planned == before.planned or live.state is State.SAVING, "known by its order"


@pytest.mark.parametrize("seed", range(20))
def test_after_random_faults_the_log_tells_all(seed: int) -> None:
    chance = random.Random(seed)
    training = RoundOfFaults()
    for tick in range(400):
        training.tick()
        compare(training.world)
        if tick < 300 and chance.random() < 0.04:
            cause_a_fault(training.world, chance)


@pytest.mark.parametrize("seed", range(20))
def test_while_a_job_grows_the_log_tells_all(world: World, seed: int) -> None:
    leave_node_1_out(world)
    growth = GrowingOperator(world, seed)
    for _ in range(40):
        growth.act()
        compare(world)


@pytest.mark.parametrize("play", PLAYS)
def test_in_the_middle_of_an_action_the_log_tells_all(play: Play) -> None:
    stage = AwayWorld()
    for _ in play(stage):
        compare(stage)


@pytest.mark.parametrize("seed", range(20))
def test_restarts_between_random_faults_change_nothing(seed: int) -> None:
    """MindIO is told nothing that would end it, and what dies before the naming is recovered."""
    chance = random.Random(seed)
    training = RoundOfFaults()
    world = training.world
    for tick in range(600):
        training.tick()
        if world.state.conversation == "Closed":
            break
        if tick < 400 and chance.random() < 0.02 and world.state.conversation != "Offline":
            cause_a_fault(world, chance)  # whom nobody takes over yet this operator does not hear
        if tick < 400 and chance.random() < 0.02 and not world.core.job.conversation.memory.late:
            training.operator.decide()
            restart_coordinator(world)
            training.operator.seen = 0
    assert world.state.conversation in ("Serving", "Closed"), world.state
    assert world.state.conversation == "Serving" or training.operator.saves
    assert not any(fact.kind == pb.CONTROLLER_LOST for fact in world.facts)
    check_one_process_per_rank(world)


def test_a_log_without_its_beginning_closes_the_conversation(world: World) -> None:
    world.die(3)
    restart_coordinator(world, [entry for entry in world.log if entry.get("called") != "stop_train"])
    assert (world.state.conversation, world.state.controller_ready) == ("Closed", False)
    assert [fact.kind for fact in world.facts][-1] == pb.CONTROLLER_LOST
