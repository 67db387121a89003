# ruff: noqa: ANN401 - values of strangers pass through here
"""How a run is evaluated: what is equal, how long something may take, what came too early or too late."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

from e2e.mindio.conformance.world import Member, World

ARGUMENTS = ["model", 7]
Step = dict[str, Any]


class UnmetError(AssertionError):
    """Something that must follow did not."""


def has_ended(member: Member) -> bool:
    """Whether a process has ended."""
    return member.ended is not None


def patience() -> float:
    """How long something may take to happen when no interval is given; longer on a machine that others load, too."""
    return 20.0 * min(4.0, max(1.0, os.getloadavg()[0] / (4 * (os.cpu_count() or 1))))


class VectorRun:
    """One vector being run: its variables, its labels, and the time of the last deed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.variables: dict[str, Any] = {"ARGS": ARGUMENTS}
        self.marks: dict[str, float] = {}
        self.deed = time.monotonic()
        self.seen_callbacks = 0
        self.seen_handlers: dict[str, int] = {}

    # ---- matching

    def equal(self, wanted: Any, got: Any) -> bool:
        """Whether `got` is what is wanted; binds variables."""
        if isinstance(wanted, str) and wanted.startswith("$"):
            return bool(self.variables.setdefault(wanted, got) == got)
        if wanted == "ARGS":
            return bool(got == ARGUMENTS)
        if wanted == "ANY":
            return True
        if isinstance(wanted, dict) and set(wanted) == {"ONE_OF"}:
            return any(self.equal(one, got) for one in wanted["ONE_OF"])
        if isinstance(wanted, list):
            same = isinstance(got, list) and len(wanted) == len(got)
            return same and all(self.equal(w, g) for w, g in zip(wanted, got, strict=True))
        if isinstance(wanted, dict):
            same = isinstance(got, dict) and set(wanted) == set(got)
            return same and all(self.equal(w, got[k]) for k, w in wanted.items())
        return type(wanted) is type(got) and bool(wanted == got)

    async def until(self, condition: Callable[[], bool], end: float, what: str) -> None:
        """Wait for a condition on what the processes have told."""
        while not condition():
            self.world.changed.clear()
            left = end - time.monotonic()
            if left <= 0:
                raise UnmetError(f"did not happen in time: {what}")
            try:
                await asyncio.wait_for(self.world.changed.wait(), min(left, 0.5))
            except TimeoutError:
                continue

    def window(self, step: Step) -> tuple[float, float]:
        """The interval of a step as points of the monotonic clock."""
        if "within" not in step:
            return 0.0, time.monotonic() + patience()
        base = self.marks[step["since"]] if "since" in step else self.deed
        low, high = step["within"]
        return base + low, base + high

    def check_time(self, step: Step, when: float, what: str) -> None:
        """`UnmetError` when something happened too early or too late."""
        low, high = self.window(step)
        if not low - 0.05 <= when <= high:
            base = self.marks[step["since"]] if "since" in step else self.deed
            raise UnmetError(f"{what} came after {when - base:.2f} s, wanted within {step.get('within')}")
        if "mark" in step:
            self.marks[step["mark"]] = when

    def check_return(self, step: Step, event: dict[str, Any], name: str) -> None:
        """Compare what came back from a call."""
        if "raises" in step:
            if event.get("raised") != step["raises"] or step.get("text", "") not in event.get("text", ""):
                raise UnmetError(f"{name} should raise {step['raises']}, got {event}")
            return
        if "value" not in event or not self.equal(step.get("returns", 0), event["value"]):
            raise UnmetError(f"{name} should return {step.get('returns', 0)!r}, got {event}")
        if "takes" in step and event["took"] > step["takes"]:
            raise UnmetError(f"{name} took {event['took']:.3f} s")
