"""What a snapshot of a job tells the planner, and its coordinator: a snapshot in, events and messages out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.domain.facts import FactKind, Source
from hajob.domain.hardware import ClusterFact
from hajob.faults.node_faults import NodeFaults
from hajob.job import observe
from hajob.job.orders import build_assignment
from hajob.job.pod_index import coordinator_name
from hajob.job.snapshot import JobSnapshot
from hajob.leader.reachability import Reach
from hajob.plan.state import JobPhase, JobState, Waiting
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView
from tests.rigs.example_jobs import UID, example_job
from tests.rigs.snapshots import NOW, RUNNING, rank, snapshot

PENDING = replace(RUNNING, phase=JobPhase.PENDING, apart=True)
WAITING = replace(PENDING, waiting=Waiting(since_ms=4_000_000))
RANKS = [rank(number) for number in range(4)]


def coordinator(**fields: Any) -> PodView:
    """Return the coordinator's pod of the first start; `fields`: what is different."""
    name = coordinator_name(example_job("quickstart"), RUNNING)
    pod = PodView("team-a", name, f"uid-of-{name}", UID, names.ROLE_COORDINATOR, -1, 1, phase="Running")
    return replace(pod, **{"node_name": "node-9", **fields})


def kinds(seen: observe.Seen) -> list[str]:
    return [type(one).__name__ for one in seen]


@pytest.mark.parametrize(
    ("state", "last", "seen"),
    [
        (PENDING, rank(3), []),
        (PENDING, rank(3, node_name="", unschedulable="0/9 nodes are available"), ["PlacesMissing"]),
        (RUNNING, rank(3, node_name="", unschedulable="0/9 nodes are available"), []),
        (WAITING, rank(3, node_name=""), []),
        (WAITING, rank(3), ["PlacesFound"]),
    ],
)
def test_a_start_waits_for_the_place_of_its_last_pod(state: JobState, last: PodView, seen: list[str]) -> None:
    taken = snapshot(state=state, pods=[*RANKS[:3], last, coordinator()])
    assert kinds(observe.events_of_places(taken)) == seen


@pytest.mark.parametrize(("room", "seen"), [(True, ["CoordinatorUnplaced"]), (False, [])])
def test_a_coordinator_that_keeps_a_rank_off_must_move(room: bool, seen: list[str]) -> None:
    kept_off = rank(3, node_name="", unschedulable="1 node(s) didn't match pod anti-affinity rules")
    taken = snapshot(state=PENDING, pods=[*RANKS[:3], kept_off, coordinator()], dear={"has_room_on": lambda _: room})
    assert kinds(observe.events_of_coordinator_place(taken)) == seen


@pytest.mark.parametrize(
    ("pod", "silent", "seen"),
    [
        (coordinator(), 0, ["CoordinatorUnreachable"]),
        (coordinator(), 3, []),  # so many are silent that it is this operator that hears nothing
        (coordinator(phase="Pending"), 0, []),  # it may be pulling images
    ],
)
def test_only_a_coordinator_that_runs_is_out_of_reach(pod: PodView, silent: int, seen: list[str]) -> None:
    taken = snapshot(pods=[pod], nodes=[NodeView("node-9")])
    taken.coordinator.note_dialled_pod(1, "10.0.0.9:7070")
    taken.coordinator.note_connection_change(False, "no route")
    taken.cluster.suspicion.update_suspicion(Reach(3, silent), NOW)
    assert kinds(observe.events_of_channel(taken)) == seen


class SickNode(NodeFaults):
    """A node of poor health."""

    def faults_on(self, node: str) -> list[tuple[ClusterFact, int]]:
        sick = ClusterFact("sick", Source.DEVICE, FactKind.SUB_HEALTH, node, message="it is slow")
        return [(sick, 0)] if node == "node-1" else []


def beside_a_sick_node(**fields: Any) -> JobSnapshot:
    spec = {"recovery": {"subHealthPolicy": "Migrate"}}
    taken = snapshot(spec, pods=RANKS, dear={"free_node_names": {"node-8"}}, **fields)
    taken.cluster.faults = SickNode()
    taken.cluster.marks = replace(taken.cluster.marks, sub_healthy=frozenset({"node-1"}))
    return taken


def test_a_better_node_is_asked_for_now_and_then() -> None:
    (asked,) = observe.events_of_sub_health(first := beside_a_sick_node())
    assert (asked.fact.kind, asked.fact.node_rank) == (FactKind.SUB_HEALTH, 1)
    assert list(observe.events_of_sub_health(first)) == []
    later = beside_a_sick_node(now=NOW + observe.AGAIN_SECONDS, observed=first.observed)
    (again,) = observe.events_of_sub_health(later)
    assert again.fact.id != asked.fact.id


def test_an_assignment_names_the_pods_that_have_not_ended() -> None:
    built = build_assignment(snapshot(pods=[*RANKS[:2], rank(2, phase="Failed"), coordinator()]), 7)
    assert (built.revision, built.attempt, [pod.node_name for pod in built.pods]) == (7, 1, ["node-0", "node-1"])
