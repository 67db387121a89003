"""Turns observations of a job into events of the planner: the only place that does. Pure.

Occurrences are reported once, when seen: `events_of_pod`, `events_of_coordinator_pod`, `events_of_report`. States
can be read at any time, and are reported until the job's state shows them, so that no change is missed while no
operator ran: all the others. None of them decides; the table does, and ignores irrelevant events.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from hajob.api.base import format_time
from hajob.api.conditions import Reason
from hajob.api.enums import CordonPolicy, RestartCheckpointPolicy
from hajob.api.spec import HATrainingJobSpec
from hajob.domain.facts import Fact, FactKind
from hajob.plan import events
from hajob.plan.policy import Policy
from hajob.plan.state import ENDED, UNTRAINED, JobPhase, JobState
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources import pod as pod_source
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView
from hajob.sources.report import Observed, ReportReading, finished_nodes, launchers_ready, read_report
from hajob.sources.workload import QueueTurn

Pods = Mapping[int, PodView]
"""Node rank to the pod that serves it: the one that should exist, as it is."""

UNWORKABLE: Final = frozenset({Reason.IMAGE_UNUSABLE.word, Reason.MINDIO_TLS_MISMATCH.word})
"""Problems with which a job never trains, however often it is started."""
_AT_REST: Final = frozenset({JobPhase.SUSPENDED, JobPhase.SAVING, JobPhase.ENDING, *ENDED})
"""Phases in which a suspend has been followed, is being followed, or has nothing to act on: the job is about to end."""


# ----------------------------------------------------------------------------------------------------- the job


def restart_asked(spec: HATrainingJobSpec) -> str:
    """Return the restart that the spec requests; empty for none."""
    return format_time(spec.restart_request_time) if spec.restart_request_time else ""


def events_of_spec(
    state: JobState, spec: HATrainingJobSpec, restart_seen: str, turn: QueueTurn = QueueTurn.NO_QUEUE, why: str = ""
) -> Iterator[events.JobEvent]:
    """Yield requests of the spec, and of the job's queue, that are not in the state yet.

    Args:
        state: of the planner.
        spec: of the job.
        restart_seen: the newest handled restart.
        turn: whether the queue lets the job have pods.
        why: why it does not, in its words.
    """
    phase, asked = state.phase, restart_asked(spec)
    if asked and asked != restart_seen and phase is not JobPhase.NEW:
        yield events.RestartRequested(must_save=spec.restart_checkpoint_policy is RestartCheckpointPolicy.REQUIRED)
    if phase is JobPhase.NEW:
        if spec.suspend:
            yield events.SuspendRequested()
        elif turn.lets_start:
            yield events.Accepted()
    elif phase is JobPhase.SUSPENDED:
        if not spec.suspend and turn.lets_start:
            yield events.ResumeRequested()
    elif spec.suspend and phase not in _AT_REST:
        yield events.SuspendRequested()
    # A queue that is silent stops nothing: only its own word does.
    elif turn.asks_to_stop and phase not in _AT_REST:
        yield events.SuspendRequested(message=why or "it has no quota")


def events_of_moves(
    state: JobState, spec: HATrainingJobSpec, pods: Pods, drained: Iterable[PodView]
) -> Iterator[events.MigrateRequested]:
    """Yield the request to leave nodes that the spec excludes, or that are cordoned, while the training is whole.

    Args:
        state: of the job.
        spec: of the job.
        pods: that serve, by node rank.
        drained: those of the job whose nodes somebody wants empty.
    """
    excluded = set(spec.scheduling.excluded_node_names)
    if spec.recovery.cordon_policy is CordonPolicy.MIGRATE:
        excluded.update(pod.node_name for pod in drained if pod.node_rank in pods)
    if state.phase is not JobPhase.RUNNING or not excluded:
        return
    moved = tuple(sorted(node_rank for node_rank, pod in pods.items() if pod.node_name in excluded))
    if moved:
        left = sorted({pods[node_rank].node_name for node_rank in moved})
        why = f"{', '.join(left)} cordoned or excluded by spec.scheduling.excludedNodeNames"
        yield events.MigrateRequested(nodes=moved, avoid=tuple(sorted(excluded)), reason=why)


def is_node_drained(pod: PodView, nodes: Mapping[str, NodeView]) -> bool:
    """Return whether somebody wants the pod's node empty; a node that is not ready is another matter."""
    node = nodes.get(pod.node_name)
    return node is not None and node.is_to_be_emptied and node.ready


# -------------------------------------------------------------------------------------------------------- pods


def events_of_pod(pod: PodView, *, deleted: bool, now_ms: int) -> Iterator[events.JobEvent]:
    """Yield what a pod that serves a node rank tells, as it is now, or that it is gone.

    A pod that is being deleted counts as lost already: nothing should be started in it.
    """
    going = deleted or (pod.deleting and not pod.has_finished)
    for fact in [pod_source.fact_of_lost_pod(pod, now_ms)] if going else pod_source.facts_of_pod(pod, now_ms):
        yield events.FactSeen(fact=fact)


def events_of_finished_pod(state: JobState, pod: PodView) -> Iterator[events.LastStepEnded]:
    """Yield the end of the training in a pod whose launcher has ended with 0: its agent has said that it has finished.

    What becomes of the pod is no loss. Before the job trains, its coordinator tells what such an end means.
    """
    if state.phase not in ENDED and not _is_ending_known(state, saved=False, nodes=(pod.node_rank,)):
        yield events.LastStepEnded(nodes=(pod.node_rank,), attempt=state.attempt)


def _is_ending_known(state: JobState, *, saved: bool, nodes: Collection[int]) -> bool:
    ending = state.ending
    if state.phase is not JobPhase.ENDING or ending is None:
        return False
    return (ending.saved or not saved) and set(nodes) <= set(ending.over)


def events_of_old_pod(pod: PodView, now_ms: int) -> Iterator[events.JobEvent]:
    """Yield why a pod was lost, where it says so only after another one has taken its ranks."""
    for fact in pod_source.facts_of_taken_pod(pod, now_ms):
        yield events.FactSeen(fact=fact)


def events_of_coordinator_pod(pod: PodView, *, deleted: bool) -> Iterator[events.JobEvent]:
    """Yield what the coordinator's pod tells, as it is now, or that it is gone."""
    if deleted or pod.has_ended:
        told = pod.trouble or f"pod {pod.name} is gone"
        yield events.CoordinatorLost(message=told, program=pod.failed_by_itself and not deleted)
    elif pod.unschedulable:
        yield events.CoordinatorUnplaced()
    elif pod.node_name:
        yield events.CoordinatorPlaced()


def events_of_end(
    state: JobState, num_nodes: int, finished: Collection[int], at_work: Pods
) -> Iterator[events.JobEvent]:
    """Yield the end of the training as the pods tell it, container by container: no coordinator may be there to tell.

    Args:
        state: of the planner.
        num_nodes: rank pods of the job.
        finished: node ranks whose pod's trainer has ended with 0.
        at_work: all pods that serve. Once the final checkpoint is complete, one that has ended or is gone counts as
            finished.
    """
    left_out, ending = state.shrunk.nodes if state.shrunk else (), state.ending
    if state.phase in ENDED or (ending is None and len(finished) + len(left_out) < num_nodes):
        return
    left = set(range(num_nodes)).difference(left_out, finished)
    if ending is not None:
        left.difference_update(ending.over)
    if ending is not None and ending.saved:
        left = {node_rank for node_rank in left if node_rank in at_work and not at_work[node_rank].has_ended}
    if num_nodes and not left:
        yield events.PodsFinished()


# ------------------------------------------------------------------------------------------------------- nodes


def events_of_nodes(
    pods: Collection[PodView], nodes: Mapping[str, NodeView], now_ms: int, *, gone: bool = False
) -> Iterator[events.JobEvent]:
    """Yield the loss of pods that never started, on nodes that are not ready or gone: no agent falls silent there.

    A coordinator that is not heard counts as started only when all of its containers run, even if it has an address.
    """
    for pod in pods:
        node = nodes.get(pod.node_name)
        lost = gone if node is None else not node.ready
        started = pod.address and (pod.is_rank_pod or pod.phase != "Pending")
        if lost and not started and not pod.has_ended:
            fact = pod_source.fact_of_stranded_pod(pod, now_ms, gone=node is None)
            yield events.FactSeen(fact=fact) if pod.is_rank_pod else events.CoordinatorLost(message=fact.message)


def events_of_steps(state: JobState, step: int) -> Iterator[events.FactsWithdrawn]:
    """Yield the end of a hang that was held back: the training takes steps again. `step`: the newest finished one."""
    incident = state.incident
    if incident is None or state.phase is not JobPhase.HELD or incident.cause.kind is not FactKind.HANG:
        return
    if len(incident.fact_ids) == 1 and step > incident.cause.step:
        yield events.FactsWithdrawn(ids=incident.fact_ids)


def events_of_capacity(state: JobState, policy: Policy, free_nodes: Callable[[], int]) -> Iterator[events.JobEvent]:
    """Yield whether there are nodes for a job that is not whole, or for a start that has given its chips back."""
    shrunk, smaller = state.shrunk, state.smaller
    if state.phase in UNTRAINED and state.waiting is not None and state.waiting.released:
        yield events.CapacityAvailable(nodes=free_nodes())
    if state.phase is JobPhase.SHRUNK and shrunk is not None:
        need, known = len(shrunk.absent_nodes(released=policy.release_shrunk_pods)), bool(shrunk.capacity_ms)
    elif state.phase is JobPhase.RUNNING and smaller is not None:
        need, known = smaller.missing, bool(smaller.capacity_ms)
    else:
        return
    free = free_nodes()
    if free >= need and not known:
        yield events.CapacityAvailable(nodes=free)
    elif free < need and known:
        yield events.CapacityLost()


# ------------------------------------------------------------------------------------------------- coordinator


@dataclass(frozen=True, slots=True)
class Heard:
    """What a coordinator has said until now.

    Attributes:
        state: of its newest report.
        serving: its channel is up and its MindIO controller serves.
        checkpoint: step of the newest complete checkpoint that it has told of, -1 for none, None before it told.
    """

    state: wire.CoordinatorState = dataclasses.field(default_factory=wire.CoordinatorState)
    serving: bool = False
    checkpoint: int | None = None

    def after_report(self, state: wire.CoordinatorState) -> Heard:
        """Return what is known after one more report."""
        told = state.HasField("checkpoint") and not state.checkpoint.problem
        return Heard(state, state.controller_ready, state.checkpoint.step if told else self.checkpoint)

    def after_loss(self) -> Heard:
        """Return what is known after the channel went down: the last report still counts, but it serves no more."""
        return dataclasses.replace(self, serving=False)


_PROGRESS: Final = frozenset({"step", "nodes", "sign_age_nanoseconds"})
"""Of a coordinator's state, what every step changes; who has launched what matters only until the training runs."""


def is_report_news(state: JobState, report: wire.Report, before: Heard) -> bool:
    """Return whether a report may tell the planner anything; else it tells at most how far the training has come."""
    told = report.state
    if report.facts or report.milestones or told.end or state.going_on in UNTRAINED or _unworkable_problems(told):
        return True
    return told.controller_ready is not before.serving or _told_fields(told) != _told_fields(before.state)


def _told_fields(state: wire.CoordinatorState) -> dict[str, object]:
    return {field.name: value for field, value in state.ListFields() if field.name not in _PROGRESS}


def start_sign_ms(state: JobState, report: wire.Report, now_ms: int) -> int | None:
    """Return when the starting attempt last showed progress, in milliseconds of the job's time; None: not known."""
    told = report.state
    if told.attempt != state.attempt or not told.HasField("sign_age_nanoseconds"):
        return None
    return now_ms - told.sign_age_nanoseconds // 1_000_000


def _unworkable_problems(told: wire.CoordinatorState) -> list[wire.Problem]:
    return [problem for problem in told.problems if problem.code in UNWORKABLE]


def events_of_report(report: wire.Report, pods: Pods, now_ms: int) -> ReportReading:
    """Read what a report tells, in order, and add the node to facts from inside the job.

    An agent falls silent, too, when its pod has finished: that is no fault.
    """
    reading = read_report(report, now_ms)
    told = [_with_node_name(one, pods) for one in reading.observed]
    return ReportReading(tuple(one for one in told if one is not None), reading.refused)


def is_older_than_pod(fact: Fact, pod: PodView) -> bool:
    """Return whether the fact is about a pod that this one has replaced: what nobody has acknowledged is told again."""
    return 0 <= fact.incarnation < pod.incarnation


def is_fact_of_silence(fact: Fact) -> bool:
    """Return whether perhaps nobody in the pod answers any more."""
    return fact.kind is FactKind.AGENT_SILENT


def _with_node_name(observed: Observed, pods: Pods) -> Observed | None:
    event = observed.event
    if not isinstance(event, events.FactSeen):
        return observed
    fact = event.fact
    pod = pods.get(fact.node_rank) if fact.node_rank is not None else None
    if pod is None or is_older_than_pod(fact, pod):
        return observed
    if pod.has_finished and is_fact_of_silence(fact):
        return None
    fact = dataclasses.replace(fact, node_name=fact.node_name or pod.node_name)
    return dataclasses.replace(observed, event=dataclasses.replace(event, fact=fact))


def events_of_coordinator(state: JobState, before: Heard, now: Heard, num_nodes: int) -> Iterator[events.JobEvent]:
    """Yield what a coordinator's state says, beside the facts and milestones of its report."""
    told = now.state
    if now.serving and not before.serving:
        yield events.CoordinatorReady()
    if before.checkpoint is not None and now.checkpoint is not None and now.checkpoint > before.checkpoint:
        yield events.CheckpointVerified(step=now.checkpoint)  # the first one heard of may be old
    if told.attempt != state.attempt:
        return
    for problem in _unworkable_problems(told):
        yield events.Unworkable(reason=problem.code, message=problem.message)
    if state.phase is JobPhase.PENDING and told.controller_ready and launchers_ready(told.nodes, num_nodes):
        yield events.PodsReady()
    if state.going_on in {JobPhase.STARTING, JobPhase.WARMING} and told.step > max(state.step, 0):
        yield events.Resumed(step=told.step)
    saved, nodes = told.end == wire.FINAL_CHECKPOINT, finished_nodes(told)
    if told.end and state.phase not in ENDED and not _is_ending_known(state, saved=saved, nodes=nodes):
        yield events.LastStepEnded(saved=saved, nodes=nodes, attempt=told.attempt)
