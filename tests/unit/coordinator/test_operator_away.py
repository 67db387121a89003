"""The operator is away for more than a minute, at any point of any action: the result is the same.

Each action is played twice, with the same words of the same operator; the second time it is gone for a while at one
point, hears nothing, says nothing, and then gets everything on a new stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.unit.coordinator.world import World

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

    def _collect(self) -> None:
        if not self.away:
            super()._collect()

    def leave(self) -> None:
        """The operator is gone for a while, and another stream begins."""
        self.away = True
        self.advance(AWAY_SECONDS)
        self.away = False
        self.core.job.effects.outbox.rewind()
        self.advance(0.1)

    def end(self, step: int) -> None:
        """The training goes on, MindIO says so later."""
        self.advance(0.2)
        self.step(step)
        self.advance(2.0)
        self.mindio.result()
        self.pump()

    def outcome(self) -> dict[str, Any]:
        """What is the same whoever looked."""
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
    world.die(3)
    yield
    world.order(pb.IN_PLACE, incarnation=2, revision=1, lost_ranks=[3], restart_ranks=[3])
    yield
    world.advance(0.2)
    world.step(4)
    yield
    world.end(5)


def retry(world: AwayWorld) -> Iterator[None]:
    world.mindio.strategies = ["exit", "dump", "retry"]
    world.mindio.ask = "stop"
    world.callback("report_fault_ranks", [[[1, 0]], [[1, ""]]])
    world.pump()
    yield
    world.order(pb.RETRY, incarnation=2, revision=1, lost_ranks=[1])
    yield
    world.end(4)


def new_pod(world: AwayWorld, incarnation: int, seconds: float, *, step: int) -> Iterator[None]:
    """A pod is made for node 1, its ranks come within `seconds`, and the training goes on with `step`."""
    world.new_pod(1, incarnation, start_delay=1.0)
    yield
    world.advance(seconds)
    yield
    world.end(step)


def replace(world: AwayWorld) -> Iterator[None]:
    world.agent(1).powered = False
    world.core.disconnected(world.agent(1).uid, world.now, refused=False)
    world.advance(4.0)
    yield
    world.order(pb.REPLACE, incarnation=2, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    yield
    yield from new_pod(world, 2, 3.0, step=4)


def shrink(world: AwayWorld) -> Iterator[None]:
    world.agent(1).powered = False
    world.core.disconnected(world.agent(1).uid, world.now, refused=False)
    world.advance(4.0)
    yield from leave_out_node_1(world)


def shrink_beside_its_agent(world: AwayWorld) -> Iterator[None]:
    """One process has died, another lives, and so does the agent of both."""
    world.die(3)
    yield from leave_out_node_1(world)


def leave_out_node_1(world: AwayWorld) -> Iterator[None]:
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
    world.order(pb.CHECKPOINT, incarnation=2, revision=1)
    world.advance(0.5)
    yield
    world.mindio.result()
    world.pump()
    yield


def expand(world: AwayWorld) -> Iterator[None]:
    for _ in shrink(world):
        pass
    world.order(pb.EXPAND, incarnation=3, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    yield
    yield from new_pod(world, 3, 1.5, step=5)


def until_growing(world: AwayWorld) -> Iterator[None]:
    """The pod is kept: its processes are started again."""
    for _ in shrink_beside_its_agent(world):
        pass
    world.order(pb.EXPAND, incarnation=3, revision=1, lost_ranks=[2, 3], restart_ranks=[2, 3])
    world.advance(0.2)
    yield


def growth_that_fails(world: AwayWorld) -> Iterator[None]:
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
    yield from until_growing(world)
    world.die(3)
    world.order(pb.SHRINK, incarnation=3, revision=2, lost_ranks=[2, 3])
    yield
    world.order(pb.EXPAND, incarnation=4, revision=1, lost_ranks=[2, 3], restart_ranks=[2, 3])
    world.advance(0.2)
    yield
    world.end(5)


def pause(world: AwayWorld) -> Iterator[None]:
    world.order(pb.PAUSE, incarnation=2, revision=1, timeout_seconds=600)
    yield
    world.order(pb.CONTINUE, incarnation=2, revision=2)
    yield
    world.end(4)


def migrate(world: AwayWorld) -> Iterator[None]:
    world.order(pb.MIGRATE, incarnation=2, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    yield
    yield from new_pod(world, 2, 1.5, step=4)


def played(play: Play, away_at: int | None = None) -> AwayWorld:
    world = AwayWorld()
    for number, _ in enumerate(play(world)):
        if number == away_at:
            world.leave()
    world.advance(0.5)
    return world


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


@pytest.mark.parametrize(
    ("play", "away_at"),
    [pytest.param(play, at, id=f"{play.__name__}-{at}") for play, points in PLAYS.items() for at in range(points)],
)
def test_an_operator_that_is_away_changes_nothing_in_the_result(play: Play, away_at: int) -> None:
    assert played(play, away_at).outcome() == played(play).outcome()


@pytest.mark.parametrize(("play", "standing"), [(in_place, pb.IN_PLACE), (retry, pb.RETRY)])
def test_what_needs_nobody_else_is_done_meanwhile_and_said(play: Play, standing: pb.Action) -> None:
    world = AwayWorld()
    next(play(world))
    world.leave()
    assert world.state.standing_action == standing
    assert len(world.called("change_strategy")) == 1
    assert world.marks(pb.STRATEGY_SENT)
