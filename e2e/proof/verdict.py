"""What came of a cell: every promise of docs/toy-trainer.md ("Proof"), asked of the neutral witnesses one by one.

The outage is what the ranks wrote down, from the end of the last step that all had in common to the end of the first
one after it. A restart repeats steps, so there it ends with the first step that all ranks of the new attempt have
finished, whatever its number.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from e2e.proof.cells import SAVED, WORLD, Script
from e2e.proof.trail import Event, Reference
from e2e.trainer import proof
from e2e.trainer.layout import Layout

LAYOUT: Final = Layout(2, 4, 1, 2)
PHASES_MAY_DIFFER_BY: Final = 0.1
PHASES: Final = "phases add up to"


@dataclass(frozen=True)
class Gap:
    """The interruption of the training as its ranks saw it; times in nanoseconds, `startup` in seconds."""

    last_step: int
    next_step: int
    begin_ns: int
    end_ns: int
    startup: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_ns - self.begin_ns) / 1e9


@dataclass
class Result:
    """One play of one cell.

    Attributes:
        cell: Its name.
        problems: Sentences; empty when everything was as promised.
        action: What the incident ended with, its way there before it.
        restored: Where the state came from, as the status says.
        outage: Seconds, by the ranks' logs.
        startup: Of it, the start-up of new processes.
        control: The rest.
        phases: Of the incident, milliseconds by name.
        lost_steps: Steps that were done again.
        seconds: What the whole play took.
        tries: How often it was played until the fault met its moment.
    """

    cell: str
    problems: list[str] = field(default_factory=list)
    action: str = ""
    restored: str = ""
    outage: float | None = None
    startup: float | None = None
    control: float | None = None
    phases: dict[str, int] = field(default_factory=dict)
    lost_steps: int = 0
    seconds: float = 0.0
    tries: int = 1

    @property
    def is_good(self) -> bool:
        """Whether everything was as promised."""
        return not self.problems

    @property
    def is_only_late(self) -> bool:
        """Whether nothing was wrong but the sum of the phases."""
        return bool(self.problems) and all(problem.startswith(PHASES) for problem in self.problems)

    def line(self) -> str:
        """The play in one line, with what was wrong below it."""
        times = "" if self.outage is None else f"outage {self.outage:6.2f} s, control {self.control:5.2f} s  "
        words = "ok    " if self.is_good else "FAILED"
        first = f"{words} {self.cell:24s} {times}{self.action} ({self.seconds:.0f} s)"
        return "\n".join([first, *(f"             {problem}" for problem in self.problems)])


@dataclass(frozen=True)
class Evidence:
    """What is known of a play.

    Attributes:
        events: Of the window, from some steps before the fault on.
        before: Processes (pid) of the ranks before the fault.
        incidents: Incidents of the play, newest first.
        checkpoint: The newest step that had been committed when the fault was done.
    """

    events: Sequence[Event]
    before: Mapping[int, int]
    incidents: Sequence[Mapping[str, Any]]
    checkpoint: int


def judge(cell: str, wanted: Script, evidence: Evidence, reference: Reference) -> Result:
    """Ask everything; a question that cannot be asked is a problem, too."""
    result = Result(cell)
    say = result.problems.append
    if len(evidence.incidents) != 1:
        say(f"{len(evidence.incidents)} incidents instead of one")
    if not evidence.incidents:
        return result
    incident = evidence.incidents[-1]
    _incident(result, wanted, incident)
    gap = find_gap(evidence.events)
    if gap is None:
        say("the ranks' logs show no interruption that ended")
        return result
    result.outage, result.startup, result.control = gap.seconds, gap.startup, gap.seconds - gap.startup
    told = sum(result.phases.values()) / 1000
    if abs(told - gap.seconds) > PHASES_MAY_DIFFER_BY:
        say(f"{PHASES} {told:.3f} s, the outage was {gap.seconds:.3f} s: {result.phases}")
    inside = [event for event in evidence.events if gap.begin_ns <= int(event["t"]) <= gap.end_ns]
    result.problems += _processes(wanted, evidence)
    result.problems += _copies(wanted, evidence, inside) if wanted.is_from_copies else []
    result.problems += [] if wanted.is_from_copies else _loaded(wanted, evidence, gap)
    result.problems += reference.differences(list(evidence.events))
    result.lost_steps = max(0, gap.last_step + 1 - gap.next_step)
    if int(incident.get("lostSteps", 0)) != result.lost_steps:
        say(f"the incident says that {incident.get('lostSteps', 0)} steps were lost, it was {result.lost_steps}")
    return result


def _incident(result: Result, wanted: Script, incident: Mapping[str, Any]) -> None:
    """Outcome, action and source as wanted."""
    way = tuple(incident.get("escalatedFrom", ()))
    result.action = " > ".join((*way, str(incident.get("action"))))
    result.restored = str(incident.get("restoredFrom", ""))
    result.phases = {each["name"]: int(each["milliseconds"]) for each in incident.get("phases", ())}
    if incident["outcome"] != "Recovered":
        result.problems.append(f"the incident is {incident['outcome']}")
    if (way, incident.get("action")) != (wanted.by_way_of, wanted.action):
        result.problems.append(f"{result.action} instead of {' > '.join((*wanted.by_way_of, wanted.action))}")
    if result.restored != wanted.restored:
        result.problems.append(f"restored from {result.restored or 'nothing'} instead of {wanted.restored}")


def find_gap(events: Sequence[Event]) -> Gap | None:
    """The interruption in a window; None when there is none, or it has not ended."""
    attempts = sorted({int(event.get("attempt", 0)) for event in events})
    by_attempt = {attempt: [e for e in events if int(e.get("attempt", 0)) == attempt] for attempt in attempts}
    steps = {attempt: proof.common_steps(found, WORLD) for attempt, found in by_attempt.items()}
    trained = [attempt for attempt in attempts if steps[attempt]]
    if len(trained) > 1:
        (last, begin), (after, end) = steps[trained[-2]][-1], steps[trained[-1]][0]
        return Gap(last, after, begin, end, _startup(events, begin, end))
    marks = [int(event["t"]) for event in proof.of(events, "stop", "repair", "rollback", "rebuild")]
    for (last, begin), (after, end) in itertools.pairwise(steps[trained[0]] if trained else []):
        if any(begin <= mark <= end for mark in marks):
            return Gap(last, after, begin, end, _startup(events, begin, end))
    return None


def _startup(events: Sequence[Event], begin: int, end: int) -> float:
    """The longest start-up of a process that trained in the end."""
    started = {event["pid"]: int(event["t"]) for event in proof.of(events, "exec")}
    final = {event["pid"] for event in proof.of(events, "step_end") if int(event["t"]) >= end}
    ready = [event for event in proof.of(events, "first_call") if begin <= int(event["t"]) <= end]
    times = [
        int(event["t"]) - started[event["pid"]] for event in ready if event["pid"] in started and event["pid"] in final
    ]
    return max(times, default=0) / 1e9


def _processes(wanted: Script, evidence: Evidence) -> list[str]:
    """Survivors kept their process, the others have a new one."""
    found, after = [], dict[int, int]()
    for event in proof.of(evidence.events, "step_end"):
        after[int(event["rank"])] = int(event["pid"])
    for rank in range(WORLD):
        is_new = after.get(rank) != evidence.before.get(rank)
        if is_new and rank not in wanted.renewed:
            found.append(f"rank {rank} has a new process, but was not to be restarted")
        elif not is_new and rank in wanted.renewed:
            found.append(f"rank {rank} still has its old process")
    return found


def _copies(wanted: Script, evidence: Evidence, inside: Sequence[Event]) -> list[str]:
    """No step back, no checkpoint opened, shards from the partners."""
    partners = {rank: LAYOUT.partner(rank) for rank in wanted.repaired}
    return [
        *proof.steps_went_back(evidence.events),
        *proof.checkpoints_opened(inside),
        *proof.restored_elsewhere(inside, partners),
    ]


def _loaded(wanted: Script, evidence: Evidence, gap: Gap) -> list[str]:
    """Every rank opened the newest checkpoint and went on from there; one made for it is of the step that was locked.

    That is one more than the last common one when a rank has died inside its update.
    """
    newest = {int(event["rank"]): event for event in proof.of(evidence.events, "load_checkpoint")}
    loaded = min((int(event["t"]) for event in newest.values()), default=gap.end_ns)
    commits = [e for e in proof.of(evidence.events, "save") if e["phase"] == "commit" and int(e["t"]) <= loaded]
    expected = max([evidence.checkpoint, *(int(event["step"]) for event in commits)])
    found = [f"rank {rank} loaded no checkpoint" for rank in range(WORLD) if rank not in newest]
    wrong = {rank: event["step"] for rank, event in newest.items() if event["step"] != expected}
    if wrong:
        found.append(f"checkpoints of steps {wrong} were loaded, step {expected} was the newest")
    if wanted.restored == SAVED and expected < gap.last_step:
        found.append(f"step {expected} was saved, the training stood at {gap.last_step}")
    if gap.next_step != expected + 1:
        found.append(f"it went on with step {gap.next_step} instead of {expected + 1}")
    return found
