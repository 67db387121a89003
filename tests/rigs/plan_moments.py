"""A job in the middle of each action, for tests that let something else happen to it then."""

from __future__ import annotations

from dataclasses import replace

from hajob.plan import events as e
from hajob.plan.policy import Policy
from hajob.plan.state import JobState
from tests.rigs.plan_rig import Rig
from tests.rigs.plan_worlds import VIEW


def gathering() -> Rig:
    """Build a job of which a process is being started again."""
    rig = Rig.running()
    rig.exits(5)
    return rig


def confirming() -> Rig:
    """Build a job whose first step after a repair has ended."""
    rig = Rig.naming()
    rig.tell(e.Resumed(rig.incident.incarnation, 6))
    return rig


def shrinking() -> Rig:
    """Build a job of which a data-parallel rank is being dropped."""
    rig = Rig.running(view=replace(VIEW, free_nodes=0))
    rig.silent(2)
    rig.deadline("Recovery")
    return rig


def expanding() -> Rig:
    """Build a job whose dropped ranks come back."""
    rig = Rig.shrunk()
    rig.view = VIEW
    rig.grow()
    return rig


def migrating() -> Rig:
    """Build a job of which a pod is being moved."""
    rig = Rig.running()
    rig.tell(e.MigrateRequested(nodes=(3,)))
    return rig


def pausing() -> Rig:
    """Build a job whose ranks are asked to wait at the end of their step."""
    rig = Rig.running()
    rig.tell(e.PauseRequested(request="2026-01-01T00:00:00Z", seconds=300))
    return rig


def starting(**policy: object) -> Rig:
    """Build a job whose pods are being made for the first time."""
    rig = Rig(JobState(), view=replace(VIEW, step=-1), policy=Policy(**policy))  # type: ignore[arg-type]
    rig.tell(e.Accepted())
    return rig
