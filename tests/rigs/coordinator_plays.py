"""Every action from its order to its end, with an operator that may be away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World

AWAY_SECONDS = 65.0
Play = Callable[["AwayWorld"], Iterator[None]]


class AwayWorld(World):
    """A world whose operator may be away."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.standing = pb.StandingOrders(
            decision_timeout_milliseconds=10_000, allow_in_place=True, allow_retry=True, allow_checkpoint=True
        )
        self.start()
        for step in range(1, 4):
            self.step(step)

    def collect(self) -> None:
        """Take nothing while the operator is away."""
        if not self.away:
            super().collect()

    def leave(self) -> None:
        """Take the operator away for a while; then another stream begins."""
        self.away = True
        self.advance(AWAY_SECONDS)
        self.away = False
        self.core.job.effects.outbox.resend_unacknowledged()
        self.advance(0.1)

    def end(self, step: int) -> None:
        """Train on, and have MindIO say so later."""
        self.advance(0.2)
        self.step(step)
        self.advance(2.0)
        self.mindio.result()
        self.pump()

    def outcome(self) -> dict[str, Any]:
        """Collect what is the same whoever looked."""
        processes = [
            (agent.uid, rank, process.incarnation, process.start, process.phase)
            for agent in self.agents.values()
            for rank, process in sorted(agent.processes.items())
        ]
        marks = [(m.kind, m.incarnation, tuple(m.ranks), m.result_code, m.strategy) for m in self.milestones]
        return {
            "calls": self.mindio.calls,
            "processes": processes,
            "conversation": self.state.conversation,
            "incarnation": self.state.incarnation,
            "milestones": marks,
            "facts": [(fact.kind, tuple(fact.ranks)) for fact in self.facts],
        }


def in_place(world: AwayWorld) -> Iterator[None]:
    """Play a process that dies and is started again in its pod."""
    world.die(3)
    yield
    world.order(pb.IN_PLACE, incarnation=2, revision=1, lost_ranks=[3], restart_ranks=[3])
    yield
    world.advance(0.2)
    world.step(4)
    yield
    world.end(5)


def retry(world: AwayWorld) -> Iterator[None]:
    """Play a fault of a rank's memory, and the step done again."""
    world.mindio.strategies = ["exit", "dump", "retry"]
    world.mindio.ask = "stop"
    world.callback("report_fault_ranks", [[[1, 0]], [[1, ""]]])
    world.pump()
    yield
    world.order(pb.RETRY, incarnation=2, revision=1, lost_ranks=[1])
    yield
    world.end(4)


def new_pod(world: AwayWorld, incarnation: int, seconds: float, *, step: int) -> Iterator[None]:
    """Make a pod for node 1, whose ranks come within `seconds`, and train on with `step`."""
    world.new_pod(1, incarnation, start_delay=1.0)
    yield
    world.advance(seconds)
    yield
    world.end(step)


def replace(world: AwayWorld) -> Iterator[None]:
    """Play a node that is lost and its pod replaced."""
    world.agent(1).powered = False
    world.core.note_disconnected_agent(world.agent(1).uid, world.now, refused=False)
    world.advance(4.0)
    yield
    world.order(pb.REPLACE, incarnation=2, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    yield
    yield from new_pod(world, 2, 3.0, step=4)


def shrink(world: AwayWorld) -> Iterator[None]:
    """Play a node that is lost and left out."""
    world.agent(1).powered = False
    world.core.note_disconnected_agent(world.agent(1).uid, world.now, refused=False)
    world.advance(4.0)
    yield from leave_out_node_1(world)


def shrink_beside_its_agent(world: AwayWorld) -> Iterator[None]:
    """Play a process that dies and takes its node out; another process and the agent of both live."""
    world.die(3)
    yield from leave_out_node_1(world)


def leave_out_node_1(world: AwayWorld) -> Iterator[None]:
    """Order the job to train on without node 1, which MindIO does."""
    world.mindio.strategies = ["exit", "dump", "recover", "downgrade"]
    world.order(pb.SHRINK, incarnation=2, revision=1, lost_ranks=[2, 3])
    world.advance(0.5)
    yield
    world.callback("report_result", [201, "isolate", [[2, 1], [3, 1]], "downgrade"])
    world.pump()
    yield
    world.step(4)
    world.mindio.result(ranks={2: 1, 3: 1})
    world.pump()
    yield


def checkpoint(world: AwayWorld) -> Iterator[None]:
    """Play an order to save the step."""
    world.order(pb.CHECKPOINT, incarnation=2, revision=1)
    world.advance(0.5)
    yield
    world.mindio.result()
    world.pump()
    yield


def expand(world: AwayWorld) -> Iterator[None]:
    """Play a job that grows back."""
    for _ in shrink(world):
        pass
    world.order(pb.EXPAND, incarnation=3, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    yield
    yield from new_pod(world, 3, 1.5, step=5)


def until_growing(world: AwayWorld) -> Iterator[None]:
    """Play until the job grows back: its pod is kept, its processes are started again."""
    for _ in shrink_beside_its_agent(world):
        pass
    world.order(pb.EXPAND, incarnation=3, revision=1, lost_ranks=[2, 3], restart_ranks=[2, 3])
    world.advance(0.2)
    yield


def growth_that_fails(world: AwayWorld) -> Iterator[None]:
    """Play a growth that MindIO fails."""
    yield from until_growing(world)
    world.mindio.strategies = ["exit", "dump"]
    world.mindio.result(406, "upgrade repair failed", {3: 1})
    world.pump()
    world.order(pb.CHECKPOINT, incarnation=3, revision=2, lost_ranks=[2, 3])
    yield
    world.mindio.result()
    world.pump()
    yield


def growth_that_is_given_up(world: AwayWorld) -> Iterator[None]:
    """Play a growth that the operator gives up."""
    yield from until_growing(world)
    world.die(3)
    world.order(pb.SHRINK, incarnation=3, revision=2, lost_ranks=[2, 3])
    yield
    world.order(pb.EXPAND, incarnation=4, revision=1, lost_ranks=[2, 3], restart_ranks=[2, 3])
    world.advance(0.2)
    yield
    world.end(5)


def pause(world: AwayWorld) -> Iterator[None]:
    """Play a pause from its order to its end."""
    world.order(pb.PAUSE, incarnation=2, revision=1, timeout_seconds=600)
    yield
    world.order(pb.CONTINUE, incarnation=2, revision=2)
    yield
    world.end(4)


def migrate(world: AwayWorld) -> Iterator[None]:
    """Play a node that is moved."""
    world.order(pb.MIGRATE, incarnation=2, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    yield
    yield from new_pod(world, 2, 1.5, step=4)


PLAYS: dict[Play, int] = {
    in_place: 3,
    retry: 2,
    replace: 4,
    shrink: 3,
    shrink_beside_its_agent: 3,
    checkpoint: 2,
    expand: 3,
    growth_that_fails: 3,
    growth_that_is_given_up: 3,
    pause: 2,
    migrate: 3,
}
