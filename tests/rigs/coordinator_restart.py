"""Another coordinator process beside the same agents and the same MindIO controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.rigs.coordinator import ENDPOINT, World
from trainer_sidecar.coordinator.core import CoordinatorCore
from trainer_sidecar.coordinator.state.job import Job, Limits, Setup
from trainer_sidecar.coordinator.takeover.replay import Replayed, replay_conversation


def replayed(log: Sequence[Mapping[str, Any]], now: float = 0.0) -> tuple[Job, Replayed]:
    """Build a job whose conversation was taken up from `log`."""
    job = CoordinatorCore(Setup(ENDPOINT, Limits(answer_seconds=100.0)), now).job
    job.controller.apply_hello(log)
    return job, replay_conversation(job)


def restart_coordinator(world: World, log: Sequence[dict[str, Any]] | None = None, *, controller: bool = True) -> None:
    """Put another process in the place of the coordinator; agents and controller know nothing of it.

    `log`: of the controller host; its own, where none is given.
    """
    order, world.core = world.core.job.order, CoordinatorCore(Setup(ENDPOINT, Limits()), world.now)
    world.facts, world.milestones = [], []
    for agent in world.agents.values():
        agent.told = None
    if not controller:
        world.controller = {"attempt": 0, "controller": "none", "store": "none"}
    world.core.apply_controller_hello(world.controller, list(world.log if log is None else log), world.now)
    assert order is not None
    world.core.apply_order(order, world.now)
    world.assign()
    world.advance(0.3)
