"""Drains of a job's nodes: announces them, asks for the moves off them, and limits evictions meanwhile.

See docs/decisions/0023-drains-wait.md. The start of a drain is not in the journal: after a change of leaders its time
begins anew. Budgets serve whoever drains nodes and never delay a job: one that the server refuses is logged, counted
and tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Final

from hajob.api import constants as names
from hajob.api.event_reasons import EventReason
from hajob.api.job import HATrainingJob
from hajob.capacity.drains import Budgets, Drains, EvictionTurn, Openings, budgets_of_job
from hajob.job.snapshot import JobSnapshot
from hajob.job.status.announcements import Announcement
from hajob.job.wants import Put, Wants
from hajob.plan import events
from hajob.plan.policy import NodePolicy
from hajob.plan.state import REMADE, STEADY, WITHOUT_PODS, JobPhase
from hajob.pods.disruption_budget import disruption_budget
from hajob.pods.naming import budget_name
from hajob.sources import observe
from hajob.sources.pod import PodView

BUDGETS: Final = "poddisruptionbudgets"
RETRY_SECONDS: Final = (1.0, 60.0)
"""Between two tries to write a budget that the server refuses: nothing of the job waits for it."""
ASK_AGAIN_SECONDS: Final = 300.0
"""A coordinator that could not be moved is asked for again after so long, and when the spec is edited."""
MOVE_AGAIN_SECONDS: Final = 600.0
"""A move that was refused or given up is asked for again after so long, when the spec is edited, and by another
coordinator: it may have gone with the one before."""


@dataclass(slots=True)
class DrainMemo:
    """What is remembered of the drains of one job.

    Attributes:
        drains: nodes that are to be emptied, and since when.
        turn: of the job among all jobs, at letting unannounced evictions through.
        coordinator_asked: under which generation of the spec, and when, the coordinator's move was last asked for.
        move_asked: for which move, and when, the ranks' coordinator was last asked.
        limits_evictions: budgets were wanted before.
    """

    turn: EvictionTurn
    drains: Drains = field(default_factory=lambda: Drains(inf))
    coordinator_asked: tuple[int, float] = (0, -inf)
    move_asked: tuple[object, float] = (None, -inf)
    limits_evictions: bool = False

    @classmethod
    def with_openings(cls, openings: Openings) -> DrainMemo:
        """Return the memory of a job of which nothing is known; `openings`: of all jobs."""
        return cls(EvictionTurn(openings))


def want_drains(snapshot: JobSnapshot, memo: DrainMemo) -> Wants:
    """Want moves off nodes that are to be emptied, their announcement, and budgets that hold evictions back."""
    if not snapshot.pods_are_known:
        return Wants()
    now, policy = snapshot.now, snapshot.policy
    memo.drains.timeout = policy.drain_timeout_seconds
    fresh = memo.drains.update_nodes({pod.node_name for pod in snapshot.drained_pods}, now)
    told = [_describe_drain(pod, policy.cordon) for pod in snapshot.drained_pods if pod.node_name in fresh]
    rest = memo.drains.next_change(now)
    limits, turn_at = _eviction_limits(snapshot, memo)
    return Wants(
        changes=tuple(budget_objects(snapshot.job, limits)) if limits is not None else (),
        events=(*wanted_moves(snapshot, memo), *_coordinator_moves(snapshot, memo)),
        announcements=tuple(Announcement(EventReason.NODE_DRAINING, each) for each in told),
        again_at=min(turn_at, now + rest if rest is not None else inf),
    )


def wanted_moves(snapshot: JobSnapshot, memo: DrainMemo) -> Iterator[events.MigrateRequested]:
    """Yield the request to move rank pods off their nodes; a refused move is requested again periodically.

    A leader that has not heard the coordinator yet would be refused.
    """
    if snapshot.awaits_coordinator:
        return
    for move in observe.events_of_moves(
        snapshot.state, snapshot.job.spec, snapshot.serving_pods, snapshot.drained_pods
    ):
        asked = move, snapshot.job.metadata.generation, snapshot.state.coordinator
        if asked != memo.move_asked[0] or snapshot.now - memo.move_asked[1] > MOVE_AGAIN_SECONDS:
            memo.move_asked = asked, snapshot.now
            yield move


def budget_objects(job: HATrainingJob, wanted: Budgets) -> Iterable[Put]:
    """Yield the two PodDisruptionBudgets of a job, as they should be."""
    for role, least in ((names.ROLE_RANK, wanted.ranks), (names.ROLE_COORDINATOR, wanted.coordinator)):
        yield Put(
            resource=BUDGETS,
            namespace=job.metadata.namespace,
            name=budget_name(job, role),
            body=disruption_budget(job, role, least),
            fields=("minAvailable",),
            retry_seconds=RETRY_SECONDS,
            counted_as="disruption budget",
        )


def _eviction_limits(snapshot: JobSnapshot, memo: DrainMemo) -> tuple[Budgets | None, float]:
    """Return how many pods evictions have to leave now (None: nothing is set), and when that changes by time alone."""
    phase = snapshot.state.phase
    if phase in WITHOUT_PODS or (phase in REMADE and not memo.limits_evictions):
        return None, inf  # a pod evicted before the ranks start is replaced alone; a start has enough to write
    memo.limits_evictions = True
    overdue, changes_at = memo.drains.is_any_overdue(snapshot.now), inf
    opened = phase in STEADY
    if opened:
        opened, changes_at = _are_budgets_open(snapshot, memo, overdue=overdue)
        opened = opened and not _can_move_off(snapshot)
    return budgets_of_job(snapshot.desired_pods, snapshot.policy, overdue=overdue, opened=opened), changes_at


def _are_budgets_open(snapshot: JobSnapshot, memo: DrainMemo, *, overdue: bool) -> tuple[bool, float]:
    """Return whether unannounced evictions, which cannot be observed, may go through now, and when that may change."""
    if overdue:
        memo.turn.restart_timeout()
    opened, changes_at = memo.turn.is_open_now(snapshot.now, memo.drains.timeout), memo.turn.next_change(snapshot.now)
    return opened, changes_at if changes_at is not None else inf


def _can_move_off(snapshot: JobSnapshot) -> bool:
    """Whether a cordon would empty the node without an outage: then whoever wants that has to cordon it."""
    return snapshot.policy.moves_on_cordon and (snapshot.free_nodes > 0 or bool(snapshot.ready_spares))


def _coordinator_moves(snapshot: JobSnapshot, memo: DrainMemo) -> Iterator[events.CoordinatorMoveRequested]:
    """Yield the request to move the coordinator off its node, at once: the training goes on meanwhile."""
    pod, generation = snapshot.coordinator_pod, snapshot.job.metadata.generation
    if snapshot.policy.cordon is not NodePolicy.MIGRATE or snapshot.awaits_coordinator:
        return
    if pod is None or not observe.is_node_drained(pod, snapshot.nodes):
        return
    if memo.coordinator_asked[0] == generation and snapshot.now - memo.coordinator_asked[1] < ASK_AGAIN_SECONDS:
        return
    if snapshot.state.phase in {JobPhase.RUNNING, JobPhase.SHRUNK}:
        memo.coordinator_asked = generation, snapshot.now
        yield events.CoordinatorMoveRequested(message=f"{pod.node_name} of the coordinator is to be emptied")


def _describe_drain(pod: PodView, policy: NodePolicy) -> str:
    """Describe what will happen to a pod whose node is to be emptied."""
    what = f"node {pod.node_name} of pod {pod.name} is being drained"
    if policy is NodePolicy.IGNORE:
        return f"{what}; cordonPolicy is Ignore: the pod is left until it is evicted"
    if pod.node_rank >= 0:
        return f"{what}: Hajob moves the pod while the training goes on, and refuses evictions until then"
    return f"{what}: another coordinator takes over while the training goes on; Hajob refuses evictions until then"
