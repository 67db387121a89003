"""The work that TaskD does while every rank waits: asked for once it does, and what was said of it.

The request is part of the assignment, so a coordinator that comes anew asks again; TaskD's side does each one once.
"""

from __future__ import annotations

import json
from typing import Any

from trainer_sidecar.coordinator.conversation.states import State
from trainer_sidecar.coordinator.state.job import Job


def follow_pause_work(job: Job) -> None:
    """Ask for the work of the open pause when every rank waits at the end of its step."""
    work = job.assignment.pause_work if job.assignment is not None and job.setup.is_followed else ""
    if work and work != job.pause.asked and job.conversation.state is State.PAUSED:
        job.pause.note_asked_work(work)
        job.effects.request_call("work", {"work": json.loads(work)})


def apply_pause_result(job: Job, result: dict[str, Any]) -> None:
    """Take in what TaskD has said: `request`, and `codes` by rank."""
    job.pause.note_result(json.dumps(result, sort_keys=True))
    job.effects.note_change(urgent=True)
