"""The phases of an incident, from the times at which its marks were reached.

Phases add up to the outage by construction: the marks are put in the order of a recovery, a mark that was not reached
costs nothing, and one that was reached before its predecessor (a replacement that was ready before the decision
arrived) makes a phase of zero and not a negative one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Mark(StrEnum):
    """A point of a recovery, in order."""

    STEP_BEFORE = "stepBefore"
    NOTICED = "noticed"
    STOPPED = "stopped"
    DECIDED = "decided"
    STARTED = "started"
    READY = "ready"
    NAMED = "named"
    RESUMED = "resumed"


PHASE_ENDING_AT = {
    Mark.NOTICED: "Detection",
    Mark.STOPPED: "Stop",
    Mark.DECIDED: "Decision",
    Mark.STARTED: "Placement",
    Mark.READY: "StartUp",
    Mark.NAMED: "Naming",
    Mark.RESUMED: "Recovery",
}
"""Name of the phase that ends at a mark. StartUp is the new process's own time: what is left is control."""


@dataclass(frozen=True, slots=True)
class TimedPhase:
    """One phase, in whole milliseconds."""

    name: str
    milliseconds: int


def phases_of_incident(marks: Mapping[Mark, int]) -> list[TimedPhase]:
    """Return the phases of an incident, in order.

    Args:
        marks: milliseconds since the epoch, as far as they are known. Without STEP_BEFORE the account begins at
            NOTICED: a job that had not finished a step has no step to count from.
    """
    known = [mark for mark in Mark if mark in marks]
    if not known:
        return []
    at = marks[known[0]]
    end = max(marks.values())
    found = []
    for mark in known[1:]:
        until = max(at, min(marks[mark], marks.get(Mark.RESUMED, end)))
        found.append(TimedPhase(PHASE_ENDING_AT[mark], until - at))
        at = until
    return found


def outage_milliseconds(marks: Mapping[Mark, int]) -> int | None:
    """Return the whole outage, or None while it lasts."""
    if Mark.RESUMED not in marks:
        return None
    begin = marks.get(Mark.STEP_BEFORE, marks.get(Mark.NOTICED))
    return None if begin is None else max(0, marks[Mark.RESUMED] - begin)
