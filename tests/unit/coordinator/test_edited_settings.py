"""What an assignment changes while the ranks run: agents hear of it without an order for their ranks."""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from tests.unit.coordinator.world import World


def rules_of(world: World) -> list[list[str]]:
    """Names of the log rules that each agent has."""
    return [[rule.name for rule in agent.order.log_rules] for agent in world.agents.values() if agent.order is not None]


def test_new_log_rules_reach_every_agent() -> None:
    world = World(nodes=3)
    world.train(2)
    assert rules_of(world) == [[], [], []]
    world.log_rules = [pb.LogRule(name="nan", pattern="loss: nan")]
    world.assign()
    assert rules_of(world) == [["nan"]] * 3
    world.log_rules = []
    world.assign()
    assert rules_of(world) == [[], [], []]
    assert not any(agent.ended for agent in world.agents.values())


def test_new_log_rules_reach_agents_without_an_order() -> None:
    world = World()
    world.train(2)
    world.agent(1).frozen = True
    world.log_rules = [pb.LogRule(name="nan", pattern="loss: nan")]
    world.assign()
    assert rules_of(world) == [["nan"], []]
    world.agent(1).frozen = False
    world.pump()
    assert rules_of(world) == [["nan"]] * 2


def test_a_hang_rule_counts_from_the_assignment_on() -> None:
    world = World()
    world.hang_rule = pb.HangRule(step_time_multiple=20, minimum_seconds=600)
    world.train(5, seconds=1.0)
    world.advance(60)
    assert not [fact for fact in world.facts if fact.kind == pb.HANG]
    world.hang_rule = pb.HangRule(step_time_multiple=20, minimum_seconds=30)
    world.assign()
    world.advance(20)
    assert [fact for fact in world.facts if fact.kind == pb.HANG]


def test_a_rank_started_again_has_the_others_environment() -> None:
    world = World()
    world.environment = {"HIGH_AVAILABILITY": "dump,recover"}
    world.train(2)
    world.environment = {"HIGH_AVAILABILITY": "dump"}
    world.assign()
    world.die(3)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(1.0)
    given = {
        (entry.rank, entry.incarnation): entry.environment["HIGH_AVAILABILITY"]
        for agent in world.agents.values()
        if agent.order is not None
        for entry in agent.order.ranks
    }
    assert set(given.values()) == {"dump,recover"}
    assert (3, 2) in given


def test_the_next_start_has_the_environment_as_it_is_then() -> None:
    world = World()
    world.environment = {"HIGH_AVAILABILITY": "dump,recover"}
    world.train(2)
    world.environment, world.attempt = {"HIGH_AVAILABILITY": "dump"}, 2
    world.assign()
    assert world.core.job.assignment is not None
    assert dict(world.core.job.assignment.environment) == {"HIGH_AVAILABILITY": "dump"}
