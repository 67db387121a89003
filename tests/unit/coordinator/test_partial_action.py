"""The lost controller had told some ranks of an action, and not the others: the gates tell these."""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from trainer_sidecar.coordinator.takeover.partial_action import NORMAL, REPAIR, TELLING_SECONDS
from trainer_sidecar.coordinator.takeover.resumption import CLEANED, LOCKED, REBUILT, REPAIRED, ROLLED_BACK, STOPPED

WORD = b"the same for all"
REBUILD = 31
STANDS = [LOCKED, STOPPED, CLEANED]
IN_GROUPS = [*STANDS, REBUILT]
THROUGH = [*STANDS, REBUILT, ROLLED_BACK]


@pytest.fixture
def repairing() -> World:
    """Rank 3 has a successor; MindIO repairs, and is lost."""
    world = World()
    world.gates_know = True
    world.train(2)
    world.die(3)
    world.order(pb.IN_PLACE, lost_ranks=[3], restart_ranks=[3], revision=1)
    world.advance(0.3)
    return world


def stand(world: World, action: int, answered: dict[int, list[int]], untold: set[int], word: bytes = b"") -> None:
    """How far the ranks were; the gates tell it when the controller is lost."""
    world.action, world.word = action, word
    for rank, done in answered.items():
        world.agent(rank // 2).answered[rank] = done
    for rank in untold:
        world.agent(rank // 2).serials[rank] = world.serial - 1
    world.lose_controller()
    world.advance(0.2)


def told(world: World) -> dict[int, bytes]:
    """Who is told what by the orders of now."""
    orders = [agent.order for agent in world.agents.values() if agent.order is not None]
    return {rank: order.word for order in orders for rank in order.word_for}


def has_word(world: World, rank: int) -> None:
    """Its gate has told it."""
    world.agent(rank // 2).serials.pop(rank)
    world.advance(0.2)


def test_who_was_not_let_go_is_let_go(repairing: World) -> None:
    stand(repairing, NORMAL, {0: [], 1: THROUGH, 2: [*THROUGH, REPAIRED], 3: []}, {1, 2}, WORD)
    assert told(repairing) == {1: WORD, 2: WORD}
    assert repairing.controllers == 1
    for rank in (1, 2):
        repairing.agent(rank // 2).answered[rank] = []
        has_word(repairing, rank)
    assert repairing.controllers == 2
    assert repairing.state.conversation in ("Serving", "Confirming")
    assert not [fact for fact in repairing.facts if fact.kind == pb.CONTROLLER_LOST]


def test_who_was_let_go_and_has_not_answered_is_waited_for(repairing: World) -> None:
    stand(repairing, NORMAL, {0: [], 1: THROUGH, 2: [], 3: []}, set(), WORD)
    assert repairing.controllers == 1
    repairing.agent(0).answered[1] = []
    repairing.advance(0.2)
    assert repairing.controllers == 2


def test_a_younger_process_is_not_let_go(repairing: World) -> None:
    """The successor had died: the one of now was never repaired."""
    stand(repairing, NORMAL, {0: THROUGH, 1: THROUGH, 2: THROUGH, 3: []}, {2, 3}, WORD)
    assert 3 not in told(repairing)


def test_everybody_rebuilds(repairing: World) -> None:
    repairing.agent(0).busy = {0}
    stand(repairing, REBUILD, dict.fromkeys((0, 1, 2), STANDS), {2, 3}, WORD)
    assert told(repairing) == {2: WORD, 3: WORD}
    for rank in (2, 3):
        has_word(repairing, rank)
    assert (told(repairing), repairing.controllers) == ({}, 1), "rank 0 still rebuilds"
    repairing.agent(0).busy = set()
    repairing.advance(0.2)
    assert repairing.controllers == 2


def test_a_gate_that_does_not_tell_is_not_waited_for_forever(repairing: World) -> None:
    stand(repairing, REBUILD, dict.fromkeys((0, 1, 2), STANDS), {2, 3}, WORD)
    repairing.advance(TELLING_SECONDS)
    assert repairing.controllers == 2


def test_data_that_nobody_takes_are_told_at_once(repairing: World) -> None:
    repairing.agent(0).busy = {1}
    stand(repairing, REPAIR, dict.fromkeys((0, 1, 2), IN_GROUPS), {0, 2, 3})
    (lost,) = [fact for fact in repairing.facts if fact.kind == pb.CONTROLLER_LOST]
    assert (lost.code, "to give its data" in lost.message) == ("NoSuccessor", True)


def test_a_successor_that_nobody_gives_data_is_started_again(repairing: World) -> None:
    repairing.agent(1).busy = {3}
    before = repairing.agent(1).processes[3].start
    stand(repairing, REPAIR, dict.fromkeys((0, 1, 2), IN_GROUPS), {0, 1, 2})
    repairing.agent(1).busy = set()
    repairing.advance(1.0)
    assert repairing.agent(1).processes[3].start == before + 1
    assert repairing.controllers == 2
    assert not [fact for fact in repairing.facts if fact.kind == pb.CONTROLLER_LOST]
