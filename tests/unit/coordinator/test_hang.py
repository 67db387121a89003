"""No step for many times the usual one."""

from __future__ import annotations

import pytest

from tests.unit.coordinator.world import World
from trainer_sidecar.protocol import sidecar_pb2 as pb


def trained(multiple: int, minimum: int) -> World:
    world = World()
    world.hang_rule = pb.HangRule(step_time_multiple=multiple, minimum_seconds=minimum)
    world.start()
    for step in range(1, 12):
        world.advance(1.0)
        world.step(step)
    return world


def test_a_standstill_is_told_once_with_the_ranks_that_are_behind() -> None:
    world = trained(5, 2)
    world.advance(0.5)
    world.step(12, [0, 1, 3])
    world.advance(4.8)
    assert not world.facts
    world.advance(5.0)
    (fact,) = world.facts
    assert (fact.kind, list(fact.ranks), fact.node_rank) == (pb.HANG, [2], 1)
    assert "ranks [2] are behind" in fact.message


def test_nobody_behind_means_everybody() -> None:
    world = trained(5, 20)
    world.advance(19.5)
    assert not world.facts, "the minimum is longer"
    world.advance(1.0)
    (fact,) = world.facts
    assert (list(fact.ranks), fact.node_rank) == ([0, 1, 2, 3], -1)


def test_a_second_standstill_is_told_again() -> None:
    world = trained(5, 2)
    world.advance(6.0)
    world.step(12)
    world.advance(6.0)
    assert [fact.kind for fact in world.facts] == [pb.HANG, pb.HANG]


@pytest.mark.parametrize("rule", [(0, 0)])
def test_without_a_rule_nothing_hangs(rule: tuple[int, int]) -> None:
    world = trained(*rule)
    world.advance(600)
    assert not world.facts


def test_an_incident_is_no_standstill() -> None:
    world = trained(5, 2)
    world.die(3)
    world.advance(60)
    assert [fact.kind for fact in world.facts] == [pb.PROCESS_EXITED]
