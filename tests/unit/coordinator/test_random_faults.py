"""Random faults at random moments in virtual time, with a simple operator: MindIO is never told what would end it.

The simulated MindIO fails the test at a call its phase does not ask for. What is promised is counted, too: whatever
dies before the naming is recovered by it, and the conversation ends only where a death was told after it. A seed is
printed by pytest's parameter.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_faults import RoundOfFaults, cause_a_fault, check_one_process_per_rank


@pytest.mark.parametrize("seed", range(30))
def test_random_faults_never_make_mindio_deaf(seed: int) -> None:
    chance = random.Random(seed)
    training = RoundOfFaults()
    world = training.world
    for tick in range(1000):
        training.tick()
        if world.state.conversation == "Closed":
            break
        if tick < 600 and chance.random() < 0.03:
            cause_a_fault(world, chance)
    closed = world.state.conversation == "Closed"
    assert closed or world.state.conversation == "Serving", world.state
    assert not closed or training.operator.saves, "it ended, though nothing died after the naming"
    check_one_process_per_rank(world)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_dies_before_the_naming_is_recovered_by_one(seed: int) -> None:
    """One to five further deaths while a node's replacement is waited for: none of them costs a step."""
    chance = random.Random(seed)
    training = RoundOfFaults()
    world = training.world
    for incident in range(1, 4):
        agent = world.agent(chance.randrange(world.nodes))
        agent.powered = False
        until(training, lambda: world.state.conversation in ("Stopping", "Stopped"))
        for _ in range(chance.randint(1, 5)):
            for _ in range(chance.randrange(8)):
                training.tick()
            kill_before_the_naming(world, chance)
        until(training, lambda: world.state.conversation == "Serving")
        results = [(mark.result_code, mark.strategy) for mark in world.marks(pb.RESULT)]
        assert results == [(0, "recover")] * incident
        assert len(world.marks(pb.NAMED)) == incident
        check_one_process_per_rank(world)
    assert training.operator.saves == 0


def until(training: RoundOfFaults, condition: Callable[[], bool]) -> None:
    """A minute is more than any of it takes."""
    for _ in range(600):
        if condition():
            return
        training.tick()
    raise AssertionError(training.world.state)


def kill_before_the_naming(world: World, chance: random.Random) -> None:
    """One more process dies, unless MindIO has been told the names already."""
    if world.state.conversation != "Stopped":
        return
    agents = [agent for agent in world.agents.values() if agent.answers]
    alive = [
        rank
        for agent in agents
        for rank, process in agent.processes.items()
        if process.phase not in (pb.DEAD, pb.FINISHED) and world.agent(agent.node_rank) is agent
    ]
    world.die(chance.choice(alive))
