"""Walks through the product, counted while it runs in memory: what a stranger passes who follows one thing.

Three walks, each played by a rig (tests/rigs/walks.py) under a profiler of the interpreter:

- fault → order: from the parser of a device plugin's ConfigMap to the order, as the coordinator's channel is given it.
- report → order: from a coordinator's report of a dead process, as its channel hands it on, to that order.
- exit → stop_train: from the launcher's message that a process has exited, in the agent, to the request that the
  coordinator hands to the channel of MindIO's controller. Between the two goes the agent's report.

What is counted, by *calls* into functions of the product (a call that comes back is no step):

- A function counts once, however often it is called. Lambdas and comprehensions belong to the function around them.
- Files: those in which a function was called. Rooms that are pure (`PURE`) are counted apart: nobody has to know where
  their answers come from.
- Functions that only hand on: of those called, the ones that `measures.passing_on` finds.
- Returns: functions whose call enters a file that was left before, which is a file with another function that still
  waits for this call to come back. Where the walk goes through a queue or a wire and a new stack begins, the file in
  which it begins counts if an earlier stack of the walk was in it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from tests.house import measures
from tests.house.measures import Source

CHECKOUT: Final = Path(__file__).resolve().parents[2]
PRODUCT: Final = ("operator/hajob", "trainer_sidecar")
PURE: Final = tuple(f"operator/hajob/{name}/" for name in ("api", "domain", "plan", "protocol"))
"""Packages without a clock and without I/O, which answer a question and know of nobody who asks."""


@dataclass(frozen=True, slots=True)
class Step:
    """One function that was called on a walk.

    Attributes:
        path: of its file, relative to the checkout.
        line: on which it begins, the first of its decorators counted.
        name: qualified.
    """

    path: str
    line: int
    name: str


@dataclass
class Walk:
    """Everything of the product that was called between the beginning and the end of a walk.

    Attributes:
        begin: the function whose call begins the walk; None: the first call does.
        steps: functions in the order of their first call.
        returns: of these, the ones whose call entered a file that the walk had left before.
    """

    begin: Callable[..., object] | None = None
    steps: dict[Step, None] = field(default_factory=dict)
    returns: dict[Step, None] = field(default_factory=dict)
    _before: set[str] = field(default_factory=set)
    _now: set[str] = field(default_factory=set)

    @property
    def files(self) -> list[str]:
        """Return the files of all steps, in the order in which they were entered."""
        return list(dict.fromkeys(step.path for step in self.steps))

    @property
    def files_outside_pure_rooms(self) -> list[str]:
        """Return the files that are not in `PURE`."""
        return [path for path in self.files if not path.startswith(PURE)]

    def handed_on(self, product: Sequence[Source]) -> list[Step]:
        """List the steps that only hand on, in these modules."""
        passing = {
            (source.path.as_posix(), line_of(function), function.name)
            for source in product
            for function in measures.passing_on([source])
        }
        return [step for step in self.steps if (step.path, step.line, step.name.rpartition(".")[2]) in passing]

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record every call while this is open."""
        sys.setprofile(self._event)
        try:
            yield
        finally:
            self.end()

    def end(self) -> None:
        """End the walk: whatever is called from now on is no part of it."""
        sys.setprofile(None)

    def next_stack(self) -> None:
        """Note that the walk goes on elsewhere: what was passed on so far lies in a queue or on a wire."""
        self._before |= self._now
        self._now = set()

    def _event(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or frame.f_code.co_name.startswith("<"):
            return
        step = _step(frame.f_code)
        if step is None or (not self.steps and self.begin is not None and frame.f_code is not self.begin.__code__):
            return
        self.steps[step] = None
        self._now.add(step.path)
        waiting = waiting_files(frame)
        if waiting[:1] != [step.path] and step.path in (waiting or self._before):
            self.returns[step] = None


_STEPS: dict[CodeType, Step | None] = {}


def _step(code: CodeType) -> Step | None:
    """Return what stands for a function of the product; None for any other."""
    if code not in _STEPS:
        path = Path(code.co_filename)
        relative = path.relative_to(CHECKOUT).as_posix() if path.is_relative_to(CHECKOUT) else ""
        is_ours = relative.startswith(PRODUCT) and not relative.endswith(measures.GENERATED)
        _STEPS[code] = Step(relative, code.co_firstlineno, code.co_qualname) if is_ours else None
    return _STEPS[code]


def waiting_files(frame: FrameType) -> list[str]:
    """List the files of the product that wait for this call, the nearest first."""
    found, caller = [], frame.f_back
    while caller is not None:
        step = _step(caller.f_code)
        if step is not None:
            found.append(step.path)
        caller = caller.f_back
    return found


def line_of(function: measures.Function) -> int:
    """Return the line with which a function begins, as its compiled code gives it."""
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def named(steps: Collection[Step]) -> str:
    """Write steps as a list for people."""
    return ", ".join(f"{step.path.removeprefix('operator/hajob/')}: {step.name}" for step in steps)
