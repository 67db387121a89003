"""What an assignment changes while the ranks run: agents hear of it without an order for their ranks."""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_restart import restart_coordinator
from trainer_sidecar.launcher.arguments import WITHOUT_MINDIO


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


def edited_and_taken_over(before: dict[str, str], after: dict[str, str]) -> World:
    """The spec is edited while the ranks run; then their coordinator is another one, with another controller."""
    world = World()
    world.gates_know = True
    world.environment = before
    world.train(2)
    world.environment = after
    restart_coordinator(world, controller=False)
    world.advance(5)
    return world


def test_another_coordinator_goes_by_what_the_ranks_have() -> None:
    world = edited_and_taken_over({"HIGH_AVAILABILITY": "dump,recover"}, {"HIGH_AVAILABILITY": "dump"})
    assert world.state.controller_ready
    assert world.core.job.controller.wanted is not None
    assert world.core.job.controller.wanted[1]["arf"] is True
    world.die(3)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(1.0)
    (given,) = {entry.environment["HIGH_AVAILABILITY"] for a in world.agents.values() for entry in a.order.ranks}  # type: ignore[union-attr]
    assert given == "dump,recover"


def test_ranks_without_mindio_stay_so_under_another_coordinator() -> None:
    world = edited_and_taken_over({WITHOUT_MINDIO: "1"}, {"HIGH_AVAILABILITY": "dump"})
    assert world.state.controller_ready
    assert not world.mindio.registered
    world.advance(400)
    assert not world.facts, "nobody waits for ranks to register"


def test_a_controller_is_asked_for_with_what_its_ranks_get() -> None:
    """An edit between the two: the ranks are still to be started."""
    world = World()
    world.environment = {"HIGH_AVAILABILITY": "dump,recover"}
    world.launched = []
    for agent in world.agents.values():
        agent.frozen = True
    world.core.apply_controller_hello(world.controller, [], world.now)
    world.assign()
    world.order(pb.START, incarnation=1)
    world.environment = {"HIGH_AVAILABILITY": "dump"}
    world.assign()
    for agent in world.agents.values():
        agent.frozen = False
    world.advance(1.0)
    assert world.marks(pb.STARTED)
    assert world.core.job.controller.wanted is not None
    assert world.core.job.controller.wanted[1]["arf"] is False
    assert world.controllers == 2
