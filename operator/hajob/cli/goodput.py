"""How much of a while went into training, as far as a status tells. Pure.

The account of the status counts from the start of the job. What a later while lost is known from its incidents, as long
as the status still has all of them, the job has kept its size, and nothing but incidents kept it from training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hajob.api.status import MAX_INCIDENTS
from hajob.cli.job_view import JobView, outage_milliseconds
from hajob.cli.watch import is_training
from hajob.domain.actions import Action
from hajob.domain.incidents import Purpose
from hajob.sources.reading import mapping, milliseconds_of, parse_whole_number, text

_RESIZES: Final = frozenset({Action.SHRINK, Action.EXPAND})
_ENDS_PODS: Final = frozenset({Purpose.SUSPEND, Purpose.EVICT, "ExpandDue"})
"""Causes after which a job may wait for nodes or start anew for any time, which no incident tells of."""


def goodput_of_last(job: JobView, window_ms: int) -> float | None:
    """Return which share of the last milliseconds that were asked for went into training, in percent.

    None: the job is younger, has ended, or its status does not tell. A figure that might be wrong is none.
    """
    begun, since = milliseconds_of(job.status.get("startTime")), job.now_ms - window_ms
    if window_ms <= 0 or begun is None or begun >= since or job.status.get("completionTime") or not is_training(job):
        return None
    within = [one for one in job.incidents if (milliseconds_of(one.get("endTime")) or job.now_ms) > since]
    data = mapping(job.status.get("dataParallel"))
    is_resized = data.get("current") != data.get("desired") or any(one.get("action") in _RESIZES for one in within)
    all_are_known = len(job.incidents) < MAX_INCIDENTS or len(within) < len(job.incidents)
    if is_resized or not all_are_known or any(_cause_of(one) in _ENDS_PODS for one in within):
        return None
    step_ms = parse_whole_number(job.progress.get("stepMilliseconds")) or 0
    lost = paused = 0
    for one in within:
        # An outage that began before the while counts with the part that lies in it.
        at, outage = milliseconds_of(one.get("startTime")) or since, outage_milliseconds(one)
        inside = min(outage, max(at + outage - since, 0))
        if one.get("action") == Action.PAUSE:
            paused += inside
        else:
            lost += inside
        lost += (parse_whole_number(one.get("lostSteps")) or 0) * step_ms
    wanted = max(window_ms - paused, 1)
    return 100 * max(wanted - lost, 0) / wanted


def _cause_of(incident: Mapping[str, Any]) -> str:
    return text(mapping(incident.get("cause")).get("code"))
