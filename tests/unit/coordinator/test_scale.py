"""What one agent says costs the same however many agents there are."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from e2e.bench.coordinator_scale import Scale
from hajob.protocol import sidecar_pb2 as pb


def calls(act: Callable[[], object]) -> int:
    """How many functions are called by `act`: what does not depend on the machine."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


def started(nodes: int) -> Scale:
    scale = Scale(nodes)
    scale.start()
    return scale


def one(scale: Scale, what: str) -> int:
    steps = [pb.StepFinished(rank=8 * 5 + place, step=1) for place in range(8)]
    acts: dict[str, Callable[[], object]] = {
        "heartbeat": lambda: scale.heartbeats(range(5, 6)),
        "steps": lambda: scale.turn("", "apply_agent_report", "pod-5", scale.report(5, pb.LINKED, steps=steps)),
    }
    return calls(acts[what])


@pytest.mark.parametrize("what", ["heartbeat", "steps"])
def test_a_message_costs_the_same_beside_many_agents(what: str) -> None:
    assert one(started(128), what) <= 1.5 * one(started(16), what)


def test_a_start_costs_in_proportion_to_the_agents() -> None:
    few, many = (calls(lambda nodes=nodes: started(nodes)) for nodes in (16, 128))  # type: ignore[misc]
    assert many <= 1.5 * 8 * few


def test_a_report_makes_anew_only_the_nodes_that_changed() -> None:
    scale = started(16)
    pods = list(scale.core.job.roster.pods.values())
    before = [pod.node_state(connected=True) for pod in pods]
    told = scale.report(5, pb.LINKED)
    for rank in told.ranks:
        rank.step = 1
    scale.turn("", "apply_agent_report", "pod-5", told)
    scale.turn("", "apply_agent_report", "pod-6", scale.report(6, pb.LINKED))
    after = [pod.node_state(connected=True) for pod in pods]
    assert [node for node in range(16) if before[node] is not after[node]] == [5]
    assert {rank.step for rank in scale.core.next_report(scale.now).state.nodes[5].ranks} == {1}
