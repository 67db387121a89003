"""Controllers and coordinators lost at random moments of a training with faults, in virtual time.

What the table of resumption calls possible never costs a restart: nobody is told that the ranks cannot be taken over,
and in the end every rank trains under a controller that knows it. `make nightly` plays 2,000 (`HAJOB_LOSSES`).
"""

from __future__ import annotations

import os
import random

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator_faults import RoundOfFaults, SimpleOperator, cause_a_fault, check_one_process_per_rank
from tests.rigs.coordinator_repairs import ANSWERED_BEFORE, REBUILT, REPAIRED, ROLLED_BACK
from tests.rigs.coordinator_restart import restart_coordinator

ROUNDS = int(os.environ.get("HAJOB_LOSSES", "20"))


class WaitingOperator(SimpleOperator):
    """Decides nothing while no controller protects the ranks."""

    def decide(self) -> None:
        if self.world.state.conversation in ("Offline", "Lost"):
            return
        super().decide()
        named = {rank for mark in self.world.marks(pb.STOPPED)[-1:] for rank in mark.ranks}
        missed = named.difference(self.order.lost_ranks if self.order is not None else ())
        if missed and self.world.state.conversation == "Stopped":  # the facts went with a coordinator
            self._answer(pb.Fact(kind=pb.PROCESS_EXITED, ranks=sorted(missed)))


class LossyRound(RoundOfFaults):
    """Gates tell how far their ranks are, as the real ones do."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.world.gates_know = True
        self.operator = WaitingOperator(self.world)
        self._chance = chance
        self._of: tuple[int, ...] = ()
        self._done: list[int] = []
        self.losses = 0

    def tick(self) -> None:
        super().tick()
        for agent in self.world.agents.values():
            agent.written = [] if agent.written is None else agent.written
        self._answer()

    def _answer(self) -> None:
        world, ask = self.world, self.world.mindio.ask
        lost = tuple(world.mindio.lost)
        if ask == "result" and not world.mindio.waits_for_a_successor():
            if self._of != lost:
                self._of = lost
                self._done = [REBUILT, REPAIRED, ROLLED_BACK][: self._chance.randint(0, 3)]
        elif ask != "result":
            self._of, self._done = (), []
        before = ANSWERED_BEFORE.get("strategy" if ask == "result" else ask, ())
        for agent in world.agents.values():
            for rank in agent.processes:
                own = self._done if rank in lost else [*before, *self._done]
                agent.answered[rank] = list(own) if ask != "nothing" else []

    def lose_controller(self) -> None:
        """MindIO's process dies, or the whole pod of the coordinator."""
        world = self.world
        self._due, self.losses = None, self.losses + 1
        if self._chance.random() < 0.5:
            world.lose_controller()
            return
        world.mindio.registered.clear()
        world.mindio.ask = "nothing"
        world.pending.clear()
        told = [fact for fact in world.facts[self.operator.seen :] if fact.kind == pb.PROCESS_EXITED]
        restart_coordinator(world, [], controller=False)
        world.facts[:0] = told  # the operator has them, though nobody answers it
        self.operator.seen = 0


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_controller_lost_at_any_moment_costs_no_restart(seed: int) -> None:
    chance = random.Random(seed)
    training = LossyRound(chance)
    world = training.world
    blind: list[str] = []
    for tick in range(1100):
        training.tick()
        blind += [fact.message for fact in world.facts if fact.kind == pb.CONTROLLER_LOST]
        order = training.operator.order
        if order is not None and len(order.lost_ranks) == world.nodes * world.per_node:
            return  # nobody is left who could be recovered from: the operator starts the job anew
        if blind or world.state.conversation == "Closed":
            break
        if tick < 600 and chance.random() < 0.02 and sum(world.agent(node).answers for node in range(world.nodes)) > 1:
            cause_a_fault(world, chance)
        if tick < 700 and chance.random() < 0.02 and world.core.job.attempt.linked:
            training.lose_controller()
    assert blind == []
    closed = world.state.conversation == "Closed"
    assert not closed or training.operator.saves, "it ended, though nothing died after the naming"
    assert closed or (world.state.conversation, world.state.controller_ready) == ("Serving", True), world.state
    check_one_process_per_rank(world)
