"""The status of a job, computed as a whole from a snapshot and written once.

Pure: the same snapshot gives the same status, so a status is written only when something in it has changed, and a
transition time changes only with its condition. The parts for people (conditions, incidents, columns) and the part
for the operator (journal) are in one write and can never contradict each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from hajob.api import constants as names
from hajob.api import status as api
from hajob.api.base import format_time
from hajob.api.conditions import ConditionType, Reason, build_condition, find_condition, with_condition
from hajob.api.derived import data_parallel_size, effective_status, with_number_of_nodes
from hajob.api.enums import ConditionStatus, GangPolicy, RecoveryMode
from hajob.api.job import HATrainingJob
from hajob.capacity.pod_group_waits import with_queue_first
from hajob.domain import cause_words
from hajob.domain.batch import Batch
from hajob.domain.checkpoints import describe_checkpoints
from hajob.domain.goodput import Account
from hajob.domain.incidents import IncidentOutcome
from hajob.domain.text import first_of_list
from hajob.job.status import summary
from hajob.job.status.data_parallel import data_parallel, measured_again
from hajob.job.status.freshness import RARELY_SECONDS, is_older_than, without_moving_words
from hajob.job.status.incidents import Record, build_entry, nodes_of_incident
from hajob.job.status.journal import MOVING_MARK, VERSION
from hajob.plan.placements import placements, same_placements
from hajob.plan.policy import layout_from_spec
from hajob.plan.protection import protection_in_words, protection_of_job, without_what_is_met
from hajob.plan.recoverability import recoverable as recoverable_status
from hajob.plan.state import JobPhase, JobState
from hajob.plan.waits import Wait
from hajob.pods.pod_group import queue_name
from hajob.sources.creation import NotCreated
from hajob.sources.pod import PodView
from hajob.sources.shortage import shortage_of_pods, volume_wait_of_pods

RUNNING_REASON: Final = {
    JobPhase.NEW: Reason.NOT_STARTED,
    JobPhase.PENDING: Reason.STARTING,
    JobPhase.STARTING: Reason.STARTING,
    JobPhase.WARMING: Reason.STARTING,
    JobPhase.RUNNING: Reason.TRAINING,
    JobPhase.UNPROTECTED: Reason.TRAINING,
    JobPhase.HELD: Reason.FAULT_HELD,
    JobPhase.GATHERING: Reason.RECOVERING,
    JobPhase.RESUMING: Reason.RECOVERING,
    JobPhase.CONFIRMING: Reason.TRAINING,
    JobPhase.SHRINKING: Reason.RECOVERING,
    JobPhase.SHRUNK: Reason.TRAINING,
    JobPhase.EXPANDING: Reason.TRAINING,
    JobPhase.MIGRATING: Reason.TRAINING,
    JobPhase.PAUSED: Reason.PAUSED,
    JobPhase.SAVING: Reason.RECOVERING,
    JobPhase.ENDING: Reason.FINISHING,
    JobPhase.RESTARTING: Reason.RESTARTING,
    JobPhase.SUSPENDED: Reason.RUNNING_SUSPENDED,
    JobPhase.COMPLETE: Reason.RUNNING_ENDED,
    JobPhase.FAILED: Reason.RUNNING_ENDED,
    JobPhase.DELETED: Reason.RUNNING_ENDED,
}

_FAILURES: Final = {reason.word: reason for reason in Reason if reason.type is ConditionType.FAILED}

FAILED_REASON: Final = {
    **_FAILURES,
    "ProgramFailures": Reason.PROGRAM_FAILED,
    "NoProgress": Reason.PROGRAM_FAILED,
    "RestartBudgetSpent": Reason.RESTARTS_EXHAUSTED,
}
"""Reason of the condition for each of the planner's reasons to give up; NotRecovered for any other."""

START_PROBLEMS: Final = {
    "ErrImagePull": Reason.IMAGE_UNAVAILABLE,
    "ImagePullBackOff": Reason.IMAGE_UNAVAILABLE,
    "InvalidImageName": Reason.IMAGE_UNAVAILABLE,
    "ErrImageNeverPull": Reason.IMAGE_UNAVAILABLE,
    "CreateContainerConfigError": Reason.CONTAINER_NOT_STARTED,
    "CreateContainerError": Reason.CONTAINER_NOT_STARTED,
    "RunContainerError": Reason.CONTAINER_NOT_STARTED,
    "ContainerCannotRun": Reason.CONTAINER_NOT_STARTED,
    "StartError": Reason.CONTAINER_NOT_STARTED,
}
"""Reason for which a start was given up, by the code of a container in trouble."""
RECOVERABLE_REASON: Final = {
    ConditionStatus.TRUE: Reason.RECOVERABLE,
    ConditionStatus.FALSE: Reason.UNRECOVERABLE,
    ConditionStatus.UNKNOWN: Reason.NOT_ALL_KNOWN,
}

TABLE_NOT_WRITTEN: Final = "RankTableNotWritten"
"""What an agent calls a rank table that it cannot write."""
MESSAGE_LIMIT: Final = 1024
"""Characters of a condition's message that lists things."""
_DEFAULT_SCHEDULER: Final = "default-scheduler"
"""Kubernetes' own; it is there."""
WITH_RESULT: Final = frozenset({JobPhase.COMPLETE, JobPhase.FAILED})
WITH_COORDINATOR_AT_REST: Final = WITH_RESULT | {JobPhase.SUSPENDED}


@dataclass(frozen=True, slots=True)
class CoordinatorView:
    """Known state of the coordinator.

    Attributes:
        connected: the operator has a stream to it.
        serving: its MindIO controller serves.
        problem: why its controller does not serve, in words.
        shares_node: it runs on a node of one of its ranks.
        problems: what MindIO cannot work with, by its word (docs/protocols/sidecar.md).
    """

    connected: bool = False
    serving: bool = False
    problem: str = ""
    shares_node: bool = False
    problems: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Input of a status."""

    job: HATrainingJob
    state: JobState
    fence: int
    now_ms: int
    step: int = -1
    pods: Sequence[PodView] = ()
    not_created: NotCreated | None = None
    spares_ready: int = 0
    spares_not_created: NotCreated | None = None
    coordinator: CoordinatorView = field(default_factory=CoordinatorView)
    accepted: Reason = Reason.NOT_CHECKED
    accepted_message: str = ""
    spec_not_read: str = ""
    warnings: str = ""
    crd_is_older: str = ""
    failed_reason: str = ""
    failed_message: str = ""
    record: Record | None = None
    settled: Record | None = None
    journal: str = ""
    recoverability: Sequence[api.ActionRecoverability] = ()
    goodput: api.Goodput | None = None
    start_waits: str = ""
    to_leave: Sequence[str] = ()
    wait: Wait | None = None
    step_ms: int | None = None
    batch: Batch | None = None
    held_back: str = ""
    unsatisfiable: str = ""
    shortfall: str = ""
    gang_wait: str = ""
    checkpoint_step: int | None = None
    queue_wait: str = ""
    queue_stops: bool = False
    spares_wait: str = ""
    rank_table_wait: str = ""


def to_status_time(milliseconds: int) -> datetime:
    """Convert milliseconds to a time of the status."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def build_status(snapshot: Snapshot) -> api.HATrainingJobStatus:
    """Build the whole status."""
    job, state = snapshot.job, snapshot.state
    previous = job.status
    now = to_status_time(snapshot.now_ms)
    incidents = _build_incidents(snapshot)
    protection = protection_of_job(snapshot.recoverability)
    conditions = _build_conditions(snapshot, protection, now)
    ended = state.phase in WITH_RESULT
    return api.HATrainingJobStatus(
        observed_generation=job.metadata.generation,
        conditions=conditions,
        summary=_summary_of_status(snapshot, incidents, conditions),
        effective=effective_status(job.spec),
        data_parallel=_data_parallel(snapshot),
        spares=_build_spares(snapshot),
        incarnation=state.incarnation,
        fence=snapshot.fence,
        journal_version=VERSION,
        journal=snapshot.journal,
        start_time=previous.start_time or (now.replace(microsecond=0) if state.attempt else None),
        completion_time=(previous.completion_time or now.replace(microsecond=0)) if ended else None,
        restarts=api.Restarts(infrastructure=state.restarts_infrastructure, program=state.restarts_program),
        takeovers=api.Takeovers(count=state.takeovers, last_milliseconds=state.takeover_ms),
        progress=_build_progress(snapshot, now),
        goodput=snapshot.goodput,
        recoverability=without_what_is_met(snapshot.recoverability),
        protection=protection,
        incidents=incidents,
    )


def build_on_hold(job: HATrainingJob, reason: Reason, message: str, fence: int, now_ms: int) -> api.HATrainingJobStatus:
    """Build the status of a job that the operator leaves alone: its last known values, and why."""
    now, generation = to_status_time(now_ms), job.metadata.generation
    conditions = job.status.conditions
    for one in (reason, Reason.NOT_EVALUATED):
        conditions = with_condition(conditions, build_condition(one, now, message=message, generation=generation))
    summary = (job.status.summary or api.Summary()).model_copy(update={"state": "OnHold"})
    known = {"conditions": conditions, "summary": summary, "fence": fence, "recoverability": (), "protection": None}
    return job.status.model_copy(update=known)


def _build_progress(snapshot: Snapshot, now: datetime) -> api.Progress | None:
    step = snapshot.step if snapshot.step >= 0 else snapshot.state.step
    if step < 0:
        return None
    saved, before, seen = snapshot.checkpoint_step, snapshot.job.status.progress, now.replace(microsecond=0)
    # A coordinator that has just taken another one's place knows no step yet: the training is where it was seen.
    if snapshot.step < 0 and before is not None and before.step >= step:
        step, seen = before.step, before.observed_time
    known = before is not None and saved is not None and before.checkpoint_step == saved
    since = before.checkpoint_time if known and before is not None else seen
    return api.Progress(
        step=step,
        observed_time=seen,
        step_milliseconds=snapshot.step_ms,
        checkpoint_step=saved,
        checkpoint_time=since if saved is not None else None,
    )


def _build_incidents(snapshot: Snapshot) -> tuple[api.IncidentEntry, ...]:
    known = snapshot.job.status.incidents
    if snapshot.record is None:
        return known
    records = [record for record in (snapshot.record, snapshot.settled) if record is not None]
    spec = snapshot.job.spec
    before = {incident.incarnation: incident for incident in known}
    fresh = [
        build_entry(
            record,
            layout_from_spec(with_number_of_nodes(spec, record.incident.nodes)),
            nodes_of_incident(record.incident, snapshot.pods, before.get(record.incident.number)),
            before.get(record.incident.number),
            snapshot.now_ms,
        )
        for record in records
    ]
    numbers = {incident.incarnation for incident in fresh}
    rest = [incident for incident in known if incident.incarnation not in numbers]
    return (*fresh, *rest)[: api.MAX_INCIDENTS]


def _build_conditions(
    snapshot: Snapshot, protection: api.Protection | None, now: datetime
) -> tuple[api.Condition, ...]:
    conditions = snapshot.job.status.conditions
    for reason, message in _reasons_of_conditions(snapshot, protection):
        # A job that never asked for spare nodes has nothing to say of them.
        if reason is Reason.SPARES_NOT_ASKED and find_condition(conditions, ConditionType.SPARES_READY) is None:
            continue
        new = build_condition(reason, now, message=message, generation=snapshot.job.metadata.generation)
        conditions = with_condition(conditions, new)
    return conditions


def _reasons_of_conditions(snapshot: Snapshot, protection: api.Protection | None) -> list[tuple[Reason, str]]:
    state, mode = snapshot.state, snapshot.job.spec.recovery.mode
    return [
        _accepted_reason(snapshot),
        _scheduled_reason(snapshot),
        _running_reason(snapshot),
        _recoverable_reason(snapshot, protection),
        _coordinator_reason(snapshot),
        (Reason.FEWER_RANKS if state.shrunk or state.smaller else Reason.FULL_SIZE, ""),
        _spares_reason(snapshot),
        _degraded_reason(snapshot),
        _held_reason(mode, snapshot),
        _suspended_reason(snapshot),
        _complete_reason(snapshot),
        _failed_reason(snapshot),
    ]


_STARTS: Final = frozenset({JobPhase.STARTING, JobPhase.WARMING})
_QUIET_PHASES: Final = {
    Reason.NO_RANK_STARTED: _STARTS | {JobPhase.PENDING, JobPhase.RESTARTING},
    Reason.NO_STEP_ENDED: _STARTS | {phase for phase, reason in RUNNING_REASON.items() if reason is Reason.TRAINING},
}
"""Phases in which ranks should be started, and in which they should end steps."""


def _running_reason(snapshot: Snapshot) -> tuple[Reason, str]:
    """Return whether the ranks train, and what holds them up; one that ends no step is said not to."""
    phase, told = snapshot.state.going_on, _start_in_words(snapshot)
    for reason, phases in _QUIET_PHASES.items():
        quiet = snapshot.coordinator.problems.get(reason.word, "")
        if quiet and phase in phases:
            return reason, "; ".join((quiet, *told))[:MESSAGE_LIMIT]
    return RUNNING_REASON[phase], "; ".join(told)


def _recoverable_reason(snapshot: Snapshot, protection: api.Protection | None) -> tuple[Reason, str]:
    """Return how well the job is protected; unmet preconditions count, and those that cannot be seen do not."""
    if protection is None:
        return Reason.NOT_EVALUATED, ""
    if untold := snapshot.coordinator.problems.get(Reason.COPIES_NOT_REGISTERED.word):
        return Reason.COPIES_NOT_REGISTERED, untold
    reason = RECOVERABLE_REASON[recoverable_status(list(snapshot.recoverability))]
    return reason, protection_in_words(protection)[:MESSAGE_LIMIT]


def _accepted_reason(snapshot: Snapshot) -> tuple[Reason, str]:
    """Return whether the spec is served, and what is noticed about it."""
    if snapshot.spec_not_read:
        return Reason.SPEC_NOT_READ, f"{Reason.SPEC_NOT_READ.sentence} {snapshot.spec_not_read}"
    return snapshot.accepted, snapshot.warnings if snapshot.accepted is Reason.VALID else snapshot.accepted_message


def _held_reason(mode: RecoveryMode, snapshot: Snapshot) -> tuple[Reason, str]:
    """Return why Hajob holds faults: the spec's mode first, then a missing controller, then the breaker."""
    by_user = {RecoveryMode.HOLD: Reason.MODE_HOLD, RecoveryMode.OBSERVE: Reason.MODE_OBSERVE}
    if mode in by_user:
        return by_user[mode], ""
    if snapshot.state.phase is JobPhase.HELD:
        return Reason.WAITS_FOR_CONTROLLER, ""
    held_back = snapshot.held_back[:MESSAGE_LIMIT]
    return (Reason.BREAKER_OPEN, held_back) if held_back else (Reason.NOT_HELD, "")


def _complete_reason(snapshot: Snapshot) -> tuple[Reason, str]:
    """Return whether the ranks completed the job; a start script that disagrees is reported with it."""
    if snapshot.state.phase is not JobPhase.COMPLETE:
        return Reason.NOT_COMPLETE, ""
    said = next((pod for pod in snapshot.pods if pod.last_word), None)
    return (Reason.SCRIPT_DISAGREES, f"pod {said.name}: {said.last_word}") if said else (Reason.ALL_RANKS_FINISHED, "")


def _degraded_reason(snapshot: Snapshot) -> tuple[Reason, str]:
    """Return why the job is degraded: causes that concern all of it first."""
    if snapshot.crd_is_older:
        return Reason.CRD_OLDER, snapshot.crd_is_older[:MESSAGE_LIMIT]
    if snapshot.job.unread_fields:
        return Reason.FIELDS_NOT_READ, ", ".join(snapshot.job.unread_fields)[:MESSAGE_LIMIT]
    if snapshot.to_leave and snapshot.state.unmoved:
        told = f"still on {', '.join(snapshot.to_leave)}, {snapshot.state.unmoved}; Hajob tries again within 10 minutes"
        return Reason.MOVE_FAILED, told[:MESSAGE_LIMIT]
    if snapshot.queue_wait and not snapshot.queue_stops and snapshot.pods:
        return Reason.QUOTA_UNKNOWN, snapshot.queue_wait[:MESSAGE_LIMIT]
    if full := _full_volume_in_words(snapshot):
        return Reason.CHECKPOINT_VOLUME_FULL, full[:MESSAGE_LIMIT]
    if rule_off := snapshot.coordinator.problems.get(Reason.LOG_RULE_OFF.word):
        return Reason.LOG_RULE_OFF, rule_off[:MESSAGE_LIMIT]
    return Reason.NOT_DEGRADED, ""


def _full_volume_in_words(snapshot: Snapshot) -> str:
    """Return that the checkpoints' volume is full; of a failed job what was seen last, as nobody looks any more."""
    word = Reason.CHECKPOINT_VOLUME_FULL.word
    before = find_condition(snapshot.job.status.conditions, ConditionType.DEGRADED)
    if snapshot.state.phase is JobPhase.FAILED and before is not None and before.reason == word:
        return before.message
    return snapshot.coordinator.problems.get(word, "")


def _checkpoints_in_words(snapshot: Snapshot) -> str:
    """Return what is loaded instead of a refused checkpoint, or why none can be verified, while the ranks start."""
    if RUNNING_REASON[snapshot.state.going_on] not in {Reason.STARTING, Reason.RESTARTING}:
        return ""
    if snapshot.coordinator.serving and snapshot.coordinator.problem:
        return snapshot.coordinator.problem
    if snapshot.record is None or snapshot.record.outcome is not IncidentOutcome.OPEN:
        return ""
    found = snapshot.record.restoration
    return describe_checkpoints(found.refused, found.loaded_step) if found.refused else ""


def _start_in_words(snapshot: Snapshot) -> list[str]:
    """Return what the start waits for, what is loaded, and why the job does not train."""
    why = _why_not_training(snapshot.state) or _trouble_of_start(snapshot)
    table = _table_in_words(snapshot)
    return [*filter(None, (snapshot.start_waits, table, _checkpoints_in_words(snapshot), why))]


def _table_in_words(snapshot: Snapshot) -> str:
    """Return why ranks have no rank table to start with, while they start."""
    if RUNNING_REASON[snapshot.state.going_on] not in _NOT_TRAINING:
        return ""
    return snapshot.rank_table_wait or snapshot.coordinator.problems.get(TABLE_NOT_WRITTEN, "")


def _trouble_of_start(snapshot: Snapshot) -> str:
    """Return why a pod with a node does not start, where the planner has no fact of it."""
    if RUNNING_REASON[snapshot.state.going_on] not in {Reason.STARTING, Reason.RESTARTING}:
        return ""
    waiting = (pod for pod in snapshot.pods if pod.phase == "Pending" and pod.node_name and pod.trouble)
    return next((f"pod {pod.name} on {pod.node_name}: {pod.trouble}" for pod in waiting), "")


_NOT_TRAINING: Final = frozenset({Reason.STARTING, Reason.RESTARTING, Reason.RECOVERING, Reason.FAULT_HELD})


def _why_not_training(state: JobState) -> str:
    """Return what delays the start, or the cause of the recovery; empty while the job trains."""
    if RUNNING_REASON[state.going_on] not in _NOT_TRAINING:
        return ""
    if state.incident is None or not state.incident.cause.message:
        return state.problem
    # What an action came to says nothing without the cause: `recover failed: 406 do last repair failed!`.
    line = state.problem if "\n" not in state.problem else ""
    told = cause_words.report_of_cause(state.incident.cause, *filter(None, (line,)))
    return told if line == state.problem else f"{told}\n{state.problem}"


def _scheduled_reason(snapshot: Snapshot) -> tuple[Reason, str]:
    pods, refused = [pod for pod in snapshot.pods if not pod.is_spare_pod], snapshot.not_created
    # Before the start nobody has asked the queue yet, if the server cannot even say whether it accepts the pods.
    if snapshot.queue_wait and not pods and (refused is None or snapshot.state.phase is not JobPhase.NEW):
        return Reason.WAITING_IN_QUEUE, snapshot.queue_wait[:MESSAGE_LIMIT]
    if refused is not None:
        return (Reason.QUOTA_EXCEEDED if refused.over_quota else Reason.PODS_NOT_CREATED), refused.message
    if not pods:
        return Reason.NO_PODS, ""
    if snapshot.unsatisfiable and not any(pod.node_name for pod in pods if pod.is_rank_pod):
        return Reason.UNSATISFIABLE, f"can never start: {snapshot.unsatisfiable}"[:MESSAGE_LIMIT]
    wait, since = snapshot.state.waiting, ""
    if wait is not None:
        since = f"waiting since {format_time(to_status_time(wait.since_ms).replace(microsecond=0))}"
    if volume := volume_wait_of_pods(pods):
        return Reason.WAITING_FOR_VOLUME, "; ".join(filter(None, (volume, since)))[:MESSAGE_LIMIT]
    if missing := snapshot.gang_wait or shortage_of_pods(pods, None):
        first = (snapshot.gang_wait, snapshot.shortfall) if snapshot.gang_wait else (snapshot.shortfall, missing)
        told = "; ".join(filter(None, (*first, since)))
        return Reason.WAITING_FOR_CAPACITY, told[:MESSAGE_LIMIT]
    if wait is not None and wait.released:
        told = "; ".join(
            filter(None, (snapshot.shortfall, f"{since} for nodes for all rank pods; its chips are released"))
        )
        return Reason.WAITING_FOR_CAPACITY, told[:MESSAGE_LIMIT]
    waiting = sum(1 for pod in pods if not pod.node_name)
    if not waiting:
        gone = _missing_rank_pods(snapshot) if snapshot.state.phase is JobPhase.HELD else ()
        return (
            (Reason.PODS_MISSING, f"node ranks without a pod: {first_of_list(gone)}")
            if gone
            else (Reason.ALL_PLACED, "")
        )
    return Reason.PODS_PENDING, _why_silent(snapshot, pods, waiting)


def _why_silent(snapshot: Snapshot, pods: Sequence[PodView], waiting: int) -> str:
    """Return that so many of these pods have no node and nobody has said why, and who may be away."""
    told = f"pods without a node yet: {waiting} of {len(pods)}"
    by_volcano = snapshot.job.spec.scheduling.gang_policy is GangPolicy.VOLCANO
    if by_volcano and any(pod.is_rank_pod and not pod.node_name for pod in pods):
        words = f"{told}, and Volcano has not said why: does its scheduler run?"
        return with_queue_first(queue_name(snapshot.job), words)
    scheduler = snapshot.job.spec.template["spec"].get("schedulerName") or _DEFAULT_SCHEDULER
    if scheduler != _DEFAULT_SCHEDULER:
        told += f", and no scheduler has said why: does one named {scheduler} run (spec.template.spec.schedulerName)?"
    return told


def _missing_rank_pods(snapshot: Snapshot) -> tuple[int, ...]:
    """Return the node ranks that have no pod and should have one."""
    there = {(pod.node_rank, pod.incarnation) for pod in snapshot.pods if pod.is_rank_pod}
    wanted = placements(snapshot.state, snapshot.job.spec.num_nodes).ranks
    return tuple(sorted(one.node_rank for one in wanted if (one.node_rank, one.incarnation) not in there))


def _coordinator_reason(snapshot: Snapshot) -> tuple[Reason, str]:
    view = snapshot.coordinator
    if snapshot.state.phase in WITH_COORDINATOR_AT_REST:
        return Reason.COORDINATOR_NOT_NEEDED, ""  # the operator ended it, so its silence is no problem
    if snapshot.state.phase is JobPhase.UNPROTECTED:
        reason = Reason.CONTROLLER_LOST if snapshot.state.blind else Reason.TAKING_OVER
        return reason, view.problem
    if view.serving:
        reason = Reason.COORDINATOR_SHARES_NODE if view.shares_node else Reason.COORDINATOR_SERVING
        told = (view.problems.get(code, "") for code in ("AgentsUnreachable", "StrangersHeld"))
        return reason, "; ".join(filter(None, told))[:MESSAGE_LIMIT]
    # Of one that is being deleted, as at each restart of the job, nobody expects an answer.
    pods = (pod for pod in snapshot.pods if pod.role == names.ROLE_COORDINATOR and not pod.deleting)
    pod = next(pods, None)
    if pod is None:
        return Reason.COORDINATOR_ABSENT, ""
    if not pod.node_name:
        return Reason.COORDINATOR_PENDING, pod.unschedulable
    if view.problems.get(Reason.IMAGE_UNUSABLE.word):
        return Reason.CONTROLLER_NOT_STARTED, view.problems[Reason.IMAGE_UNUSABLE.word]
    if view.connected or pod.phase != "Running":
        return Reason.COORDINATOR_STARTING, pod.trouble or view.problem
    return Reason.COORDINATOR_UNREACHABLE, pod.trouble or view.problem


def _suspended_reason(snapshot: Snapshot) -> tuple[Reason, str]:
    state = snapshot.state
    is_asked, in_queue = snapshot.job.spec.suspend, bool(snapshot.queue_wait)
    if state.phase is JobPhase.SUSPENDED:
        ending, ended = (
            (Reason.SUSPENDING, Reason.SUSPENDED) if is_asked or not in_queue else (Reason.EVICTING, Reason.EVICTED)
        )
        reason = ending if snapshot.pods else ended
        return reason, f"{reason.sentence} {state.problem}".rstrip()
    if in_queue and snapshot.queue_stops and state.attempt and state.phase not in WITH_RESULT:
        return Reason.EVICTING, f"{Reason.EVICTING.sentence} {snapshot.queue_wait}"[:MESSAGE_LIMIT]
    if not is_asked or state.phase in WITH_RESULT:
        return Reason.NOT_SUSPENDED, ""
    return Reason.SUSPENDING, "Hajob saves the training first." if state.phase is JobPhase.SAVING else ""


def _failed_reason(snapshot: Snapshot) -> tuple[Reason, str]:
    if snapshot.state.phase is not JobPhase.FAILED:
        return Reason.NOT_FAILED, ""
    said = find_condition(snapshot.job.status.conditions, ConditionType.FAILED)
    if said is not None and said.status is ConditionStatus.TRUE:
        # the pods that showed the reason are gone by now
        return _FAILURES.get(said.reason, Reason.NOT_RECOVERED), said.message
    trouble = next((pod.trouble_code for pod in snapshot.pods if pod.trouble_code in START_PROBLEMS), "")
    reason = START_PROBLEMS.get(trouble) or FAILED_REASON.get(snapshot.failed_reason, Reason.NOT_RECOVERED)
    return reason, snapshot.failed_message


def _data_parallel(snapshot: Snapshot) -> api.DataParallel:
    desired = data_parallel_size(snapshot.job.spec)
    return data_parallel(desired, snapshot.state, snapshot.wait, snapshot.batch, snapshot.step_ms)


def _build_spares(snapshot: Snapshot) -> api.Spares | None:
    desired = snapshot.job.spec.scheduling.num_spare_nodes
    return api.Spares(desired=desired, ready=snapshot.spares_ready) if desired else None


def _spares_reason(snapshot: Snapshot) -> tuple[Reason, str]:
    spares = _build_spares(snapshot)
    if spares is None:
        return Reason.SPARES_NOT_ASKED, ""
    told = f"{spares.ready} of {spares.desired} spare nodes are reserved"
    if spares.ready >= spares.desired:
        return Reason.SPARES_READY, told
    if snapshot.spares_not_created is not None:
        return Reason.SPARES_NOT_CREATED, f"{told}; {snapshot.spares_not_created.message}"[:MESSAGE_LIMIT]
    if snapshot.state.phase is not JobPhase.RUNNING:
        return Reason.SPARES_AFTER_START, f"{told}; the others follow once the job trains at full size"
    missing = shortage_of_pods([pod for pod in snapshot.pods if pod.is_spare_pod], None)
    return Reason.SPARES_PENDING, "; ".join(filter(None, (told, snapshot.spares_wait, missing)))[:MESSAGE_LIMIT]


def _summary_of_status(
    snapshot: Snapshot, incidents: Sequence[api.IncidentEntry], conditions: Sequence[api.Condition]
) -> api.Summary:
    pods = [pod for pod in snapshot.pods if not pod.is_spare_pod and not pod.deleting]
    return summary.build_summary(
        conditions,
        summary.Facts(
            state=snapshot.state,
            pods=pods,
            refused=snapshot.accepted in {Reason.POD_REFUSED, Reason.INVALID},
            size=_data_parallel(snapshot),
            spares=_build_spares(snapshot),
            num_nodes=snapshot.job.spec.num_nodes,
            goodput=snapshot.goodput,
            step_ms=snapshot.step_ms,
            recoverability=snapshot.recoverability,
            newest=incidents[0] if incidents else None,
        ),
    )


def is_worth_a_write(old: api.HATrainingJobStatus, new: api.HATrainingJobStatus) -> bool:
    """Return whether a status is worth a write: more has changed than the leader and values that move by themselves."""
    moving: dict[str, object] = {"progress": new.progress, "goodput": new.goodput, "fence": new.fence}
    moving["data_parallel"] = measured_again(old.data_parallel, new.data_parallel)
    if is_older_than(old, new, RARELY_SECONDS):
        return True
    if _words_of_summary(old) != _words_of_summary(new):
        return True
    same_journal = _without_moving_part(old.journal) == _without_moving_part(new.journal)
    still = old.model_copy(
        update={**moving, "summary": None, "journal": "", "conditions": without_moving_words(old.conditions)}
    )
    seen = new.model_copy(update={"summary": None, "journal": "", "conditions": without_moving_words(new.conditions)})
    return not same_journal or still != seen


def _words_of_summary(status: api.HATrainingJobStatus) -> tuple[str, str]:
    return (status.summary.state, status.summary.reason) if status.summary is not None else ("", "")


def is_status_urgent(before: JobState, after: JobState, num_nodes: int) -> bool:
    """Return whether the status is written at once.

    That is so when the reason of Running changes, or when pods to make or delete wait for the write.
    """
    turned = (before.phase is JobPhase.HELD) is not (after.phase is JobPhase.HELD)
    turned = turned or RUNNING_REASON[before.going_on] is not RUNNING_REASON[after.going_on]
    return turned or not same_placements(before, after, num_nodes)


def _without_moving_part(journal: str) -> str:
    return journal.partition(MOVING_MARK)[0]


def build_goodput(account: Account | None, now_ms: int) -> api.Goodput | None:
    """Return where the job's time went, in whole seconds; None before there is an account."""
    if account is None:
        return None
    until = account.book_until(now_ms)
    buckets = tuple(
        api.GoodputBucket(name=bucket.value, seconds=milliseconds // 1000)
        for bucket, milliseconds in until.booked.items()
        if milliseconds >= 1000
    )
    return api.Goodput(percent=until.percent_training, percent_of_wanted=until.percent_of_wanted, buckets=buckets)
