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
from tests.unit.coordinator.world import World

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
        """The highest incident that MindIO has reported a success for."""
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
        world.core.order(order, world.now)
        world.pump()
        for node in nodes if action == pb.REPLACE else []:
            old = world.agent(node).uid
            world.listed.remove(old)
            world.new_pod(node, order.incarnation, start_delay=random.Random(order.incarnation).uniform(0, 4))


def train(world: World, step: int) -> int:
    """Everybody finishes a step when nothing holds the training."""
    if world.state.conversation in ("Serving", "Confirming") or world.mindio.ask == "result":
        everybody = all(world.core.job.roster.phase(rank) == pb.LINKED for rank in range(world.nodes * world.per_node))
        if everybody:
            world.step(step)
            return step + 1
    return step


class Round:
    """One training, a tick of a tenth of a second at a time; MindIO's success comes two seconds after the strategy."""

    def __init__(self) -> None:
        self.world = World(nodes=4, per_node=2)
        self.world.start()
        self.operator = SimpleOperator(self.world)
        self._step = 1
        self._due: float | None = None

    def tick(self) -> None:
        world = self.world
        world.advance(0.1)
        self.operator.decide()
        self._step = train(world, self._step)
        if world.mindio.ask == "result" and self._due is None:
            self._due = world.now + 2.0
        if self._due is not None and world.now >= self._due:
            self._due = None
            code = 406 if world.core.job.conversation.memory.late and world.mindio.strategy == "recover" else 0
            world.mindio.result(code, "result", dict(world.mindio.lost))
            world.pump()


@pytest.mark.parametrize("seed", range(30))
def test_random_faults_never_make_mindio_deaf(seed: int) -> None:
    chance = random.Random(seed)
    training = Round()
    world = training.world
    for tick in range(1000):
        training.tick()
        if world.state.conversation == "Closed":
            break
        if tick < 600 and chance.random() < 0.03:
            hurt(world, chance)
    closed = world.state.conversation == "Closed"
    assert closed or world.state.conversation == "Serving", world.state
    assert not closed or training.operator.saves, "it ended, though nothing died after the naming"
    check(world)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_dies_before_the_naming_is_recovered_by_one(seed: int) -> None:
    """One to five further deaths while a node's replacement is waited for: none of them costs a step."""
    chance = random.Random(seed)
    training = Round()
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
        check(world)
    assert training.operator.saves == 0


def until(training: Round, condition: Callable[[], bool]) -> None:
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


def hurt(world: World, chance: random.Random) -> None:
    """One more fault, most of them of processes."""
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


def check(world: World) -> None:
    """Never two processes admitted as one rank: only the pod a rank is meant to live in may link it."""
    for rank in range(world.nodes * world.per_node):
        linked = [
            agent.uid
            for agent in world.agents.values()
            if agent.answers and (process := agent.processes.get(rank)) is not None and process.phase == pb.LINKED
            if world.now <= agent.lease_until
        ]
        assert len(linked) <= 1, (rank, linked)
