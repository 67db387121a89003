"""Plays cells: a training on a rig, a fault at its moment, and the wait until the training goes on.

Cells share a training as long as they allow the same actions and all went well, one after the other with everything at
rest in between; a training begins anew when its steps run out or a cell has failed. Faults come from lines in the
training's log directory; what a rank cannot do to itself is done by the node set once the ranks have marked that they
are where they should be.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from e2e.cluster.control_plane import ControlPlaneError
from e2e.harness.job import Job
from e2e.harness.rig import Rig
from e2e.nodes.control import ControlError
from e2e.proof.cells import STANDING_SECONDS, STEP_MILLISECONDS, WORLD, Cell, Script, script
from e2e.proof.fixture import NodeFixture
from e2e.proof.verdict import Evidence, Result, evaluate
from e2e.proof.window import EventWindow, Reference
from e2e.trainer.checkpoint import TRACKER
from e2e.trainer.faults import Fault, order

SAVE_INTERVAL: Final = 20
STEPS_BEFORE: Final = 3
STEPS_AFTER: Final = 4
MARGIN_SECONDS: Final = 1.5
"""From the order of a fault to its step: every rank looks for orders once per step."""
MOMENT_SECONDS: Final = 30.0
RECOVERY_SECONDS: Final = 150.0
ACTION_SECONDS: Final = 180.0
"""MindIO's own limit of an action, which a rank that is gone in the middle of one uses up."""
START_SECONDS: Final = 120.0
QUIET_SECONDS: Final = 20.0
TRIES: Final = 3
ALL_ACTIONS: Final = ("Retry", "InPlace", "Replace", "Shrink", "Checkpoint", "Restart")
PLENTY: Final = 100_000
SHORT_TIMERS: Final[Mapping[str, str]] = {"TTP_NORMAL_ACTION_TIME_LIMIT": "30"}
SHORT_REPLACEMENT: Final = 90
"""Seconds; MindIO's own wait follows from it (120 s)."""


class MissedError(RuntimeError):
    """The fault did not meet its moment: the cell has to be played again."""


@dataclass(frozen=True)
class Setting:
    """How trainings are run.

    Attributes:
        step_milliseconds: Of a step.
        defaults: MindIO's timers as they are, not at their useful minimum.
        seed: of what cascades draw: who dies, and when.
    """

    step_milliseconds: float = STEP_MILLISECONDS
    defaults: bool = False
    seed: int = 0

    @property
    def recovery_seconds(self) -> float:
        """The longest that a recovery is waited for."""
        return RECOVERY_SECONDS + (ACTION_SECONDS if self.defaults else 0.0)


def job_spec(wanted: Script, setting: Setting) -> dict[str, Any]:
    """The part of the job's spec that leaves the wanted actions only."""
    limits = [
        {"name": name, "maxCount": PLENTY if name in wanted.allowed else 0} if name != "Shrink" else
        {"name": name, "maxCount": 0}
        for name in ALL_ACTIONS
    ]  # fmt: skip
    recovery: dict[str, Any] = {"actions": limits, "maxProgramFailures": 1000}
    recovery["hang"] = {"minTimeoutSeconds": wanted.hang_seconds}
    if not setting.defaults:
        recovery["replacementTimeoutSeconds"] = SHORT_REPLACEMENT
    return {"recovery": recovery}


class ScenarioSetup:
    """A rig with at most one training on it."""

    def __init__(self, rig: Rig, reference: Reference, setting: Setting, say: Callable[[str], None]) -> None:
        self.rig, self.reference, self.setting, self._say = rig, reference, setting, say
        self._job: Job | None = None
        self._window: EventWindow | None = None
        self._spec: dict[str, Any] = {}
        self._step_milliseconds = setting.step_milliseconds
        self._count = 0
        self._fixture = NodeFixture(rig)

    @property
    def job(self) -> Job:
        """The training."""
        assert self._job is not None, "a training was begun"
        return self._job

    @property
    def window(self) -> EventWindow:
        """Its logs."""
        assert self._window is not None, "a training was begun"
        return self._window

    def play(self, cell: Cell) -> Result:
        """Play a cell; what broke the play is in the result.

        It is played again where the fault missed its moment, or where nothing was wrong but the 100 ms of the phases:
        those are about a machine that does nothing else.
        """
        began, wanted, tries = time.monotonic(), script(cell, defaults=self.setting.defaults, seed=self.setting.seed), 0
        result = Result(cell.name)
        while tries < TRIES:
            tries += 1
            try:
                result = self._play(cell.name, wanted)
                if not result.is_only_late:
                    break
            except MissedError as error:
                result.problems = [f"not played: {error}"]
                self.end_training()
            except (AssertionError, ControlError, ControlPlaneError, OSError) as error:
                result.problems = [f"the play broke: {error}"]
                break
        result.tries, result.seconds = tries, time.monotonic() - began
        if not result.is_good:
            with contextlib.suppress(ControlPlaneError, OSError):
                self._say(f"logs of {cell.name} will be in {self.rig.explain()}")
            self.end_training()
        self._fixture.power_on()
        return result

    def end_training(self) -> None:
        """Delete the training, if there is one."""
        if self._job is not None:
            with contextlib.suppress(ControlPlaneError):
                self._job.delete()
        self._job = self._window = None

    def _play(self, name: str, wanted: Script) -> Result:
        self._begin_training(wanted)
        incarnation, step = self._at_rest()
        at = step + max(STEPS_BEFORE, round(MARGIN_SECONDS * 1000 / self._step_milliseconds))
        if wanted.at_save:
            at += -at % SAVE_INTERVAL
        self.window.begin(step - STEPS_BEFORE)
        before, checkpoint = dict(self.window.processes), self._checkpoint()
        lines = [line.format(step=at) for line in wanted.lines]
        order(self.job.logs, *lines)
        self._await_marks(lines)
        self._do(wanted)
        self._await_recovery(incarnation)
        order(self.job.logs)
        self._go_on()
        incidents = [each for each in self.job.incidents() if each["incarnation"] > incarnation]
        evidence = Evidence(self.window.read(), before, incidents, checkpoint)
        result = evaluate(name, wanted, evidence, self.reference)
        self._fixture.power_on()
        result.problems += self._left_over()
        return result

    def _begin_training(self, wanted: Script) -> None:
        """A training that allows what the cell wants and has enough steps left."""
        spec, step = job_spec(wanted, self.setting), wanted.step_milliseconds(self.setting.step_milliseconds)
        left = self.reference.steps - (self.window.common_step(WORLD) if self._window else 0)
        if self._job is not None and (spec, step) == (self._spec, self._step_milliseconds) and left > 150:
            return
        self.end_training()
        self._count += 1
        self._spec, self._step_milliseconds = spec, step
        self._job = self.rig.submit(
            f"proof-{self._count}",
            iterations=1_000_000,
            step_milliseconds=step,
            arguments=["--save-interval", str(SAVE_INTERVAL), "--log-digests"],
            environment={} if self.setting.defaults else SHORT_TIMERS,
            spec=spec,
        )
        self.job.wait_condition("Running", seconds=START_SECONDS)
        self._window = EventWindow(self.job.logs)
        self._wait("the first checkpoint", lambda: self._checkpoint() > 0, START_SECONDS)

    def _at_rest(self) -> tuple[int, int]:
        """Wait until nothing goes on but the training; its incarnation and step."""

        def resting() -> bool:
            status = self.job.status()
            conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
            is_open = any(each["outcome"] == "Open" for each in status.get("incidents", ()))
            state = status.get("summary", {}).get("state")
            return state == "Running" and conditions.get("CoordinatorReady") == "True" and not is_open

        self._wait("the training to be at rest", resting, self.setting.recovery_seconds)
        return int(self.job.status()["incarnation"]), self._go_on()

    def _go_on(self) -> int:
        """Wait until every rank has finished some more steps; returns the newest common one."""
        step = self.window.common_step(WORLD) + STEPS_AFTER
        self._wait(f"step {step}", lambda: self.window.common_step(WORLD) >= step, self.setting.recovery_seconds)
        return self.window.common_step(WORLD)

    def _await_marks(self, lines: list[str]) -> None:
        marks = [(fault := Fault.parse(line)).mark(self.job.logs, fault.rank or 0) for line in lines]
        deadline = time.monotonic() + MOMENT_SECONDS
        while missing := [mark.name for mark in marks if not mark.exists()]:
            if time.monotonic() > deadline:
                order(self.job.logs)
                raise MissedError(f"never came to {', '.join(missing)}")
            time.sleep(0.005)

    def _do(self, wanted: Script) -> None:
        """What the node set does once every rank is where it should be."""
        for number, rank in enumerate(wanted.killed):
            if wanted.apart:
                time.sleep(wanted.apart[number])
            self._wait(f"a process of rank {rank}", functools.partial(self._fixture.kill, self.job, rank), 5.0)
        if wanted.powered_off is None:
            return
        time.sleep(STANDING_SECONDS)
        if not self._fixture.power_off(self.job, wanted.powered_off):
            raise MissedError(f"rank {wanted.powered_off} is on no node that could be switched off")

    def _await_recovery(self, incarnation: int) -> None:
        def closed() -> bool:
            status = self.job.status()
            fresh = [each for each in status.get("incidents", ()) if each["incarnation"] > incarnation]
            failed = [each for each in status.get("conditions", ()) if each["type"] == "Failed"]
            if failed and failed[0]["status"] == "True":
                raise AssertionError(f"the job failed: {failed[0]['reason']}: {failed[0]['message']}")
            return bool(fresh) and all(each["outcome"] != "Open" for each in fresh)

        self._wait("the incident to be closed", closed, self.setting.recovery_seconds)

    def _checkpoint(self) -> int:
        """The newest committed step, 0 when there is none."""
        try:
            return int((self.job.volume / TRACKER).read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def _left_over(self) -> list[str]:
        """Sentences about processes that nobody should have left; pods that leave get some time for it."""
        deadline = time.monotonic() + QUIET_SECONDS
        while (found := list(self._fixture.surplus(self.job))) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def _wait(self, what: str, condition: Callable[[], Any], seconds: float) -> Any:  # noqa: ANN401 - what was found
        return self.rig.plane.wait(what, condition, seconds, poll=0.1)
