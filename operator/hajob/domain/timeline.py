"""The phases of an incident, from the moments at which things happened.

Phases add up to the outage by construction: the moments are put in the order of a recovery, a moment that did not
happen costs nothing, and one that happened before its predecessor (a replacement that was ready before the decision
arrived) makes a phase of zero and not a negative one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Moment(StrEnum):
    """What may happen on the way, in its order."""

    STEP_BEFORE = "stepBefore"
    NOTICED = "noticed"
    STOPPED = "stopped"
    DECIDED = "decided"
    STARTED = "started"
    READY = "ready"
    NAMED = "named"
    RESUMED = "resumed"


PHASE_ENDING_AT = {
    Moment.NOTICED: "Detection",
    Moment.STOPPED: "Stop",
    Moment.DECIDED: "Decision",
    Moment.STARTED: "Placement",
    Moment.READY: "StartUp",
    Moment.NAMED: "Naming",
    Moment.RESUMED: "Recovery",
}
"""Name of the phase that ends at a moment. StartUp is the new process's own time: what is left is control."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase, in whole milliseconds."""

    name: str
    milliseconds: int


def phases(moments: Mapping[Moment, int]) -> list[Phase]:
    """Phases of an incident, in order.

    Args:
        moments: milliseconds since the epoch, as far as they are known. Without STEP_BEFORE the account begins at
            NOTICED: a job that had not finished a step has no step to count from.
    """
    known = [moment for moment in Moment if moment in moments]
    if not known:
        return []
    at = moments[known[0]]
    end = max(moments.values())
    found = []
    for moment in known[1:]:
        until = max(at, min(moments[moment], moments.get(Moment.RESUMED, end)))
        found.append(Phase(PHASE_ENDING_AT[moment], until - at))
        at = until
    return found


def outage_milliseconds(moments: Mapping[Moment, int]) -> int | None:
    """Whole outage, or None while it lasts."""
    if Moment.RESUMED not in moments:
        return None
    begin = moments.get(Moment.STEP_BEFORE, moments.get(Moment.NOTICED))
    return None if begin is None else max(0, moments[Moment.RESUMED] - begin)
