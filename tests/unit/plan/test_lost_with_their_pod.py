"""Processes that end with their container: no new one is tried there, and the pod names the cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.domain.actions import Action
from hajob.domain.facts import FactKind, Source
from hajob.plan import events as e
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources import observe, report
from hajob.sources.pod import PodView
from tests.rigs.plan_rig import Rig

POD = PodView("ns", "pod-2", "uid-2", "job", "rank", 2, 1, phase="Running", address="10.0.0.1", node_name="node-2")
OOM = replace(POD, phase="Failed", exit_code=137, trouble_code="OOMKilled", trouble="container trainer: OOMKilled")
EVICTED = replace(POD, phase="Failed", trouble_code="Evicted", trouble="memory pressure")
DRAINED = replace(POD, deleting=True, disruption="EvictionByEvictionAPI", disruption_text="Eviction API: evicting")


def exits(rig: Rig, code: str, exit_code: int) -> None:
    """Both ranks of node rank 2 end, as the agent tells it."""
    facts = [
        wire.Fact(id=f"exit-{rank}", kind=wire.PROCESS_EXITED, node_rank=2, ranks=[rank], incarnation=1, code=code,
                  exit_code=exit_code, message="the container", unexplained=True)
        for rank in (4, 5)
    ]  # fmt: skip
    state = wire.CoordinatorState(incarnation=1, attempt=1)
    for seen in observe.events_of_report(wire.Report(state=state, facts=facts), {2: POD}, rig.now + 20).observed:
        assert seen.event is not None
        rig.tell(seen.event)


@pytest.mark.parametrize(("code", "exit_code"), [("ContainerStopped", -15), ("ContainerKilled", -9)])
def test_no_process_is_tried_in_a_container_that_has_ended(code: str, exit_code: int) -> None:
    rig = Rig.running()
    exits(rig, code, exit_code)
    assert (rig.action, rig.incident.escalated_from) == (Action.REPLACE, ())
    assert (rig.incident.cause.code, rig.incident.cause.num_ranks, rig.incident.replaced_nodes) == (code, 2, (2,))
    assert rig.state.restarts_program == 0


@pytest.mark.parametrize(
    ("pod", "code", "words"),
    [
        pytest.param(OOM, "OOMKilled", "container trainer: OOMKilled", id="out of memory"),
        pytest.param(EVICTED, "Evicted", "memory pressure", id="evicted"),
        pytest.param(DRAINED, "EvictionByEvictionAPI", "Eviction API: evicting", id="drained"),
    ],
)
def test_the_pod_names_the_cause_when_its_ranks_are_replaced(pod: PodView, code: str, words: str) -> None:
    rig = Rig.running()
    exits(rig, "ContainerKilled", -9)
    number, node = rig.incident.number, rig.incident.cause.node_name
    for event in observe.events_of_old_pod(pod, rig.now + 30):
        rig.tell(event)
    cause = rig.incident.cause
    assert (cause.source, cause.code, cause.node_name) == (Source.POD, code, node)
    assert words in cause.message
    assert (cause.first_rank, cause.num_ranks, rig.incident.number) == (4, 2, number)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(replace(OOM, node_name="node-1", node_rank=1), id="of another node"),
        pytest.param(replace(POD, phase="Failed", exit_code=137, trouble_code="Error"), id="that only failed"),
        pytest.param(replace(POD, deleting=True), id="that we delete"),
    ],
)
def test_a_pod_that_tells_nothing_of_it_leaves_the_cause(pod: PodView) -> None:
    rig = Rig.running()
    exits(rig, "ContainerKilled", -9)
    for event in observe.events_of_old_pod(pod, rig.now + 30):
        rig.tell(event)
    assert rig.incident.cause.code == "ContainerKilled"


def test_a_killed_trainer_tells_before_its_pod_fails() -> None:
    (seen,) = observe.events_of_pod(replace(OOM, phase="Running"), deleted=False, now_ms=5)
    assert isinstance(seen, e.FactSeen)
    assert (seen.fact.kind, seen.fact.code) == (FactKind.POD_FAILED, "OOMKilled")


def test_an_ordinary_exit_stays_one_of_the_process() -> None:
    fact = wire.Fact(id="x", kind=wire.PROCESS_EXITED, ranks=[4], node_rank=2, code="exit 1", exit_code=1)
    (seen,) = report.read_report(wire.Report(facts=[fact]), 5).observed
    assert isinstance(seen.event, e.FactSeen)
    assert seen.event.fact.kind is FactKind.PROCESS_EXITED


GONE = replace(POD, deleting=True, disruption="DeletionByTaintManager", disruption_text="Taint manager: deleting")


@pytest.mark.parametrize(
    ("pod", "code"),
    [
        pytest.param(EVICTED, "Evicted", id="evicted"),
        pytest.param(OOM, "OOMKilled", id="out of memory"),
        pytest.param(GONE, "AgentSilent", id="because nothing is heard of its node"),
        pytest.param(replace(EVICTED, node_name="node-1", node_rank=1), "AgentSilent", id="of another node"),
        pytest.param(replace(POD, deleting=True), "AgentSilent", id="that we delete"),
    ],
)
def test_a_pod_that_was_taken_explains_its_agents_silence(pod: PodView, code: str) -> None:
    """Killed together, none of its containers tells anything: a kubelet that evicts for memory leaves them no time."""
    rig = Rig.running()
    rig.silent(2)
    for event in observe.events_of_old_pod(pod, rig.now + 30):
        rig.tell(event)
    assert (rig.incident.cause.code, rig.action) == (code, Action.REPLACE)


def test_what_survivors_print_does_not_explain_a_silence() -> None:
    rig = Rig.running()
    rig.silent(2)
    rig.exits(0, 1, message="the peer has closed the connection")
    assert rig.incident.cause.code == "AgentSilent"
