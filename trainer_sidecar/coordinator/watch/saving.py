"""A save that MindIO reports is told when the checkpoint is on the volume and whole, and not before.

MindIO says that it has saved when its ranks say so. The agent that looks at the checkpoints is asked to look once more
(docs/checkpoints.md); what it does not find within a minute counts as not saved. Where no agent can look, the report is
passed on and says that nobody has verified it.
"""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.conversation.conversation import FAILED_FOR_GOOD
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.state.views import ReportedSave
from trainer_sidecar.coordinator.watch import checkpoints

VERIFY_SECONDS = 60.0
"""A shared volume may show other machines what was written only after so long (NFS keeps attributes for 60 s)."""
NOT_SEEN = "no agent sees the checkpoints"


def look_for_reported_save(job: Job, milestone: pb.Milestone, at: float) -> None:
    """Have an agent look for the save that MindIO has reported."""
    job.checkpoints.note_reported_save(ReportedSave(milestone, job.incidents.current or job.attempt, at))
    job.effects.touch_pods(job.checkpoints.pod_uid)


def advance_reported_save(job: Job) -> None:
    """Report the save once its checkpoint is found, or once the wait for it is over."""
    save = job.checkpoints.save
    if save is None:
        return
    found, why = job.checkpoints.found, ""
    if not checkpoints.can_any_agent_look(job):
        why = NOT_SEEN
    elif found is not None and found.problem:
        why = found.problem
    elif not _is_save_on_volume(job, found):
        if job.now - save.since < VERIFY_SECONDS:
            return
        _refuse_save(save.milestone, found)
    save.milestone.unverified = why
    job.checkpoints.forget_reported_save()
    job.mark_milestone_of(save.of, pb.RESULT, save.since, save.milestone)


def _is_save_on_volume(job: Job, found: pb.CheckpointState | None) -> bool:
    """Whether a whole checkpoint is newer than every one before the save, or of the step that all ranks had ended."""
    if found is None or found.step < 0:
        return False
    common = job.steps.common_step
    return found.step > job.checkpoints.step_before_save or (common is not None and found.step >= common[0])


def _refuse_save(milestone: pb.Milestone, found: pb.CheckpointState | None) -> None:
    step = found.step if found is not None else -1
    newest = f"the newest whole one there is of step {step}" if step >= 0 else "there is no whole one there"
    milestone.result_code = FAILED_FOR_GOOD
    milestone.text = (
        f"MindIO says that it has saved ({milestone.text}), and {VERIFY_SECONDS:.0f} s later no new checkpoint is on "
        f"the volume: {newest}"
    )
