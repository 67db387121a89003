"""Agents that look at the checkpoints before a start."""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_peers import Agent


def world_with_checkpoints(nodes: int = 2) -> World:
    """Build a world whose agents see the directory of the checkpoints."""
    world = World(nodes=nodes)
    world.checkpoint_rules = pb.CheckpointRules(framework="PyTorch", num_nodes=nodes, chips_per_node=2)
    for agent in world.agents.values():
        agent.sees_checkpoints = True
    return world


def ask_for_a_start(world: World) -> None:
    """Order the first start, and let a moment pass."""
    world.core.apply_controller_hello(world.controller, [], world.now)
    world.assign()
    world.order(pb.START, incarnation=1)
    world.advance(0.6)


def looks_asked_of(agent: Agent) -> int | None:
    """Count how often this agent was asked to look at once; None: it is not asked to look."""
    order = agent.order
    return order.checkpoint.look if order is not None and order.HasField("checkpoint") else None


def answer_a_look(agent: Agent, attempt: int, step: int, **more: object) -> None:
    """Have an agent answer that it saw the checkpoint of this step."""
    state = pb.CheckpointState(attempt=attempt, step=step, loaded_step=step, tracked=True)
    agent.checkpoint = pb.CheckpointState(**more)  # type: ignore[arg-type]
    agent.checkpoint.MergeFrom(state)
