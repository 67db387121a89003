"""Faults at random, and an operator that answers them."""

from __future__ import annotations

import random

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from trainer_sidecar.coordinator.conversation.states import State

BEFORE_NAMING = {"Serving", "Stopping", "Stopped"}


class SimpleOperator:
    """Starts processes again in place, replaces silent pods, saves what dies after the naming."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen = 0
        self.order: pb.Order | None = None
        self.number = 1
        self.saves = 0

    def decide(self) -> None:
        """Answer every fact that is new."""
        world = self.world
        while self.seen < len(world.facts):
            fact = world.facts[self.seen]
            self.seen += 1
            if fact.kind == pb.AGENT_SILENT and fact.incarnation < world.agent(fact.node_rank).incarnation:
                continue
            self._answer(fact)

    def _answer(self, fact: pb.Fact) -> None:
        world = self.world
        open_order = self.order if self.order is not None and self.order.incarnation > self.concluded() else None
        if open_order is not None and world.state.conversation not in BEFORE_NAMING:
            late = world.core.job.conversation.memory.late.keys()
            if fact.kind == pb.PROCESS_EXITED and not late & set(fact.ranks):
                return  # it died before the naming, and has been started again since
            self.saves += 1
            self._send(pb.CHECKPOINT, open_order, fact, [], [])
            return
        node = fact.node_rank
        if fact.kind == pb.AGENT_SILENT:
            self._send(pb.REPLACE, open_order, fact, [], [node])
        else:
            self._send(pb.IN_PLACE, open_order, fact, list(fact.ranks), [])

    def concluded(self) -> int:
        """Return the highest incident that MindIO has reported a success for."""
        return self.world.core.job.incidents.concluded

    def _send(
        self, action: pb.Action, before: pb.Order | None, fact: pb.Fact, restart: list[int], nodes: list[int]
    ) -> None:
        world = self.world
        order = pb.Order()
        if before is not None:
            order.CopyFrom(before)
        order.revision += 1
        self.number = max(self.number, world.state.incarnation, order.incarnation)
        fresh = before is None or bool(set(nodes) & set(before.replaced_nodes))
        if fresh:
            reported = world.state.incarnation
            self.number = reported if before is None and reported > self.concluded() else self.number + 1
            order.incarnation = self.number
        order.incident = order.incarnation if before is None else before.incident or before.incarnation
        order.action = action if action != pb.IN_PLACE or not order.replaced_nodes else pb.REPLACE
        for node in nodes:
            if node not in order.replaced_nodes:
                order.replaced_nodes.append(node)
        in_new = {rank for node in order.replaced_nodes for rank in range(node * 2, node * 2 + 2)}
        lost = sorted({*order.lost_ranks, *fact.ranks, *in_new})
        in_fresh = {rank for node in nodes for rank in range(node * 2, node * 2 + 2)}
        keep = sorted({*order.restart_ranks, *restart} - in_fresh)
        del order.lost_ranks[:], order.restart_ranks[:]
        order.lost_ranks.extend(lost)
        order.restart_ranks.extend(keep)
        if action == pb.CHECKPOINT:
            del order.restart_ranks[:], order.replaced_nodes[:]
        self.order = order
        world.core.apply_order(order, world.now)
        world.pump()
        for node in nodes if action == pb.REPLACE else []:
            old = world.agent(node).uid
            world.listed.remove(old)
            world.new_pod(node, order.incarnation, start_delay=random.Random(order.incarnation).uniform(0, 4))


def is_everybody_linked(world: World) -> bool:
    """Whether the coordinator knows a linked process of every rank."""
    roster = world.core.job.roster
    return all(roster.phase_of_rank(rank) == pb.LINKED for rank in range(world.nodes * world.per_node))


def may_train(world: World) -> bool:
    """Whether nothing holds the training."""
    goes_on = world.core.job.conversation.state in (State.SERVING, State.CONFIRMING) or world.mindio.ask == "result"
    return goes_on and is_everybody_linked(world)


def code_of_result(world: World) -> int:
    """Return MindIO's code for the action under way: it cannot recover where more has died since the naming."""
    return 406 if world.core.job.conversation.memory.late and world.mindio.strategy == "recover" else 0


def train(world: World, step: int) -> int:
    """Have everybody finish a step when nothing holds the training."""
    if not may_train(world):
        return step
    world.step(step)
    return step + 1


class RoundOfFaults:
    """One training, a tick of a tenth of a second at a time; MindIO's success comes two seconds after the strategy."""

    def __init__(self) -> None:
        self.world = World(nodes=4, per_node=2)
        self.world.start()
        self.operator = SimpleOperator(self.world)
        self._step = 1
        self._due: float | None = None

    def tick(self) -> None:
        """Let a tenth of a second pass: answer facts, train, and report the result that is due."""
        world = self.world
        world.advance(0.1)
        self.operator.decide()
        self._step = train(world, self._step)
        if world.mindio.ask == "result" and self._due is None:
            self._due = world.now + 2.0
        if self._due is not None and world.now >= self._due:
            self._due = None
            world.mindio.result(code_of_result(world), "result", dict(world.mindio.lost))
            world.pump()


def cause_a_fault(world: World, chance: random.Random) -> None:
    """Cause one more fault, most of them of processes."""
    agent = world.agent(chance.randrange(world.nodes))
    alive = [rank for rank, process in agent.processes.items() if process.phase not in (pb.DEAD, pb.FINISHED)]
    if not agent.answers:
        return
    if chance.random() < 0.75 and alive:
        world.die(chance.choice(alive))
    elif chance.random() < 0.5:
        agent.frozen = True
    else:
        agent.powered = False


def check_one_process_per_rank(world: World) -> None:
    """Check that only the pod that a rank is meant to live in may link it: never two processes admitted as one rank."""
    for rank in range(world.nodes * world.per_node):
        linked = [
            agent.uid
            for agent in world.agents.values()
            if agent.answers and (process := agent.processes.get(rank)) is not None and process.phase == pb.LINKED
            if world.now <= agent.lease_until
        ]
        assert len(linked) <= 1, (rank, linked)
