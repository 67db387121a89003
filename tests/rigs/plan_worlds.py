"""Small worlds for the planner's tests: a job of 4 nodes, every kind of event, a walk over everything reachable."""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from hajob.domain.actions import FAULT_ACTIONS, Action
from hajob.domain.facts import CONTAINER_ENDED, NO_SUCCESSOR, Fact, FactKind, Source
from hajob.domain.layout import Layout
from hajob.plan import events as e
from hajob.plan.context import TableRow
from hajob.plan.machine import CELLS, Transition, advance_job
from hajob.plan.policy import (
    DEFAULT_ACTION_LIMITS,
    ActionLimits,
    CoordinatorLossPolicy,
    Mode,
    NodePolicy,
    Policy,
    policy_from_spec,
)
from hajob.plan.state import UNTRAINED, JobPhase, JobState
from hajob.plan.view import ClusterView
from tests.rigs.plan_specs import spec

LAYOUT = Layout(num_nodes=4, chips_per_node=2, tensor=2)
VIEW = ClusterView(
    LAYOUT,
    step=5,
    coordinator_ready=True,
    coordinator_apart=True,
    free_nodes=1,
    checkpoint_step=3,
    node_names={rank: f"node-{rank}" for rank in range(4)},
)


def small_policy(**changes: object) -> Policy:
    """Build a policy with budgets of two each, so that a walk meets their end soon."""
    limits = {action: ActionLimits(2, 3600, 60) for action in DEFAULT_ACTION_LIMITS}
    policy = Policy(
        limits=limits,
        active_deadline_seconds=100_000,
        capacity_timeout_seconds=50_000,
        release_waiting_pods=True,
        log_rules={"nan": Action.RESTART},
    )
    return replace(policy, **changes)  # type: ignore[arg-type]


def without(*actions: Action) -> Policy:
    """Build a policy that forbids some actions."""
    limits = {action: ActionLimits(0 if action in actions else 2, 3600, 60) for action in DEFAULT_ACTION_LIMITS}
    return small_policy(limits=limits)


POLICIES = (
    small_policy(),
    small_policy(mode=Mode.OBSERVE),
    small_policy(mode=Mode.HOLD),
    small_policy(coordinator_loss=CoordinatorLossPolicy.IMMEDIATELY, sub_health=NodePolicy.EVICT),
    small_policy(coordinator_loss=CoordinatorLossPolicy.NEVER, sub_health=NodePolicy.CHECKPOINT),
    without(Action.IN_PLACE),
    without(Action.IN_PLACE, Action.REPLACE),
    without(Action.IN_PLACE, Action.REPLACE, Action.SHRINK),
    without(Action.CHECKPOINT, Action.RESTART),
    without(*FAULT_ACTIONS),
)


def fact(kind: FactKind, state: JobState, *, rank: int = 5, node: int | None = None, **more: object) -> e.FactSeen:
    """Build a fresh fact about the process or pod that exists now."""
    ranks = () if node is not None else (rank,)
    number = state.incarnation
    name = f"{kind}-{rank}-{node}-{number}-{len(state.fact_ids)}-{state.incident.revision if state.incident else 0}"
    seen = state.pod_incarnation(node) if node is not None else number
    made = Fact(name, kind, node_rank=node, ranks=ranks, incarnation=seen, time_ms=10**12, **more)  # type: ignore[arg-type]
    return e.FactSeen(fact=made)


def every_event(state: JobState) -> Iterator[e.JobEvent]:
    """List at least one event of every kind, and one for every guard."""
    number = state.incident.incarnation if state.incident else 0
    revision = state.incident.revision if state.incident else 0
    for kind in FactKind:
        yield fact(kind, state)
    yield fact(FactKind.PROCESS_EXITED, state, rank=7, exit_code=1)
    yield fact(FactKind.MEMORY_FAULT, state, rank=3, source=Source.MINDIO)
    yield fact(FactKind.DATA_CORRUPTED, state, rank=3, source=Source.MINDIO)
    yield fact(FactKind.LOG_RULE, state, code="nan")
    yield fact(FactKind.PROCESS_EXITED, state, rank=2)
    yield fact(FactKind.POD_FAILED, state, node=1, exit_code=127)
    yield fact(FactKind.POD_LOST, state, node=1, source=Source.POD)
    yield e.FactSeen(fact=Fact(f"gone {state.incarnation}", FactKind.CONTROLLER_LOST))
    yield e.FactSeen(fact=Fact(f"blind {state.incarnation}", FactKind.CONTROLLER_LOST, code=NO_SUCCESSOR))
    yield e.FactSeen(fact=Fact(f"going {state.incarnation}", FactKind.CONTROLLER_LOST, code=CONTAINER_ENDED))
    if not state.takeovers:
        yield e.ControllerTakenOver(duration_ms=40)
    yield from (fact(FactKind.AGENT_SILENT, state, node=node) for node in range(4))
    yield fact(FactKind.PROCESS_EXITED, state, rank=99)
    yield e.FactSeen(fact=Fact("nameless", FactKind.PROCESS_EXITED))
    yield from (e.Accepted(), e.PodsReady(), e.AllRanksStarted(attempt=state.attempt), e.AllRanksStarted(attempt=77))
    yield from (e.Stopped(number), e.Stopped(number, (5, 7)), e.Stopped(10**6), e.ReplacementsReady(number, revision))
    yield from (
        e.ReplacementsReady(number, 1),
        e.ReplacementsReady(10**6),
        e.Named(number, revision),
        e.Named(number, 1),
    )
    yield from (e.Named(10**6), e.Resumed(number, 6), e.Resumed(10**6, 6))
    offered = ("exit", "dump", "retry", "recover", "downgrade", "upgrade", "migration")
    yield from (
        e.StrategiesOffered(number, offered),
        e.StrategiesOffered(number, ("exit",)),
        e.StrategiesOffered(number, ("exit", "dump")),
        e.StrategiesOffered(10**6),
    )
    for code in (0, 201, 404, 405, 406, 499, 77):
        yield e.ResultReported(number, code, "words", "", (6, 7))
    yield from (e.ResultReported(number, 0, "", "dump"), e.ResultReported(number, 0, "", "recover"))
    yield from (
        e.ResultReported(10**6, 0),
        e.ResultReported(number, 0, "", "fly"),
        e.StrategiesOffered(number, ("fly",)),
    )
    yield from (e.AllFinished(), e.PodsFinished())
    yield from (
        e.LastStepEnded(),
        e.LastStepEnded(nodes=(0,)),
        e.LastStepEnded(saved=True),
        e.LastStepEnded(attempt=77),
    )
    yield from (
        e.DeadlineReached(name=name)
        for name in (
            "Startup",
            "Recovery",
            "Expand",
            "Unplaced",
            "Unreachable",
            "Coordinator",
            "Active",
            "Capacity",
            "Release",
            "Fit",
            "Finish",
            "Nonsense",
        )
    )
    yield from (e.CapacityAvailable(nodes=0), e.CapacityAvailable(nodes=4), e.CapacityLost())
    yield from (e.PlacesMissing(message="no node"), e.PlacesFound())
    yield from (
        e.MigrateRequested(nodes=(1,)),
        e.MigrateRequested(nodes=(99,)),
        e.PauseRequested(request="2026-01-01T00:00:00Z", seconds=60),
        e.PauseEnded(message="done"),
        e.CoordinatorMoveRequested(message="node-9"),
        e.RanksUnreachable(nodes=("node-1",)),
        e.CoordinatorLost(),
        e.CoordinatorLost(program=True),
        e.CoordinatorReady(),
    )
    yield from (e.CoordinatorUnreachable(), e.CoordinatorReachable(), e.CoordinatorUnplaced(), e.CoordinatorPlaced())
    held = state.incident.fact_ids if state.incident else ()
    yield from (e.FactsWithdrawn(ids=held), e.FactsWithdrawn(ids=held[:1]), e.FactsWithdrawn(ids=("unknown",)))
    yield from (e.CheckpointVerified(step=9), e.SuspendRequested(), e.ResumeRequested())
    yield from (
        e.RestartRequested(),
        e.RestartRequested(must_save=True),
        e.PolicyChanged(),
        e.Deleted(),
        e.Unworkable(reason="ImageUnusable"),
    )
    if state.phase in (JobPhase.RUNNING, JobPhase.SHRUNK):  # of an incident that the coordinator alone has opened
        minted = state.incarnation + 1
        yield from (e.ResultReported(minted, 406), e.ResultReported(minted, 499))
        yield e.ResultReported(minted, 0, "", "dump")


def due_time(state: JobState, event: e.JobEvent, now_ms: int) -> int:
    """Find when an event comes: a deadline's comes when it is due."""
    if isinstance(event, e.DeadlineReached):
        return max(now_ms, state.deadlines.get(event.name, now_ms))
    return now_ms + 10


def shape(state: JobState) -> tuple[object, ...]:
    """Return what tells two states apart: without times, names, counts and budgets."""
    incident = state.incident
    inner: tuple[object, ...] = ()
    if incident is not None:
        confirmed = any(mark.name == "Result" for mark in incident.milestones)
        inner = (incident.purpose, incident.action, bool(incident.replaced_nodes), incident.corrupted, confirmed)
        inner += (incident.revision > 1,)
        if state.phase is JobPhase.HELD:  # nothing was begun: what would be is decided when it is released
            inner = (incident.corrupted, incident.named)
    waits = tuple(name in state.deadlines for name in ("Expand", "Coordinator"))
    waits += ("Unplaced" in state.deadlines and state.phase is JobPhase.PENDING,)  # one phase is like the others
    waits += ("Unreachable" in state.deadlines and state.phase in {JobPhase.RUNNING, JobPhase.HELD},)
    if state.waiting is not None and state.phase is JobPhase.PENDING:
        waits += (state.waiting.released, "Release" in state.deadlines)
    if state.phase in {JobPhase.SAVING, JobPhase.HELD} and incident is not None:
        waits += (state.coordinator > incident.number,)
    if state.phase is JobPhase.UNPROTECTED:
        waits += (state.blind,)
    if state.phase is JobPhase.HELD and incident is not None:
        waits += (state.going_on in UNTRAINED, state.is_untrained or state.blind)
    if state.phase is JobPhase.RUNNING:
        waits += (state.smaller is not None, state.smaller is not None and bool(state.smaller.capacity_ms))
    waits += ("Fit" in state.deadlines and state.phase is JobPhase.RESTARTING,)
    if state.phase is JobPhase.ENDING and state.ending is not None:
        waits += (state.ending.saved,)
    gone = state.shrunk
    if gone is not None and state.phase in {JobPhase.SHRINKING, JobPhase.SHRUNK}:
        waits += (set(gone.nodes) <= {*gone.lost_nodes},)
    return (state.phase, inner, gone is not None and 1 + bool(gone.capacity_ms), waits)


WORLDS: tuple[tuple[Policy, ClusterView], ...] = (
    (POLICIES[0], VIEW),
    (POLICIES[0], replace(VIEW, free_nodes=0)),
    (POLICIES[0], replace(VIEW, step=-1, coordinator_ready=False, free_nodes=None, node_names={})),
    *((policy, VIEW) for policy in POLICIES[1:]),
    *((policy, replace(VIEW, coordinator_ready=False)) for policy in (POLICIES[2], POLICIES[3], POLICIES[8])),
    (POLICIES[0], replace(VIEW, start_sign_ms=10**9)),  # later than anything in a walk
    *((policy, replace(VIEW, relieved_heard=True)) for policy in (POLICIES[0], *POLICIES[6:])),
)
RESIZING = small_policy(
    sizes=policy_from_spec(spec(elastic={"restartSize": "Available"})).sizes, expand_delay_seconds=0
)
"""A start anew may have fewer nodes."""
SMALLER_WORLDS: tuple[tuple[Policy, ClusterView], ...] = (
    (RESIZING, replace(VIEW, free_nodes=2, start_nodes=3)),
    (RESIZING, replace(VIEW, free_nodes=2, start_nodes=4, coordinator_ready=False)),
)
"""They matter only to a job that was started smaller, or may be."""


def smaller_jobs() -> Iterator[tuple[JobState, int]]:
    """Build a job whose next start waits for all of its nodes, and one that was started anew without one and trains."""
    trains = (e.PodsReady(), e.AllRanksStarted(), e.Resumed(step=6))
    again = (e.RestartRequested(), e.ResultReported(code=0, strategy="dump"))
    ends = (e.PlacesMissing(message="no node"),), trains
    for end, (policy, view) in zip(ends, (WORLDS[0], SMALLER_WORLDS[0]), strict=True):
        state, now = JobState(), 0
        for event in (e.Accepted(), *trains, *again, *end):
            now += 10
            state = advance_job(state, event, view, policy, now).state
        yield advance_job(state, e.PolicyChanged(), view, RESIZING, now).state, now


WHOLE = 4
"""The first states of a phase meet every world, whatever part of them the others meet."""
PART = 5
"""The others meet a fifth each: they reach every row in a third of the time."""

Look = Callable[[JobState, e.JobEvent, Transition, Policy, int], None]


@dataclass
class Walk:
    """Everything reachable from a new job under any policy and view: states by shape, rows that answered.

    `look` sees each transition: the state before it, the event, the policy, the time in ms.
    """

    look: Look = lambda *_: None
    states: dict[tuple[object, ...], tuple[JobState, int]] = field(default_factory=dict)
    rows: dict[int, TableRow] = field(default_factory=dict)
    cells: set[tuple[JobPhase, type[e.JobEvent]]] = field(default_factory=set)

    def run(self, part: int = PART) -> Walk:
        """Walk breadth first, with one state for each shape; rows and cells of earlier walks are kept."""
        first = JobState()
        queue = deque([(first, 0), *smaller_jobs()])
        self.states = {shape(state): (state, now) for state, now in queue}
        met: Counter[JobPhase] = Counter()
        while queue:
            state, now = queue.popleft()
            met[state.phase] += 1
            own = zlib.crc32(repr(shape(state)).encode())  # another state, or row, leaves the part of this one as it is
            worlds = WORLDS if met[state.phase] <= WHOLE else WORLDS[own % part :: part]
            if state.smaller is not None or "Fit" in state.deadlines:
                worlds += SMALLER_WORLDS
            for event in every_event(state):
                at = due_time(state, event, now)
                alone = len(CELLS[state.phase, type(event)]) == 1  # then no policy and no view can matter
                for policy, view in WORLDS[:1] if alone else worlds:
                    transition = advance_job(state, event, view, policy, at)
                    self.look(state, event, transition, policy, at)
                    self.rows[id(transition.row)] = transition.row
                    self.cells.add((state.phase, type(event)))
                    key = shape(transition.state)
                    if key not in self.states:
                        self.states[key] = (transition.state, at)
                        queue.append((transition.state, at))
        return self
