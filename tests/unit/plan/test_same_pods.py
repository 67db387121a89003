"""Whether two states want the same pods: the short answer is the one that naming all of them gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hajob.domain.actions import Action
from hajob.domain.facts import Origin
from hajob.domain.incidents import Cause, Incident, Purpose
from hajob.plan.incident_state import renew_incarnations
from hajob.plan.placements import same_placements
from hajob.plan.state import JobPhase, JobState, Smaller
from tests.rigs.plan_rig import Rig, assert_told_alike

NODES = 4
node_ranks = st.integers(0, NODES)
"""One of them may be out of a job's sight: it was started smaller since."""
numbers = st.integers(0, 3)


def incident(number: int, purpose: Purpose, replaced: tuple[int, ...]) -> Incident:
    """An open one."""
    cause = Cause(code="", message="", time_ms=0, step=0)
    return Incident(number, number, 1, purpose, Origin.PROGRAM, Action.REPLACE, cause, 0, replaced_nodes=replaced)


sets = st.sets(node_ranks).map(sorted).map(tuple)
fields: dict[str, st.SearchStrategy[Any]] = {
    "phase": st.sampled_from(JobPhase),
    "base": numbers,
    "pods": st.dictionaries(node_ranks, numbers),
    "released": sets,
    "avoided": st.dictionaries(st.integers(-1, NODES), st.just(("bad",))),
    "places": st.dictionaries(node_ranks, st.just("spare")),
    "coordinator": numbers,
    "relieved": numbers,
    "apart": st.booleans(),
    "incident": st.none() | st.builds(incident, numbers, st.sampled_from(Purpose), sets),
    "smaller": st.none() | st.builds(Smaller, st.integers(1, NODES), st.integers(0, NODES)),
}
states = st.builds(JobState, **fields)
changes = st.sets(st.sampled_from(sorted(fields)), max_size=3).flatmap(
    lambda names: st.fixed_dictionaries({name: fields[name] for name in names})
)


@given(states, changes)
@settings(max_examples=2000, deadline=None)
def test_of_states_that_follow_one_another(before: JobState, change: dict[str, Any]) -> None:
    assert_told_alike(before, replace(before, **change), NODES)


@given(states, states)
@settings(max_examples=500, deadline=None)
def test_of_any_two_states(before: JobState, after: JobState) -> None:
    assert_told_alike(before, after, NODES)


def test_of_a_thousand_pods_only_those_that_turned_are_looked_at() -> None:
    """However many pods came anew before."""

    class Counted(dict[int, int]):
        """Counts who asks for one of them."""

        asked = 0

        def get(self, key: int, default: Any = None) -> Any:
            self.asked += 1
            return super().get(key, default)

    state = replace(Rig.running().state, pods=Counted(dict.fromkeys(range(500), 2)))
    after = renew_incarnations(state, 5, 3, nodes=(7,))
    assert isinstance(state.pods, Counted)
    assert not same_placements(state, after, 1000)
    assert state.pods.asked == 1
