"""Rounds of faults at random moments: what happens when is drawn from a seed, so that a round can be played again.

A round is one training of its own with one to three faults. Times count from the step at which the training is under
way; what the faults meet there differs from play to play, because processes and machines do as they like. That is the
point: nobody has chosen these moments. A round must end with the job complete, every state that a rank ever had after a
step bitwise the one of the undisturbed training (also where the rules made it start anew), no incident left open and no
process left over.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from e2e.cluster.control_plane import ControlPlaneError
from e2e.harness.job import Job
from e2e.harness.rig import Rig
from e2e.nodes.control import ControlError
from e2e.proof.cells import WORLD
from e2e.proof.fixture import NodeFixture
from e2e.proof.setup import QUIET_SECONDS, SAVE_INTERVAL, SHORT_REPLACEMENT, SHORT_TIMERS, START_SECONDS, Setting
from e2e.proof.window import EventWindow, Reference
from e2e.trainer.faults import FILE, order
from e2e.trainer.faults import Fault as Order

ITERATIONS: Final = 160
UNDER_WAY: Final = 5
WITHIN_SECONDS: Final = 14.0
MOST_FAULTS: Final = 3
MOST_POWER_OFFS: Final = 2
COMPLETE_SECONDS: Final = 300.0
START_LIMIT: Final = 90
"""Seconds; a process that is frozen before MindIO knows it is missed by nothing but the time that a start may take."""
KINDS: Final = ("kill", "kill", "kill", "freeze", "memory", "power-off")
"""How often each kind is drawn."""


@dataclass(frozen=True)
class Fault:
    """One fault of a round, `seconds` after the training was under way."""

    kind: str
    rank: int
    seconds: float

    def __str__(self) -> str:
        """For example `kill 3 at 1.2 s`."""
        return f"{self.kind} {self.rank} at {self.seconds:.1f} s"


@dataclass
class Round:
    """One round and what became of it; `done` tells which faults found something to hit."""

    number: int
    faults: list[Fault]
    done: list[bool] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether everything was as promised."""
        return not self.problems

    def line(self) -> str:
        """The round in one line, with what was wrong below it."""
        words = "ok    " if self.is_good else "FAILED"
        hit = [f"{fault}{'' if done else ' (missed)'}" for fault, done in zip(self.faults, self.done, strict=False)]
        first = (
            f"{words} round {self.number}: {', '.join(hit)}: {'; '.join(self.actions) or '-'} ({self.seconds:.0f} s)"
        )
        return "\n".join([first, *(f"             {problem}" for problem in self.problems)])

    def as_json(self) -> dict[str, Any]:
        """For the file."""
        return {**asdict(self), "faults": [str(fault) for fault in self.faults]}


def draw(seed: int, number: int) -> list[Fault]:
    """The faults of a round, in order of time; the same for the same seed and number, always."""
    chance = random.Random(f"{seed}/{number}")
    faults: list[Fault] = []
    for _ in range(chance.randint(1, MOST_FAULTS)):
        kind = chance.choice(KINDS)
        if sum(fault.kind == "power-off" for fault in faults) >= MOST_POWER_OFFS:
            kind = "kill"
        faults.append(Fault(kind, chance.randrange(WORLD), round(chance.uniform(0, WITHIN_SECONDS), 3)))
    return sorted(faults, key=lambda fault: fault.seconds)


class Chance:
    """Plays rounds on a rig."""

    def __init__(self, rig: Rig, reference: Reference, setting: Setting, say: Callable[[str], None]) -> None:
        self.rig, self.reference, self.setting, self._say = rig, reference, setting, say
        self._fixture = NodeFixture(rig)

    def play(self, seed: int, number: int) -> Round:
        """Play one round; what broke it is in its problems."""
        began, played = time.monotonic(), Round(number, draw(seed, number))
        job = self._submit(number)
        try:
            self._play(job, played)
        except (AssertionError, ControlError, ControlPlaneError, OSError) as error:
            played.problems.append(f"the round broke: {error}")
        played.seconds = time.monotonic() - began
        if not played.is_good:
            self._say(f"logs of round {number} will be in {self.rig.explain()}")
        self._fixture.power_on()
        job.delete()
        return played

    def _submit(self, number: int) -> Job:
        recovery: dict[str, Any] = {"actions": [{"name": "Shrink", "maxCount": 0}]}
        if not self.setting.defaults:
            recovery["replacementTimeoutSeconds"] = SHORT_REPLACEMENT
        return self.rig.submit(
            f"round-{number}",
            iterations=ITERATIONS,
            step_milliseconds=self.setting.step_milliseconds,
            arguments=["--save-interval", str(SAVE_INTERVAL), "--log-digests"],
            environment={} if self.setting.defaults else SHORT_TIMERS,
            spec={"recovery": recovery, "startupDeadlineSeconds": START_LIMIT},
        )

    def _play(self, job: Job, played: Round) -> None:
        window = EventWindow(job.logs)
        job.plane.wait(
            "the training to be under way", lambda: window.common_step(WORLD) >= UNDER_WAY, START_SECONDS, poll=0.1
        )
        began = time.monotonic()
        for fault in played.faults:
            time.sleep(max(0.0, began + fault.seconds - time.monotonic()))
            played.done.append(self._do(job, fault))
        job.hurry()
        job.wait_condition("Complete", seconds=COMPLETE_SECONDS)
        self._fixture.power_on()
        incidents = job.incidents()[::-1]
        played.actions = [" > ".join((*each.get("escalatedFrom", ()), str(each.get("action")))) for each in incidents]
        played.problems += [
            f"incident {each['incarnation']} is open" for each in incidents if each["outcome"] == "Open"
        ]
        played.problems += self.reference.differences(window.read())
        played.problems += list(_unfinished(window))
        played.problems += self._left_over(job)

    def _do(self, job: Job, fault: Fault) -> bool:
        """Do a fault; False when there was nothing to hit at that moment."""
        if fault.kind == "memory":
            return _order_memory_fault(job, fault)
        deed = {"kill": self._fixture.kill, "freeze": self._fixture.freeze, "power-off": self._fixture.power_off}
        try:
            return deed[fault.kind](job, fault.rank)
        except ControlError:
            return False  # it ended by itself between the look and the deed

    def _left_over(self, job: Job) -> list[str]:
        deadline = time.monotonic() + QUIET_SECONDS
        while (found := self._fixture.processes(job)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return [f"process {one.pid} of {one.pod} was left over" for one in found]


def _order_memory_fault(job: Job, fault: Fault) -> bool:
    """The rank meets it in its next forward pass; the number of seconds tells one order from another."""
    line = f"rank={fault.rank} at=forward do=raise text=UCE_ERROR seconds={fault.seconds}"
    assert Order.parse(line), "a line that the trainer understands"
    path = job.logs / FILE
    order(job.logs, *(path.read_text().splitlines() if path.exists() else ()), line)
    return True


def _unfinished(window: EventWindow) -> Iterator[str]:
    """Sentences about ranks that did not end at the last step."""
    finished = {int(event["rank"]): int(event["step"]) for event in window.events if event["event"] == "finish"}
    for rank in range(WORLD):
        if finished.get(rank) != ITERATIONS:
            yield f"rank {rank} finished at step {finished.get(rank)}, not {ITERATIONS}"
