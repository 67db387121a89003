"""A fault of a chip or node becomes a fact of the job whose pod sits there."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hajob.domain.facts import Fact, FactKind, Source
from hajob.domain.hardware import ClusterFact, Level, harms_job, kind_of_level
from hajob.plan.events import FactSeen
from hajob.sources import hardware, pod
from hajob.sources.hardware import Seat
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView
from tests.rigs import hardware_objects as objects

POD = PodView("ns", "job-2", "uid-2", "job", "rank", 2, 7, node_name="node-1", chips=("3", "0"), started_ms=0)
CHIPS = "huawei.com/Ascend910"
NODE = NodeView("node-1", chips={CHIPS: 7}, all_chips={CHIPS: 8, "rdma/hca": 1})


def fault(level: Level = Level.RESTART_BUSINESS, device: str = "Ascend910-0") -> ClusterFact:
    kind = kind_of_level(level)
    return ClusterFact("node/node-1/x", Source.DEVICE, kind, "node-1", device, "c", level, 5, harms_job(level), "text")


def seen(fact: ClusterFact, of: PodView = POD, age_ms: int = 100) -> list[Fact]:
    events = hardware.events_of_pod_hardware(of, [(fact, age_ms)], NODE, resource=CHIPS, chips_per_node=2, now_ms=1000)
    return [event.fact for event in events if isinstance(event, FactSeen)]


def test_a_chip_fault_names_the_rank_on_the_chip() -> None:
    (fact,) = seen(fault())
    assert (fact.ranks, fact.node_rank, fact.kind) == ((5,), 2, FactKind.CHIP_ERROR)
    assert (fact.time_ms, fact.code, fact.node_name) == (900, "c", "node-1")


def test_a_fault_of_another_chip_is_none_of_ours() -> None:
    assert seen(fault(device="Ascend910-7")) == []


@pytest.mark.parametrize("number", [*range(8)])
def test_a_pod_whose_chips_nobody_told_is_not_hit(number: int) -> None:
    """Nor one that has the only network adapter of its node."""
    some = dataclasses.replace(POD, chips=(), requests=((CHIPS, 2), ("rdma/hca", 1)))
    chip = fault(device=f"Ascend910-{number}")
    assert seen(chip, some) == []
    assert all(hardware.seat_of_pod(some, chip.chip_number, node, CHIPS) is Seat.UNKNOWN for node in (NODE, None))


def test_a_pod_with_every_chip_of_its_node_has_this_one_too() -> None:
    """Whatever their numbers; the sick one counts, though the device plugin does not offer it any more."""
    whole = dataclasses.replace(POD, chips=(), requests=(("huawei.com/Ascend910", 8),))
    (fact,) = seen(fault(), whole)
    assert (fact.ranks, fact.node_rank) == ((), 2)
    rest = dataclasses.replace(whole, requests=(("huawei.com/Ascend910", 7),))
    assert seen(fault(), rest) == []


@given(
    chips=st.lists(st.integers(0, 15).map(str), unique=True, max_size=8).map(tuple),
    number=st.integers(0, 15),
    node_rank=st.integers(0, 3),
    chips_per_node=st.integers(1, 8),
)
def test_a_fault_names_no_rank_of_another_node(
    chips: tuple[str, ...], number: int, node_rank: int, chips_per_node: int
) -> None:
    """A second container may have chips as well: then the pod has more of them than ranks."""
    pod = dataclasses.replace(POD, chips=chips, node_rank=node_rank)
    fact = (fault(device=f"Ascend910-{number}"), 100)
    for event in hardware.events_of_pod_hardware(
        pod, [fact], NODE, resource=CHIPS, chips_per_node=chips_per_node, now_ms=1000
    ):
        assert isinstance(event, FactSeen)
        assert str(number) in chips
        assert all(rank // chips_per_node == node_rank for rank in event.fact.ranks)
        assert bool(event.fact.ranks) is (len(chips) == chips_per_node)


def test_a_fact_begins_when_the_pod_came_to_the_fault() -> None:
    (fact,) = seen(fault(), dataclasses.replace(POD, started_ms=700), age_ms=2_538_013)
    assert fact.time_ms == 700
    (fact,) = seen(fault(), dataclasses.replace(POD, started_ms=None), age_ms=2_538_013)
    assert fact.time_ms == 1000  # the kubelet has not taken it yet
    (fact,) = seen(fault(), dataclasses.replace(POD, started_ms=5_000), age_ms=100)
    assert fact.time_ms == 1000  # the node's clock is ahead


def test_a_fault_of_the_node_hits_the_whole_pod() -> None:
    cpu = dataclasses.replace(fault(Level.SEPARATE), source=Source.NODE_HARDWARE, device="CPU-0")
    (fact,) = seen(cpu)
    assert (fact.ranks, fact.kind) == ((), FactKind.CHIP_FAULT)


def test_what_harms_nobody_is_no_fact() -> None:
    assert seen(fault(Level.PRE_SEPARATE)) == []


def test_the_same_fault_has_the_same_id_for_a_pod() -> None:
    first, again = seen(fault()), seen(fault(), age_ms=9000)
    other = seen(fault(), dataclasses.replace(POD, uid="uid-3"))
    assert first[0].id == again[0].id != other[0].id


def test_a_pod_tells_its_chips_by_its_annotations() -> None:
    assert pod.pod_view_of(objects.pod()).chips == ("3", "0")
    raw = objects.pod()
    raw["metadata"]["annotations"] = {"huawei.com/AscendReal": "Ascend910-4,Ascend910-6"}
    assert pod.pod_view_of(raw).chips == ("4", "6")


@pytest.mark.parametrize("resource", ["huawei.com/Ascend910", "huawei.com/Ascend910B3", "huawei.com/npu"])
def test_annotations_are_named_after_the_pods_resource(resource: str) -> None:
    raw = objects.pod()
    raw["spec"]["containers"] = [{"name": "trainer", "resources": {"limits": {resource: "2"}}}]
    raw["metadata"]["annotations"] = {"huawei.com/AscendReal": ",", resource: "Ascend910-1,Ascend910-5"}
    assert pod.pod_view_of(raw).chips == ("1", "5")
    raw["metadata"]["annotations"] = {"example.com/other": "x-1"}
    assert pod.pod_view_of(raw).chips == ()


@pytest.mark.parametrize("kind", ["910", "npu", "910b3"])
def test_devices_are_listed_under_the_name_of_their_kind(kind: str) -> None:
    raw = objects.pod()
    devices = {"devices": [{"device_id": "6"}, {"device_id": "2"}]}
    raw["metadata"]["annotations"] = {f"ascend.kubectl.kubernetes.io/ascend-{kind}-configuration": json.dumps(devices)}
    assert pod.pod_view_of(raw).chips == ("6", "2")
