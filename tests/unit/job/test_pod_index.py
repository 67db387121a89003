"""Which pods nobody can reach: those are deleted without waiting for their node. And which ones nobody ever saw."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hajob.api import constants as names
from hajob.job.pod_index import PodIndex
from hajob.plan.state import JobPhase, JobState
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView, pod_view_of

POD = PodView("default", "job-0-a", "uid-0", "job", names.ROLE_RANK, 0, 1, node_name="here")
NODES = {"here": NodeView("here"), "dead": NodeView("dead", ready=False)}


def test_a_pod_on_a_ready_node_is_within_reach() -> None:
    assert not PodIndex().is_unreachable(POD, NODES)


def test_a_pod_on_a_dead_node_or_on_none_that_is_left_is_not() -> None:
    table = PodIndex()
    assert table.is_unreachable(replace(POD, node_name="dead"), NODES)
    assert table.is_unreachable(replace(POD, node_name="deleted"), NODES)


def test_a_pod_whose_agent_is_silent_is_not() -> None:
    table = PodIndex()
    table.silent.add(POD.uid)
    assert table.is_unreachable(POD, NODES)


def test_a_pod_seen_without_a_node_gets_its_grace() -> None:
    """Its containers may have been started since; without grace their chips would be given away while they run."""
    assert not PodIndex().is_unreachable(replace(POD, node_name=""), NODES)


RAW = {"metadata": {"namespace": "default", "name": "job-0-a", "uid": "uid-0", "resourceVersion": "99"}}


@pytest.mark.parametrize(("listed", "is_missed"), [("", False), ("98", False), ("99", True), ("100", True)])
def test_a_pod_is_missing_once_a_newer_list_lacks_it(listed: str, is_missed: bool) -> None:
    """Also where the list was shown before the server's answer to the create came."""
    before, after = PodIndex(), PodIndex()
    before.listed = listed
    before.note_created(RAW)
    after.note_created(RAW)
    after.listed = listed
    assert [bool(table.missed_pods()) for table in (before, after)] == [is_missed, is_missed]


def test_versions_that_are_no_numbers_are_never_compared() -> None:
    table = PodIndex()
    table.note_created({"metadata": {**RAW["metadata"], "resourceVersion": "9a"}})
    table.listed = "9b"
    assert table.missed_pods() == []


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("watch_is_faster", [False, True])
def test_a_pod_that_was_seen_is_not_missed_whichever_came_first(deleted: bool, watch_is_faster: bool) -> None:
    table = PodIndex()
    if not watch_is_faster:
        table.note_created(RAW)
    table.store_pod(pod_view_of(RAW), deleted=False)
    if deleted:
        table.store_pod(pod_view_of(RAW), deleted=True)
    if watch_is_faster:
        table.note_created(RAW)
    table.listed = "100"
    assert (table.missed_pods(), table.made) == ([], {})


pods_seen = st.tuples(st.integers(0, 3), st.integers(1, 3), st.sampled_from(["", "Succeeded"]), st.booleans())
"""Node rank, incarnation, phase, whether it is gone."""
states = st.builds(
    JobState,
    phase=st.sampled_from([JobPhase.RUNNING, JobPhase.SUSPENDED]),
    base=st.integers(1, 2),
    pods=st.dictionaries(st.integers(0, 3), st.integers(1, 3)),
    released=st.sets(st.integers(0, 3), max_size=2).map(tuple),
)


@given(st.lists(st.one_of(pods_seen, states), max_size=20))
@settings(max_examples=500, deadline=None)
def test_who_serves_is_kept_as_it_would_be_counted_anew(told: list[tuple[int, int, str, bool] | JobState]) -> None:
    kept, state = PodIndex(), JobState(phase=JobPhase.RUNNING, base=1)
    for one in told:
        if isinstance(one, JobState):
            state = one
        else:
            node_rank, number, phase, deleted = one
            name = f"job-{node_rank}-{number}"
            pod = replace(POD, name=name, uid=name, node_rank=node_rank, incarnation=number, phase=phase)
            kept.store_pod(pod, deleted=deleted)
        anew = PodIndex()
        anew.pods = kept.pods
        assert kept.serving_pods(state) == anew.serving_pods(state)
