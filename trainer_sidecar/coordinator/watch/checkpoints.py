"""Choice of the agent that checks the checkpoints; whether an attempt's ranks may start (docs/user/checkpoints.md).

The coordinator asks one agent: that of the lowest node rank that can see the checkpoints. It lets the agent repair what
an attempt loads only while no rank of the job can write: before the start, after the last rank of an older attempt has
ended. The agent checks when an incident opens, and again when no rank trains any more: a checkpoint may be new by then.

MindIO says that it has saved when its ranks say so. That is told when the checkpoint is on the volume and whole: the
agent is asked to look once more, and what it does not find within a minute counts as not saved. Where no agent can
look, or the one that is found may be older (another coordinator had MindIO save), the report is passed on and says that
nobody has verified it.
"""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.conversation.conversation import FAILED_FOR_GOOD
from trainer_sidecar.coordinator.state.attempt import AttemptPhase
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.state.roster import RankPod
from trainer_sidecar.coordinator.state.views import ReportedSave
from trainer_sidecar.coordinator.watch import training_end

LOAD_STEP = "HAJOB_LOAD_STEP"
VERIFY_SECONDS = 60.0
"""A shared volume may show other machines what was written only after so long (NFS keeps attributes for 60 s)."""
NOT_SEEN = "no agent sees the checkpoints"
NOT_KNOWN_BEFORE = "another coordinator had MindIO save, so which checkpoints are older than that is not known"


def are_verified(job: Job) -> bool:
    """Return whether the ranks of the opening attempt may start; if not yet, ask an agent to check the checkpoints."""
    if job.attempt.mark_alone():
        follow_checkpoints(job, anew=True)
    if not can_any_agent_look(job):
        return True  # no agent can look: start the job as it would start without Hajob
    return job.checkpoints.found is not None and job.checkpoints.found.attempt == job.attempt.number


def can_any_agent_look(job: Job) -> bool:
    """Return whether an agent can say which checkpoints are there."""
    return _checkpoint_rules(job) is not None and _chosen_pod(job) is not None


def follow_checkpoints(job: Job, *, anew: bool = False) -> None:
    """Update the agents' orders when another agent is chosen, or a new checkpoint makes a check due (`anew`)."""
    pod = _chosen_pod(job)
    uid = pod.uid if pod is not None else ""
    incident = job.incidents.current
    trigger = (incident.incarnation, incident.strategy_sent is not None) if incident is not None else None
    if job.attempt.over_since is not None:  # the final checkpoint decides what a rank's death means
        trigger = (-1 - len(training_end.dead_ranks(job)), True)
    if trigger is not None and job.checkpoints.is_new_trigger(trigger):
        job.effects.touch_pods(uid)
    if uid != job.checkpoints.pod_uid or anew:
        job.effects.touch_pods(job.checkpoints.pod_uid, uid)
        job.checkpoints.set_asked_pod(uid)


def checkpoint_order(job: Job, pod: RankPod) -> pb.CheckpointOrder | None:
    """Return the checkpoint order for this pod's agent, or None."""
    rules = _checkpoint_rules(job)
    if rules is None or pod.uid != job.checkpoints.pod_uid:
        return None
    prepares = job.attempt.phase is AttemptPhase.OPENING and job.attempt.alone
    attempt = job.attempt.number if prepares else 0
    return pb.CheckpointOrder(rules=rules, prepare_attempt=attempt, look=job.checkpoints.look)


def apply_findings(job: Job, pod: RankPod, report: pb.AgentReport) -> None:
    """Take in an agent's findings, if that agent was asked."""
    view = job.checkpoints
    if not report.HasField("checkpoint") or pod.uid != view.pod_uid or report.checkpoint == view.found:
        return
    before = view.found.attempt if view.found is not None else -1
    view.apply_findings(report.checkpoint)
    job.effects.note_change(urgent=view.found is None or view.found.attempt != before)


def load_environment(job: Job) -> dict[str, str]:
    """Return the variables that tell start scripts the verified step."""
    found = job.checkpoints.found
    if found is None or found.attempt != job.attempt.number or found.loaded_step < 0:
        return {}
    return {LOAD_STEP: str(found.loaded_step)}


def checkpoint_problem(job: Job) -> str:
    """Return why a start waits for the checkpoint check; empty when it does not."""
    found = job.checkpoints.found
    waits = job.attempt.phase is AttemptPhase.OPENING and found is not None and found.attempt != job.attempt.number
    return found.problem if waits and found is not None else ""


def _checkpoint_rules(job: Job) -> pb.CheckpointRules | None:
    assignment = job.assignment
    known = assignment is not None and assignment.HasField("checkpoint_rules")
    return assignment.checkpoint_rules if known and assignment is not None else None


def _chosen_pod(job: Job) -> RankPod | None:
    """Return the pod of the lowest node rank that can see the checkpoints."""
    for node_rank in range(job.roster.number_of_nodes if job.roster.seeing else 0):
        for pod in job.roster.pods_of_node(node_rank):
            if pod.uid in job.roster.seeing and pod.is_current and job.is_agent_heard(pod):
                return pod
    return None


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
    if not can_any_agent_look(job):
        why = NOT_SEEN
    elif found is not None and found.problem:
        why = found.problem
    elif not _is_save_on_volume(job, found):
        if job.now - save.since < VERIFY_SECONDS:
            return
        if job.checkpoints.step_before_save is None:
            why = NOT_KNOWN_BEFORE
        else:
            _refuse_save(save.milestone, found)
    save.milestone.unverified = why
    job.checkpoints.forget_reported_save()
    job.mark_milestone_of(save.of, pb.RESULT, save.since, save.milestone)


def _is_save_on_volume(job: Job, found: pb.CheckpointState | None) -> bool:
    """Whether a whole checkpoint is newer than every one before the save, or of the step that all ranks had ended.

    A coordinator that came after the save knows neither; then no rank may have told of a later step.
    """
    if found is None or found.step < 0:
        return False
    before, common = job.checkpoints.step_before_save, job.steps.common_step
    if before is not None and found.step > before:
        return True
    if common is not None:
        return found.step >= common[0]
    told = [view.step for pod in job.roster.pods.values() for view in pod.views.values() if view.step is not None]
    return before is None and bool(told) and found.step >= max(told)


def _refuse_save(milestone: pb.Milestone, found: pb.CheckpointState | None) -> None:
    step = found.step if found is not None else -1
    newest = f"the newest whole one there is of step {step}" if step >= 0 else "there is no whole one there"
    milestone.result_code = FAILED_FOR_GOOD
    milestone.text = (
        f"MindIO says that it has saved ({milestone.text}), and {VERIFY_SECONDS:.0f} s later no new checkpoint is on "
        f"the volume: {newest}"
    )
