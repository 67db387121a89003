"""A job that trains without node 1 and grows back, smoothly or not."""

from __future__ import annotations

import random

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World


def isolate_node_1(world: World) -> None:
    """Lose the ranks of node 1, and have the others train on; MindIO has not called it done."""
    world.mindio.strategies = ["exit", "dump", "downgrade"]
    world.die(2)
    world.die(3)
    world.order(pb.SHRINK, incarnation=2, revision=1, lost_ranks=[2, 3])
    world.advance(0.2)
    world.callback("report_result", [201, "isolate", [[2, 1], [3, 1]], "downgrade"])
    world.pump()


def leave_node_1_out(world: World) -> None:
    """Lose the ranks of node 1, and have the others train on without them."""
    isolate_node_1(world)
    world.mindio.result(ranks={2: 1, 3: 1})
    world.pump()
    assert world.state.conversation == "Shrunk"


def make_node_1_anew(world: World, incarnation: int, **pod: float) -> None:
    """Order growth, and make node 1's pod anew."""
    old = world.agent(1)
    if old.uid in world.listed:
        world.listed.remove(old.uid)
        old.powered = False
    world.order(pb.EXPAND, incarnation=incarnation, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    world.new_pod(1, incarnation, **pod)
    world.advance(4.0)


def give_up_growth(world: World, incarnation: int) -> None:
    """Order the job to stay without node 1."""
    world.order(pb.SHRINK, incarnation=incarnation, revision=2, lost_ranks=[2, 3])
    world.advance(0.2)


def chosen_strategies(world: World) -> list[object]:
    """List the strategies that MindIO was told, in order."""
    return [call["strategy"] for call in world.called("change_strategy")]


class GrowingOperator:
    """An operator that grows the job, gives it up when a rank is lost on its way back, and saves what loses others."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.chance = world, random.Random(seed)
        self.number, self.revision = 2, 1

    def act(self) -> None:
        """Do one thing that can happen now, and let a little time pass."""
        self.chance.choice([self.grow, self.lose_one_coming_back, self.lose_another, self.end, self.wait])()
        self.world.advance(self.chance.choice([0.1, 0.5, 3.0]))

    def grow(self) -> None:
        """Order growth with a new pod, where the job is smaller and nothing is open."""
        if self.world.state.conversation == "Shrunk" and self.world.core.job.incidents.current is None:
            self.number, self.revision = self.number + 1, 1
            old = self.world.agent(1)
            self.world.listed.remove(old.uid)
            old.powered = False
            self._order(pb.EXPAND, lost_ranks=[2, 3], replaced_nodes=[1])
            self.world.new_pod(1, self.number, start_delay=self.chance.uniform(0.0, 4.0))

    def lose_one_coming_back(self) -> None:
        """End a rank that is on its way back, and give the growth up."""
        rank = self.chance.choice([2, 3])
        order = self.world.core.job.order
        assert order is not None
        if order.action == pb.EXPAND and self.world.phase(rank) in (pb.AT_GATE, pb.LINKED):
            self.world.die(rank)
            self.world.advance(self.chance.choice([0.0, 0.3]))
            self._order(pb.SHRINK, lost_ranks=[2, 3])

    def lose_another(self) -> None:
        """End a rank that has stayed, and order its step to be saved."""
        if self.world.phase(1) == pb.LINKED and self.chance.random() < 0.3:
            self.world.mindio.strategies = ["exit", "dump"]  # of a fault while scaled in
            self.world.die(1)
            self.number = max(self.number, self.world.state.incarnation)
            self._order(pb.CHECKPOINT, lost_ranks=[1])

    def end(self) -> None:
        """Have MindIO take the ranks back when all stand; it fails with one that is dead, or finds that one first."""
        world = self.world
        if world.mindio.ask != "coming back":
            return
        if world.phase(1) == pb.DEAD:
            if self.chance.random() < 0.5:
                world.mindio.result(406, "do repair failed", {1: 1})
            else:
                world.mindio.ask = "stop"
                world.callback("report_fault_ranks", [[[1, 1]], []])
        elif all(world.phase(rank) == pb.LINKED for rank in (2, 3)):
            world.mindio.result()
        world.pump()

    def wait(self) -> None:
        """Let nothing happen."""

    def _order(self, action: pb.Action, **fields: object) -> None:
        self.world.order(action, incarnation=self.number, revision=self.revision, **fields)
        self.revision += 1
