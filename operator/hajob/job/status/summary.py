"""`status.summary`: the words of the columns of kubectl, by which most people know a job.

State is one of few words, reason says why: `Pending NoCapacity`, `Recovering NodeLost`, `Failed ProgramFailed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hajob.api import status as api
from hajob.api.conditions import QUIET_REASONS, ConditionType, Reason, find_condition
from hajob.api.enums import ConditionStatus
from hajob.domain.incidents import IncidentOutcome
from hajob.plan.state import UNTRAINED, JobPhase, JobState
from hajob.sources.pod import PodView

STATE_WORD: Final = {
    JobPhase.NEW: "Pending",
    JobPhase.PENDING: "Pending",
    JobPhase.STARTING: "Starting",
    JobPhase.WARMING: "Starting",
    JobPhase.HELD: "Held",
    JobPhase.GATHERING: "Recovering",
    JobPhase.RESUMING: "Recovering",
    JobPhase.CONFIRMING: "Running",
    JobPhase.SHRINKING: "Recovering",
    JobPhase.EXPANDING: "Expanding",
    JobPhase.MIGRATING: "Migrating",
    JobPhase.SAVING: "Saving",
    JobPhase.DELETED: "Deleting",
}
"""Word of the State column where it is not the phase itself."""

_IMAGE: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})

_WAITS: Final = {
    Reason.QUOTA_EXCEEDED.word: "NoQuota",
    Reason.WAITING_FOR_CAPACITY.word: "NoCapacity",
    Reason.PODS_PENDING.word: "NoCapacity",
    Reason.WAITING_FOR_VOLUME.word: "NoVolume",
    Reason.PODS_NOT_CREATED.word: Reason.PODS_NOT_CREATED.word,
    Reason.WAITING_IN_QUEUE.word: "InQueue",
    Reason.UNSATISFIABLE.word: Reason.UNSATISFIABLE.word,
}
"""Short word for what keeps pods from nodes, by the reason of `Scheduled`."""

_BEFORE_PODS: Final = frozenset({JobPhase.NEW, JobPhase.SUSPENDED, *UNTRAINED})
"""Phases of a job that waits for quota or nodes."""

_AS_CONDITION: Final = {
    JobPhase.HELD: ConditionType.HELD,
    JobPhase.UNPROTECTED: ConditionType.COORDINATOR_READY,
    JobPhase.SHRUNK: ConditionType.SHRUNK,
    JobPhase.FAILED: ConditionType.FAILED,
}
"""The condition whose reason says why a job is in such a phase."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the columns are made of.

    Attributes:
        state: the planner's.
        pods: of ranks and coordinator, without those that are being deleted.
        refused: the job is not accepted.
        size: data-parallel ranks.
        spares: the spare nodes; None where none are asked for.
        num_nodes: nodes wanted.
        goodput: where the time went.
        step_ms: milliseconds of a step, None while it is not known.
        recoverability: what would work now; empty while the job does not train.
        newest: incident.
    """

    state: JobState
    pods: Sequence[PodView]
    refused: bool
    size: api.DataParallel
    spares: api.Spares | None
    num_nodes: int
    goodput: api.Goodput | None
    step_ms: int | None
    recoverability: Sequence[api.ActionRecoverability]
    newest: api.IncidentEntry | None


def build_summary(conditions: Sequence[api.Condition], facts: Facts) -> api.Summary:
    """Build the summary of a job whose conditions are these."""
    state, newest, size = facts.state, facts.newest, facts.size
    reason = _reason_in_a_word(conditions, facts)
    outage = sum(phase.milliseconds for phase in newest.phases) if newest else 0
    nodes = {pod.node_name for pod in facts.pods if pod.is_rank_pod and pod.node_name and not pod.has_ended}
    return api.Summary(
        state=_state_in_a_word(facts, reason),
        reason=reason[:64],
        size=f"{size.current}/{size.desired}",
        recovery=(newest.action or "") if newest else "",
        last_outage=f"{outage / 1000:.1f}s" if newest and newest.outcome is not IncidentOutcome.OPEN else "",
        goodput=f"{facts.goodput.percent_of_wanted}%" if facts.goodput else "",
        step_time=step_time_in_words(facts.step_ms),
        protected=protection_in_a_word(facts.recoverability),
        nodes=f"{len(nodes)}/{facts.num_nodes}",
        spares=f"{facts.spares.ready}/{facts.spares.desired}" if facts.spares is not None else "",
        restarts=str(state.restarts_infrastructure + state.restarts_program),
    )


def _state_in_a_word(facts: Facts, reason: str) -> str:
    state = facts.state
    if facts.refused and not state.attempt:
        return "Refused"
    if state.phase is JobPhase.PENDING and reason == Reason.NO_RANK_STARTED.word:
        return STATE_WORD[JobPhase.STARTING]  # it has everything that a job waits for
    return STATE_WORD.get(state.phase, state.phase.value)


def step_time_in_words(milliseconds: int | None) -> str:
    """Return a step's time as a column shows it: `850ms`, `1.42s`; empty while it is not known."""
    if milliseconds is None:
        return ""
    return f"{milliseconds}ms" if milliseconds < 1000 else f"{milliseconds / 1000:.2f}s"


def protection_in_a_word(evaluated: Sequence[api.ActionRecoverability]) -> str:
    """Return how many of the allowed actions would work: Full, Partial or None; empty before they are evaluated."""
    if not evaluated:
        return ""
    works = sum(one.status != ConditionStatus.FALSE for one in evaluated)
    return "Full" if works == len(evaluated) else "Partial" if works else "None"


def _reason_in_a_word(conditions: Sequence[api.Condition], facts: Facts) -> str:
    state = facts.state
    if facts.refused and not state.attempt:
        return _reason_of_condition(conditions, ConditionType.ACCEPTED)
    if state.phase in _AS_CONDITION:
        return _reason_of_condition(conditions, _AS_CONDITION[state.phase])
    if state.phase in _BEFORE_PODS and (waits := _why_waiting(conditions, facts.pods)):
        return waits
    if (quiet := _reason_of_condition(conditions, ConditionType.RUNNING)) in {one.word for one in QUIET_REASONS}:
        return quiet
    return state.incident.cause.code if state.incident is not None else ""


def _why_waiting(conditions: Sequence[api.Condition], pods: Sequence[PodView]) -> str:
    """Return what a start waits for: a container that cannot start before pods that have no node."""
    # A container that cannot start is somebody's mistake; nodes that are missing may come.
    if trouble := next((pod.trouble_code for pod in pods if pod.trouble_code), ""):
        return "ImagePull" if trouble in _IMAGE else trouble
    if any(pod.has_finished for pod in pods if pod.is_rank_pod):
        return Reason.SCRIPT_ENDED.word
    return _WAITS.get(_reason_of_condition(conditions, ConditionType.SCHEDULED), "")


def _reason_of_condition(conditions: Sequence[api.Condition], kind: ConditionType) -> str:
    found = find_condition(conditions, kind)
    return found.reason if found is not None else ""
