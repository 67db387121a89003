"""Observes one job: what a snapshot of it tells the planner, as events and as the planner's view.

It decides nothing; `hajob.sources.observe` says which observations are events. What is told to people beside them are
announcements in the same row.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from typing import Final, TypeAlias

from hajob import metrics
from hajob.api.enums import SubHealthPolicy
from hajob.api.event_reasons import EventReason
from hajob.capacity.super_pods import super_pod_of_node
from hajob.domain.facts import FactKind
from hajob.domain.hardware import ClusterFact
from hajob.job.pod_index import is_coordinator_pod, is_node_away, is_serving_pod
from hajob.job.snapshot import JobSnapshot
from hajob.job.status.announcements import Announcement, event_of_unknown_chip
from hajob.leader.reachability import ExpectedCoordinator
from hajob.plan import events
from hajob.plan.placements import serving_incarnation
from hajob.plan.state import REMADE, UNTRAINED, WITHOUT_PODS, Deadline, JobPhase
from hajob.plan.view import ClusterView
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources import hardware, observe
from hajob.sources.hardware import Seat
from hajob.sources.node import NodeView
from hajob.sources.pause import TESTS_OWN
from hajob.sources.pod import PodView
from hajob.sources.report import Observed
from hajob.sources.shortage import shortage_of_pods

log = logging.getLogger(__name__)

Seen: TypeAlias = Iterable[events.JobEvent | Announcement]

AGAIN_SECONDS: Final = 600.0
"""What a sick node asks for, and was refused, is asked for again after so long, and when the spec is edited."""

ASKED_LIMIT: Final = 1024
"""Sick chips that are remembered; a job of 64 nodes has as many chips."""

FROM_CLUSTER: Final = ("node/", "public/")
"""What the ids of facts begin with that were made from faults of nodes and chips."""
AGAIN: Final = "#"
"""What follows it tells the same fact, told once more, from the one before."""
NOT_ACTED: Final = frozenset({JobPhase.HELD, JobPhase.MIGRATING})
"""Phases in which an incident is open and nothing irreversible was done for it."""
BAD_PLACES: Final = frozenset({FactKind.AGENT_SILENT, FactKind.PORT_TAKEN})
"""Facts after which nothing should be started on their node for a while."""
APART: Final = "anti-affinity"
"""In the scheduler's words, where a pod may not join another one on its node."""


# ---------------------------------------------------------------------------------------------------- the view


def cluster_view(snapshot: JobSnapshot) -> ClusterView:
    """Return cluster and training in the planner's form."""
    reports, serving = snapshot.coordinator, snapshot.pods.serving_pods(snapshot.state)
    return ClusterView(
        layout=snapshot.layout,
        step=reports.newest_step,
        coordinator_ready=reports.is_serving,
        taking_over=reports.is_taking_over,
        coordinator_silent=not reports.has_spoken,
        relieved_heard=snapshot.hears_relieved,
        coordinator_apart=not snapshot.coordinator_shares_node,
        free_nodes=snapshot.free_nodes,
        start_nodes=snapshot.start_nodes,
        growth_refused=snapshot.growth_refused,
        spares=tuple(pod.node_name for pod in snapshot.ready_spares),
        super_pods=snapshot.super_pods_of_blocks,
        spare_super_pods={
            pod.node_name: super_pod_of_node(snapshot.nodes.get(pod.node_name)) for pod in snapshot.ready_spares
        },
        bare_super_pods=snapshot.bare_super_pods,
        unplaced=len(serving.unplaced),
        checkpoint_step=reports.checkpoint_step,
        loaded_step=reports.step_loaded_by(snapshot.state.attempt),
        node_names=serving.node_names,
        nodes_to_avoid=snapshot.nodes_to_avoid,
        start_sign_ms=snapshot.observed.start_sign_ms,
        step_ms=snapshot.pace.milliseconds_per_step,
        copies_told=reports.copies_told,
    )


def training_view(snapshot: JobSnapshot) -> ClusterView:
    """Return the view of the training alone, to record its time, without looking up the cluster."""
    unplaced = len(snapshot.pods.serving_pods(snapshot.state).unplaced)
    return ClusterView(layout=snapshot.layout, step=snapshot.coordinator.newest_step, unplaced=unplaced)


# -------------------------------------------------------------------------------------------------------- pods


def events_of_rank_pod(snapshot: JobSnapshot, pod: PodView, *, deleted: bool) -> Seen:
    """Return events of a rank pod that changed or is gone; a replaced one only tells why it ended."""
    now, state = snapshot.now_ms, snapshot.state
    if not is_serving_pod(pod, state):
        is_old = state.incident is not None and pod.incarnation < serving_incarnation(state, pod.node_rank)
        return observe.events_of_old_pod(pod, now) if is_old else ()
    if pod.has_finished and state.phase not in UNTRAINED:
        return observe.events_of_finished_pod(state, pod)
    return observe.events_of_pod(pod, deleted=deleted, now_ms=now)


def events_of_node(snapshot: JobSnapshot, name: str, *, gone: bool = False) -> Seen:
    """Return events of a node that changed, went, or got a pod of this job; nothing while faults are held back."""
    if snapshot.cluster.faults.why_held():
        return ()
    job, state, reports = snapshot.job, snapshot.state, snapshot.coordinator
    pods = [
        pod
        for pod in snapshot.pods.pods_on_node(name)
        if is_serving_pod(pod, state)
        or (is_coordinator_pod(pod, job, state) and not reports.is_heard_from(pod.incarnation))
    ]
    return observe.events_of_nodes(pods, snapshot.nodes, snapshot.now_ms, gone=gone)


def events_of_end(snapshot: JobSnapshot) -> Seen:
    """Return the end of the training if no pod has work left."""
    state, serving = snapshot.state, snapshot.pods.serving_pods(snapshot.state)
    ending = state.ending
    if not (serving.finished or ending is not None):
        return ()
    if ending is not None and ending.saved and not snapshot.pods.complete:
        return ()  # who is absent is not known yet
    return observe.events_of_end(state, snapshot.layout.num_nodes, serving.finished, serving.pods)


# ------------------------------------------------------------------------------------------------------ places


def events_of_places(snapshot: JobSnapshot, blocked: str = "") -> Seen:
    """Yield whether a start waits for quota or nodes, or for pods of the attempt before that do not go.

    A pod that the scheduler has not looked at yet says neither.

    Args:
        snapshot: of the job.
        blocked: which pods of the attempt before should have gone long ago; empty for none.
    """
    if snapshot.state.phase not in UNTRAINED:
        return
    state, num_nodes, coordinator = snapshot.state, snapshot.layout.num_nodes, snapshot.coordinator_pod
    serving, refused = snapshot.pods.serving_pods(state), snapshot.creation.why_missing
    gang_wait = snapshot.gang_wait
    placed = len(serving.node_names) + (coordinator is not None and bool(coordinator.node_name))
    unplaced = serving.unplaced or (coordinator is not None and coordinator.unschedulable)
    if (state.waiting is None and not unplaced and refused is None and not blocked and not gang_wait) or (
        state.waiting is not None and placed <= num_nodes
    ):
        return
    known = [*serving.pods.values(), *([coordinator] if coordinator is not None else [])]
    missing = gang_wait or shortage_of_pods(known, refused)
    if missing and state.waiting is None:
        yield events.PlacesMissing(message=missing)
    elif blocked and state.waiting is None:
        yield events.PlacesMissing(message=blocked, reason=EventReason.WAITING_FOR_OLD_PODS)
    complete = not blocked and refused is None and len(known) == num_nodes + 1 and all(pod.node_name for pod in known)
    if complete and state.waiting is not None:
        yield events.PlacesFound()


def events_of_coordinator_place(snapshot: JobSnapshot) -> Seen:
    """Yield whether the coordinator occupies a node that a rank pod of this start needs: no rank may join it there.

    That happens where a job has no more nodes than its ranks need, and the coordinator was placed first.
    """
    state, coordinator = snapshot.state, snapshot.coordinator_pod
    if state.phase not in UNTRAINED or not state.apart or coordinator is None or not coordinator.node_name:
        return
    unplaced, moves = snapshot.pods.serving_pods(state).unplaced, Deadline.UNPLACED in state.deadlines
    if moves and not unplaced:
        yield events.CoordinatorPlaced()
    kept_off = not moves and any(APART in snapshot.serving_pods[node_rank].unschedulable for node_rank in unplaced)
    if kept_off and snapshot.has_room_on(coordinator.node_name):
        yield events.CoordinatorUnplaced()


def events_of_capacity(snapshot: JobSnapshot) -> Seen:
    """Return what follows from nodes, or pods of any job on one, that came or went."""
    return observe.events_of_capacity(snapshot.state, snapshot.policy, lambda: snapshot.free_nodes)


# ------------------------------------------------------------------------------------------------- coordinator


def events_of_coordinator(snapshot: JobSnapshot) -> Seen:
    """Return events of the state in the coordinator's newest report."""
    reports = snapshot.coordinator
    return observe.events_of_coordinator(snapshot.state, reports.before, reports.now, snapshot.layout.num_nodes)


def events_of_channel(snapshot: JobSnapshot) -> Seen:
    """Report whether the coordinator's channel is up; nothing if only this operator cannot reach it.

    A coordinator whose containers do not all run yet has an address, but is not silent: it may be pulling images.
    """
    pod, up = snapshot.coordinator_pod, snapshot.coordinator.connected
    starts = not up and pod is not None and pod.phase == "Pending" and not is_node_away(pod, snapshot.nodes)
    if snapshot.why_cut_off or starts:
        return ()
    return (events.CoordinatorReachable() if up else events.CoordinatorUnreachable(),)


def expected_coordinator(snapshot: JobSnapshot) -> ExpectedCoordinator | None:
    """Return whether the coordinator is reached; None where its silence says nothing about this operator.

    That is so while the job restarts, waits or ends, and in a start until the coordinator was heard once: Hajob
    itself ends those pods, and new ones listen only after a while.
    """
    pod, state, reports = snapshot.coordinator_pod, snapshot.state, snapshot.coordinator
    if pod is None or pod.phase != "Running" or pod.deleting or not reports.address:
        return None
    heard = reports.now.state.attempt == state.attempt
    if state.phase in REMADE or state.phase in WITHOUT_PODS or (state.is_untrained and not heard):
        return None
    return ExpectedCoordinator(pod.node_name, reports.connected)


def read_report(snapshot: JobSnapshot, report: wire.Report) -> tuple[Observed, ...]:
    """Return the contents of a report as events, and remember what it says of nodes and of the start."""
    now = snapshot.now_ms
    reading = observe.events_of_report(report, snapshot.serving_pods, now)
    snapshot.observed.start_sign_ms = observe.start_sign_ms(snapshot.state, report, now)
    for what in reading.refused:
        metrics.REFUSED.labels(what).inc()
        log.warning("%s: the coordinator reports what this operator does not know: %s", snapshot.title, what)
    for observed in reading.observed:
        if isinstance(observed.event, events.FactSeen):
            _remember_fact(snapshot, observed.event)
    return reading.observed


def _remember_fact(snapshot: JobSnapshot, seen: events.FactSeen) -> None:
    """Store what a reported fact says about nodes, for the code that creates or deletes pods there."""
    fact = seen.fact
    metrics.FACTS.labels(fact.kind.value).inc()
    if fact.kind not in BAD_PLACES or fact.node_rank is None:
        return
    pod = snapshot.serving_pods.get(fact.node_rank)
    if observe.is_fact_of_silence(fact) and pod is not None and not observe.is_older_than_pod(fact, pod):
        snapshot.pods.silent.add(pod.uid)
    snapshot.cluster.avoid_node(fact.node_name)


def avoid_silent_coordinator(snapshot: JobSnapshot) -> None:
    """Count a silent coordinator's node as dead until more is known."""
    pod = snapshot.coordinator_pod
    if pod is not None and not pod.has_ended and not snapshot.coordinator.connected:
        snapshot.cluster.avoid_node(pod.node_name)


# ------------------------------------------------------------------------------------------- faults of hardware


def events_of_hardware(snapshot: JobSnapshot, nodes: Collection[str] = ()) -> Seen:
    """Yield the standing faults of this job's serving pods; `nodes`: only those, none given: all."""
    if _must_wait(snapshot):
        return
    state, cluster = snapshot.state, snapshot.cluster
    pods = (
        [pod for name in nodes for pod in snapshot.pods.pods_on_node(name)] if nodes else snapshot.serving_pods.values()
    )
    chips, resource = snapshot.layout.chips_per_node, snapshot.job.spec.accelerator.resource_name
    for pod in [pod for pod in pods if is_serving_pod(pod, state)]:
        if pod.node_name and not pod.has_ended:
            node, standing = cluster.nodes.get(pod.node_name), cluster.faults.faults_on(pod.node_name)
            faults = [found for found in standing if not is_of_stress_test(snapshot, found[0])]
            yield from hardware.events_of_pod_hardware(
                pod, faults, node, resource=resource, chips_per_node=chips, now_ms=snapshot.now_ms
            )
            yield from _doubted_faults(snapshot, pod, [fact for fact, _ in faults], node)
    yield from events_of_sub_health(snapshot, nodes)
    yield from _withdrawn_faults(snapshot)


def is_of_stress_test(snapshot: JobSnapshot, fact: ClusterFact) -> bool:
    """Return whether a running stress test causes the fault itself; its own codes say what it has found."""
    asked = snapshot.job.spec.pause
    tests = asked is not None and asked.stress_test is not None and snapshot.state.holds_still
    return tests and bool(TESTS_OWN.intersection(fact.code.upper().split(",")))


def events_of_sub_health(snapshot: JobSnapshot, nodes: Collection[str] = ()) -> Iterator[events.FactSeen]:
    """Yield sub-health of nodes that still work, again periodically, and only where there is a better node.

    Only while the training is whole and the policy asks for an action.
    """
    if _must_wait(snapshot) or snapshot.state.phase is not JobPhase.RUNNING:
        return
    spec, sick, faults_on = snapshot.job.spec, snapshot.cluster.marks.sub_healthy, snapshot.cluster.faults.faults_on
    if spec.recovery.sub_health_policy is SubHealthPolicy.IGNORE:
        return
    names = sick if not nodes else [name for name in nodes if name in sick]
    pods = [pod for name in names for pod in snapshot.pods.pods_on_node(name) if is_serving_pod(pod, snapshot.state)]
    resource = spec.accelerator.resource_name
    found = [
        (pod, fact, age_ms)
        for pod in pods
        if not pod.has_ended
        for fact, age_ms in faults_on(pod.node_name)
        if fact.kind is FactKind.SUB_HEALTH
        and hardware.seat_of_pod(pod, fact.chip_number, snapshot.nodes.get(pod.node_name), resource) is Seat.ON
    ]
    held = {pod.node_name for pod in snapshot.ready_spares} if found else set()
    better = (held | snapshot.free_node_names).difference(sick) if found else ()
    asked, generation = snapshot.observed.sub_health_asked, snapshot.job.metadata.generation
    for pod, fact, age_ms in found if better else ():
        key = hardware.fact_id_for_pod(fact, pod)
        times, last, seen = asked.get(key, (0, -AGAIN_SECONDS, generation))
        if snapshot.now - last >= AGAIN_SECONDS or generation != seen:
            asked.pop(key, None)
            asked[key] = (times + 1, snapshot.now, generation)
            if len(asked) > ASKED_LIMIT:
                del asked[next(iter(asked))]  # the longest ago
            again, chips = f"{AGAIN}{times}", snapshot.layout.chips_per_node
            yield events.FactSeen(
                fact=hardware.fact_of_chip(pod, fact, age_ms, chips_per_node=chips, now_ms=snapshot.now_ms, again=again)
            )


def _doubted_faults(
    snapshot: JobSnapshot, pod: PodView, faults: Iterable[ClusterFact], node: NodeView | None
) -> Iterator[Announcement]:
    """Yield, once each, the faults of chips of which nobody has told whether the pod has them."""
    resource, known = snapshot.job.spec.accelerator.resource_name, snapshot.observed.doubted
    doubted = {
        hardware.fact_id_for_pod(fact, pod): fact
        for fact in faults
        if hardware.concerns_pods(fact) and hardware.seat_of_pod(pod, fact.chip_number, node, resource) is Seat.UNKNOWN
    }
    for key in doubted.keys() - known.get(pod.node_rank, frozenset()):
        yield event_of_unknown_chip(pod.name, doubted[key])
    known[pod.node_rank] = frozenset(doubted)


def _must_wait(snapshot: JobSnapshot) -> bool:
    """Whether no fault can be decided: MindIO may serve though the coordinator is not heard."""
    waits = snapshot.awaits_coordinator
    snapshot.observed.waits = snapshot.observed.waits or waits
    return waits


def _withdrawn_faults(snapshot: JobSnapshot) -> Seen:
    """Yield the faults of nodes and chips that stand no more, of an incident in which nothing was done yet."""
    incident = snapshot.state.incident
    if incident is None or snapshot.state.phase not in NOT_ACTED:
        return
    standing: set[str] = set()
    for pod in snapshot.pods.all_pods():
        ids = snapshot.cluster.faults.standing_faults(pod.node_name) if pod.node_name else ()
        if ids is None:
            return  # the standing faults are unknown now
        standing.update(hardware.fact_id_for_pod(fact, pod) for fact in ids)
    gone = tuple(
        one for one in incident.fact_ids if one.startswith(FROM_CLUSTER) and one.partition(AGAIN)[0] not in standing
    )
    if gone:
        yield events.FactsWithdrawn(ids=gone)
