"""No rank is started before an agent has said what it will load, and only one agent is asked."""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_checkpoints import answer_a_look, ask_for_a_start, looks_asked_of, world_with_checkpoints
from tests.rigs.coordinator_peers import Agent


def asked(agent: Agent) -> int | None:
    """The attempt that this agent is asked to prepare; None: it is not asked to look."""
    order = agent.order
    return order.checkpoint.prepare_attempt if order is not None and order.HasField("checkpoint") else None


def environments(world: World) -> list[str | None]:
    orders = [agent.order for agent in world.agents.values() if agent.order is not None]
    return [entry.environment.get("HAJOB_LOAD_STEP") for order in orders for entry in order.ranks]


def test_the_ranks_wait_for_the_answer_and_learn_the_step() -> None:
    world = world_with_checkpoints()
    ask_for_a_start(world)
    assert [asked(world.agent(node)) for node in (0, 1)] == [1, None]
    assert all(world.phase(rank) == pb.ABSENT for rank in range(4))
    refused = [pb.RefusedCheckpoint(name="iter_0000010", reason="TruncatedFile")]
    answer_a_look(world.agent(0), 1, 5, refused=refused, num_refused=1)
    world.advance(0.6)
    assert world.marks(pb.STARTED)
    assert environments(world) == ["5"] * 4
    assert asked(world.agent(0)) == 0  # looks on, and changes nothing
    assert (world.state.checkpoint.loaded_step, world.state.checkpoint.refused[0].name) == (5, "iter_0000010")


def test_an_incident_is_looked_at_at_once_by_the_asked_agent() -> None:
    world = world_with_checkpoints()
    ask_for_a_start(world)
    answer_a_look(world.agent(0), 1, 5)
    world.advance(0.6)
    world.train(9, seconds=0.1)
    assert [looks_asked_of(world.agent(node)) for node in (0, 1)] == [0, None]
    world.die(3)
    world.advance(0.001)
    assert looks_asked_of(world.agent(0)) == 1
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.5)
    assert world.marks(pb.STRATEGY_SENT)
    assert [looks_asked_of(world.agent(node)) for node in (0, 1)] == [2, None]
    world.mindio.result()
    world.step(10)
    world.advance(0.5)
    assert [looks_asked_of(world.agent(node)) for node in (0, 1)] == [2, None]


def test_where_there_is_none_the_ranks_learn_no_step() -> None:
    world = world_with_checkpoints()
    ask_for_a_start(world)
    answer_a_look(world.agent(0), 1, -1)
    world.advance(0.6)
    assert world.marks(pb.STARTED)
    assert environments(world) == [None] * 4


def test_answer_for_an_older_attempt_starts_nothing() -> None:
    world = world_with_checkpoints()
    world.attempt = 2
    ask_for_a_start(world)
    answer_a_look(world.agent(0), 1, 5, problem="the checkpoints at /ckpt cannot be verified: read-only")
    world.advance(0.6)
    assert not world.marks(pb.STARTED)
    assert "read-only" in world.state.controller_problem
    answer_a_look(world.agent(0), 2, 5)
    world.advance(0.6)
    assert world.marks(pb.STARTED)
    assert world.state.controller_problem == ""


def test_the_next_agent_is_asked_when_the_first_falls_silent() -> None:
    world = world_with_checkpoints()
    ask_for_a_start(world)
    world.agent(0).frozen = True
    world.advance(4.0)
    assert asked(world.agent(1)) == 1


def test_start_waits_for_no_one_where_nobody_can_look() -> None:
    blind, ruleless = world_with_checkpoints(), world_with_checkpoints()
    for agent in blind.agents.values():
        agent.sees_checkpoints = False
    ruleless.checkpoint_rules = None
    for world in (blind, ruleless):
        ask_for_a_start(world)
        assert world.marks(pb.STARTED)
        assert [asked(agent) for agent in world.agents.values()] == [None, None]
        assert not world.state.HasField("checkpoint")


def test_nothing_is_prepared_while_an_older_process_may_write() -> None:
    world = world_with_checkpoints()
    ask_for_a_start(world)
    answer_a_look(world.agent(0), 1, 5)
    world.advance(0.6)
    assert world.marks(pb.STARTED)
    world.agent(1).frozen = True  # its processes live on, nobody hears them
    world.attempt = 2
    world.assign()
    world.order(pb.START, incarnation=2)
    world.advance(1.0)
    assert asked(world.agent(0)) in (0, None)


def test_what_was_loaded_stays_known_when_another_agent_looks() -> None:
    world = world_with_checkpoints()
    ask_for_a_start(world)
    answer_a_look(world.agent(0), 1, 5, refused=[pb.RefusedCheckpoint(name="iter_0000010")], num_refused=1)
    world.advance(0.6)
    world.agent(0).powered = False
    world.advance(4.0)
    world.agent(1).checkpoint = pb.CheckpointState(step=20, loaded_step=-1, tracked=True)
    world.advance(0.6)
    found = world.state.checkpoint
    assert (found.step, found.attempt, found.loaded_step, found.num_refused) == (20, 1, 5, 1)
