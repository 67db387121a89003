"""Results that TaskD has lost: found out by the steps that the ranks make after the strategy.

A manager tries a report four times within a quarter of a second and then drops it, and MindIO believes that it was
heard (docs/protocols/mindcluster.md, "TaskD"). MindIO tells of a success one step after the repair.
"""

from __future__ import annotations

from trainer_sidecar.coordinator.conversation.conversation import EventKind, MindIOEvent
from trainer_sidecar.coordinator.conversation.states import State
from trainer_sidecar.coordinator.state.job import Job

PATIENCE_SECONDS = 20.0
"""MindIO's own report comes within about two seconds of the first step; a manager dials again within a few more."""
TEXT = "TaskD told no result: the ranks train"


def result_by_steps(job: Job) -> MindIOEvent | None:
    """Return the success that the steps show and that TaskD does not tell; None: there is none."""
    memory, incident = job.conversation.memory, job.incidents.current
    if not job.setup.is_followed or job.conversation.state is not State.CONFIRMING or incident is None:
        return None
    sent, common = incident.strategy_sent, job.steps.last_common_step()
    if sent is None or common is None or job.now - sent < PATIENCE_SECONDS:
        return None
    is_common = common[1] > sent  # every rank has ended a step since
    success = MindIOEvent(EventKind.SUCCESS, dict(memory.named), text=TEXT, strategy=memory.strategy)
    return success if is_common else None
