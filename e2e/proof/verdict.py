"""What came of a cell: every promise of docs/internals/toy-trainer.md ("Proof"), asked of neutral observers one by one.

The outage is the one the ranks wrote down (`e2e.trainer.proof.outages`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from e2e.proof.cells import SAVED, WORLD, Script
from e2e.proof.window import Reference
from e2e.trainer import proof
from e2e.trainer.events import Event
from e2e.trainer.layout import Layout
from e2e.trainer.proof import Outage

LAYOUT: Final = Layout(2, 4, 1, 2)
PHASES_MAY_DIFFER_BY: Final = 0.1
PHASES: Final = "phases add up to"


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


def evaluate(cell: str, wanted: Script, evidence: Evidence, reference: Reference) -> Result:
    """Ask everything; a question that cannot be asked is a problem, too."""
    result = Result(cell)
    say = result.problems.append
    if len(evidence.incidents) != 1:
        say(f"{len(evidence.incidents)} incidents instead of one")
    if not evidence.incidents:
        return result
    incident = evidence.incidents[-1]
    _incident(result, wanted, incident)
    outage = find_outage(evidence.events)
    if outage is None:
        say("the ranks' logs show no interruption that ended")
        return result
    result.outage, result.startup, result.control = outage.seconds, outage.startup_seconds, outage.control_seconds
    told, begins = sum(result.phases.values()) / 1000, _begins(wanted, evidence, outage)
    if all(abs(told - (outage.end_ns - at) / 1e9) > PHASES_MAY_DIFFER_BY for at in begins.values()):
        say(f"{PHASES} {told:.3f} s, the outage was {outage.seconds:.3f} s: {result.phases}")
    inside = [event for event in evidence.events if outage.begin_ns <= int(event["t"]) <= outage.end_ns]
    result.problems += _processes(wanted, evidence)
    result.problems += _copies(wanted, evidence, inside) if wanted.is_from_copies else []
    result.problems += [] if wanted.is_from_copies else _loaded(wanted, evidence, outage)
    result.problems += reference.differences(list(evidence.events))
    result.lost_steps = max(0, outage.last_step + 1 - outage.next_step)
    if int(incident.get("lostSteps", 0)) not in {max(0, step + 1 - outage.next_step) for step in begins}:
        say(f"the incident says that {incident.get('lostSteps', 0)} steps were lost, it was {result.lost_steps}")
    return result


def _begins(wanted: Script, evidence: Evidence, outage: Outage) -> dict[int, int]:
    """Steps that the account of an incident may begin with, and their ends (ns): the last common one, or the next.

    That one where all had finished it but ranks that died in it: one that prints nothing tells of its steps every two
    seconds, so nobody can know.
    """
    next_step, before = outage.last_step + 1, evidence.before
    told = [one for one in proof.of(evidence.events, "step_end") if one["step"] == next_step]
    ends = {int(one["rank"]): int(one["t"]) for one in told if one["pid"] == before.get(int(one["rank"]))}
    begins = {outage.last_step: outage.begin_ns}
    is_done_anew = not outage.is_restart and next_step == outage.next_step
    if ends and not is_done_anew and wanted.dying and set(range(WORLD)) - ends.keys() <= wanted.dying:
        begins[next_step] = max(ends.values())
    return begins


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


def find_outage(events: Sequence[Event]) -> Outage | None:
    """The interruption that a cell is about: the newest restart, else the first one; None when none has ended."""
    found = proof.outages(events, WORLD)
    return next((each for each in reversed(found) if each.is_restart), next(iter(found), None))


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


def _loaded(wanted: Script, evidence: Evidence, outage: Outage) -> list[str]:
    """Every rank opened the newest checkpoint and went on from there; one made for it is of the step that was locked.

    That is one more than the last common one when a rank has died inside its update.
    """
    newest = {int(event["rank"]): event for event in proof.of(evidence.events, "load_checkpoint")}
    loaded = min((int(event["t"]) for event in newest.values()), default=outage.end_ns)
    commits = [e for e in proof.of(evidence.events, "save") if e["phase"] == "commit" and int(e["t"]) <= loaded]
    expected = max([evidence.checkpoint, *(int(event["step"]) for event in commits)])
    found = [f"rank {rank} loaded no checkpoint" for rank in range(WORLD) if rank not in newest]
    wrong = {rank: event["step"] for rank, event in newest.items() if event["step"] != expected}
    if wrong:
        found.append(f"checkpoints of steps {wrong} were loaded, step {expected} was the newest")
    if wanted.restored == SAVED and expected < outage.last_step:
        found.append(f"step {expected} was saved, the training stood at {outage.last_step}")
    if outage.next_step != expected + 1:
        found.append(f"it went on with step {outage.next_step} instead of {expected + 1}")
    return found
