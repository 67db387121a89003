"""A fault of a chip or node becomes a fact of the job whose pod sits there."""

from __future__ import annotations

import dataclasses

from hajob.domain.facts import Fact, FactKind, Source
from hajob.domain.hardware import ClusterFact, Level, harms, kind_of
from hajob.plan.events import FactSeen
from hajob.sources import observe, pod
from hajob.sources.pod import PodView
from tests.unit.sources import hardware_objects as objects

POD = PodView("ns", "job-2", "uid-2", "job", "rank", 2, 7, node_name="node-1", chips=("3", "0"))


def fault(level: Level = Level.RESTART_BUSINESS, device: str = "Ascend910-0") -> ClusterFact:
    kind = kind_of(level)
    return ClusterFact("node/node-1/x", Source.DEVICE, kind, "node-1", device, "c", level, 5, harms(level), "text")


def seen(fact: ClusterFact, of: PodView = POD, age_ms: int = 100) -> list[Fact]:
    events = observe.of_hardware(of, [(fact, age_ms)], 2, 1000)
    return [event.fact for event in events if isinstance(event, FactSeen)]


def test_a_chip_fault_names_the_rank_on_the_chip() -> None:
    (fact,) = seen(fault())
    assert (fact.ranks, fact.node_rank, fact.kind) == ((5,), 2, FactKind.CHIP_ERROR)
    assert (fact.time_ms, fact.code, fact.node_name) == (900, "c", "node-1")


def test_a_fault_of_another_chip_is_none_of_ours() -> None:
    assert seen(fault(device="Ascend910-7")) == []


def test_a_pod_whose_chips_nobody_told_is_hit_whole() -> None:
    (fact,) = seen(fault(), dataclasses.replace(POD, chips=()))
    assert (fact.ranks, fact.node_rank) == ((), 2)


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
    assert pod.view(objects.pod()).chips == ("3", "0")
    raw = objects.pod()
    raw["metadata"]["annotations"] = {"huawei.com/AscendReal": "Ascend910-4,Ascend910-6"}
    assert pod.view(raw).chips == ("4", "6")
    raw["metadata"]["annotations"] = {"huawei.com/AscendReal": ",", "huawei.com/Ascend910": "x"}
    assert pod.view(raw).chips == ("x",)
