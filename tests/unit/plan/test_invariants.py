"""Rules that hold everywhere: no transition of any cell of the table breaks one, whatever policy, layout and budgets.

Each state is met as it is, and with all budgets spent and a node unreachable, as no walk gets that far by itself. The
histories of test_histories.py and every event that a rig is told (tests/rigs/plan_rig.py) are checked, too.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from hajob.domain.facts import FactKind
from hajob.domain.layout import Layout
from hajob.plan import events as e
from hajob.plan.context import Transition
from hajob.plan.invariants import HOLD, Step, broken_rules
from hajob.plan.machine import CELLS, advance_job
from hajob.plan.policy import (
    DEFAULT_ACTION_LIMITS,
    MAINTENANCE_LIMIT,
    ActionLimits,
    CoordinatorLossPolicy,
    Mode,
    NodePolicy,
    Policy,
)
from hajob.plan.state import MAINTENANCE_BUDGET, PROGRAM_BUDGET, JobPhase, JobState, Spend
from hajob.plan.view import ClusterView
from tests.rigs.plan_worlds import (
    LAYOUT,
    RESIZING,
    VIEW,
    due_time,
    every_event,
    fact,
    shape,
    small_policy,
    smaller_jobs,
)

ODD_LAYOUTS = (
    Layout(num_nodes=8, chips_per_node=2, tensor=4),
    Layout(num_nodes=4, chips_per_node=4, tensor=2),
    Layout(num_nodes=5, chips_per_node=2, tensor=2),
)
"""Two pods for each data-parallel rank, half a pod, and an odd number of them."""
SEED = 26


def policies() -> Iterator[Policy]:
    """Every mode with budgets of 2, 1 and 0, and the other ways to answer a lost coordinator and a sick node."""
    for most in (2, 1, 0):
        limits = {action: ActionLimits(most, 3600, 60) for action in DEFAULT_ACTION_LIMITS}
        for mode in Mode:
            yield small_policy(limits=limits, mode=mode, release_shrunk_pods=most == 2, expand_delay_seconds=0)
    yield small_policy(coordinator_loss=CoordinatorLossPolicy.IMMEDIATELY, sub_health=NodePolicy.EVICT)


def worlds(layout: Layout) -> list[tuple[Policy, ClusterView]]:
    names = {node: f"node-{node}" for node in range(layout.num_nodes)}
    whole = replace(VIEW, layout=layout, node_names=names)
    views = (
        whole,
        replace(whole, free_nodes=0),
        replace(whole, coordinator_ready=False),
        replace(whole, step=-1, coordinator_ready=False, free_nodes=None, node_names={}),
        replace(whole, relieved_heard=True),
        replace(whole, start_sign_ms=10**9),
    )
    return [(policy, view) for view in views for policy in policies()]


def worn(state: JobState, policy: Policy, now_ms: int) -> JobState:
    """The same state with nothing left of any budget, and ranks of before that may live on a node."""
    budgets = {action.value: limit.max_count for action, limit in policy.limits.items()}
    budgets |= {PROGRAM_BUDGET: policy.max_program_failures, MAINTENANCE_BUDGET: MAINTENANCE_LIMIT}
    spent = tuple(Spend(name, now_ms - 1000) for name, most in budgets.items() for _ in range(most))
    return replace(state, spent=spent, unreachable={"node-9": now_ms - 1000})


def events_of(state: JobState) -> Iterator[e.JobEvent]:
    """The events of the walk over the table, and faults for which the coordinator has opened an incident by itself."""
    yield from every_event(state)
    for seen in (
        fact(FactKind.PROCESS_EXITED, state),
        fact(FactKind.AGENT_SILENT, state, node=3),
        fact(FactKind.CONTROLLER_LOST, state),
    ):
        yield replace(seen, incarnation=state.incarnation + 1)
    number = state.incident.incarnation if state.incident is not None else 0
    if state.shrunk is not None:
        for more in ((), (6,)):  # what Hajob expects, and half a pod more
            yield e.ResultReported(number, 201, "", "downgrade", (*state.shrunk.ranks, *more))


def kind(state: JobState) -> tuple[object, ...]:
    """What tells states apart for a rule: coarser than the shape of the walk."""
    incident = state.incident
    inner = (incident.purpose, incident.action) if incident is not None else ()
    sizes = (state.shrunk is None, state.smaller is None, bool(state.released))
    return (state.phase, inner, *sizes, state.is_untrained, state.blind)


@dataclass
class Search:
    """A walk over everything reachable in a layout, which keeps what is broken.

    Attributes:
        states: so many of a kind meet each event.
        times: so many policies and views each of them meets.
        broken: the first of each sort: rule, state, event and row.
    """

    layout: Layout
    states: int
    times: int
    chance: Random = field(default_factory=lambda: Random(SEED))
    cells: set[tuple[JobPhase, type[e.JobEvent]]] = field(default_factory=set)
    broken: dict[tuple[object, ...], str] = field(default_factory=dict)

    def run(self) -> Search:
        """Walk breadth first, with one state for each shape."""
        queue = deque([(JobState(), 0), *(smaller_jobs() if self.layout == LAYOUT else ())])
        known, met = {shape(state) for state, _ in queue}, Counter[tuple[object, ...]]()
        around = worlds(self.layout)
        while queue:
            state, now = queue.popleft()
            for place, event in enumerate(events_of(state)):
                key = (kind(state), type(event), place)
                met[key] += 1
                if met[key] > self.states:
                    continue
                at = due_time(state, event, now)
                self.cells.add((state.phase, type(event)))
                for policy, view in self.chance.sample(around, self.samples(state, event, len(around))):
                    done = self.look(state, event, *self.fitting(state, policy, view), at)
                    self.look(worn(state, policy, at), event, *self.fitting(state, policy, view), at)
                    if (found := shape(done.state)) not in known:
                        known.add(found)
                        queue.append((done.state, at))
        return self

    def samples(self, state: JobState, event: e.JobEvent, most: int) -> int:
        """How many policies and views this event meets in this state."""
        if len(CELLS[state.phase, type(event)]) == 1:
            return 1  # no policy and no view can matter
        # Few of them let a job grow, and nothing else leads to the cells of its growth.
        return most if state.phase is JobPhase.SHRUNK else self.times

    def fitting(self, state: JobState, policy: Policy, view: ClusterView) -> tuple[Policy, ClusterView]:
        """A job that was started smaller has a layout of its own."""
        if state.smaller is None and "Fit" not in state.deadlines:
            return policy, view
        layout = replace(self.layout, num_nodes=state.nodes or self.layout.num_nodes)
        return replace(policy, sizes=RESIZING.sizes), replace(view, layout=layout, start_nodes=3, free_nodes=2)

    def look(self, state: JobState, event: e.JobEvent, policy: Policy, view: ClusterView, at: int) -> Transition:
        """Let something happen, and ask for broken rules."""
        done = advance_job(state, event, view, policy, at)
        for words in broken_rules(Step(state, event, done, view.layout, policy, at)):
            sort = (words.split(":")[0], state.phase, type(event).__name__, done.row.handler.name)
            self.broken.setdefault(sort, f"{words}\n{policy.mode} {event}\n{state}")
        return done


def test_no_cell_breaks_a_rule() -> None:
    search = Search(LAYOUT, states=2, times=3).run()
    assert not search.broken
    assert search.cells == set(CELLS)


@pytest.mark.parametrize("layout", ODD_LAYOUTS)
def test_no_cell_breaks_a_rule_in_an_odd_layout(layout: Layout) -> None:
    assert not Search(layout, states=1, times=2).run().broken


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.HOLD])
def test_a_fault_that_is_held_back_is_kept(mode: Mode) -> None:
    state = JobState(phase=JobPhase.RUNNING, incarnation=1, attempt=1, base=1, step=5)
    seen = fact(FactKind.PROCESS_EXITED, state)
    done = advance_job(state, seen, VIEW, small_policy(mode=mode), 10)
    assert done.row is HOLD
    assert done.state.incident is not None
    assert done.state.incident.fact_ids == (seen.fact.id,)
