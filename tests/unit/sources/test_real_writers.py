"""What MindCluster's programs write where the format alone would lead astray."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.domain.facts import Source
from hajob.domain.hardware import ClusterFact, Level
from hajob.faults.rules.cluster_faults import ClusterFaults
from hajob.faults.rules.filters import FrequencySettings
from hajob.sources import registry
from hajob.sources.fault_codes import FaultCodes
from hajob.sources.reading import Reading, Terms
from tests.rigs import hardware_objects as objects

TERMS = Terms(objects.NOW_MS)


def read(raw: dict[str, Any]) -> Reading:
    return registry.read_object(raw, TERMS)


def told(raw: dict[str, Any], terms: Terms = TERMS) -> list[tuple[str, Level | None, bool]]:
    return [(fact.code, fact.level, fact.harms) for fact in registry.read_object(raw, terms).facts]


def gathered(*faults: Any, unhealthy: str = "Ascend910-3") -> dict[str, Any]:
    """As ClusterD gathers a node."""
    info = {"DeviceList": objects.device_list(*faults, unhealthy=unhealthy), "UpdateTime": 1}
    name = "cluster-info-device-0"
    return objects.config_map(name, {name: objects.compact({"mindx-dl-deviceinfo-node-1": info})})


def isolated_by_clusterd(**more: Any) -> Any:
    return objects.fault(level="ManuallySeparateNPU", code="", fault_time_and_level_map={}) | more


def test_a_chip_that_clusterd_isolates_has_a_level_and_no_code() -> None:
    assert told(gathered(isolated_by_clusterd())) == [("", Level.MANUALLY_SEPARATE, True)]


def test_an_isolated_chip_keeps_its_milder_fault_beside_it() -> None:
    mild = {"80E18005": {"fault_time": 1, "fault_level": "RestartBusiness"}}
    raw = gathered(isolated_by_clusterd(fault_code="80E18005", fault_time_and_level_map=mild))
    assert told(raw) == [("80E18005", Level.RESTART_BUSINESS, True), ("", Level.MANUALLY_SEPARATE, True)]


def test_an_admins_milder_level_is_not_undone_by_the_whole() -> None:
    terms = Terms(objects.NOW_MS, FaultCodes({"40F84E00": Level.RESTART_REQUEST}))
    raw = objects.device_info(objects.fault(level="RestartNPU", code="40F84E00"))
    assert told(raw, terms) == [("40F84E00", Level.RESTART_REQUEST, True)]


@pytest.mark.parametrize("word", ["NormalNPU", "NormalNetwork"])
def test_an_unhealthy_chip_that_is_called_normal_is_kept_out(word: str) -> None:
    reading = read(objects.device_info(objects.fault(level=word, code="", fault_time_and_level_map={})))
    assert ([fact.level for fact in reading.facts], reading.rejected) == ([Level.PRE_SEPARATE], [])


def test_a_raised_code_in_small_letters_is_the_same_fault() -> None:
    entry = {"upgrade_time": 1, "fault_code": "80e18005", "fault_level": "ManuallySeparateNPU", "upgrade_type": "x"}
    fault = objects.fault(level="RestartBusiness", code="80E18005")
    raw = objects.device_info(fault, UpgradeFaultReason=objects.compact({"Ascend910-3": [entry]}))
    assert told(raw) == [("80E18005", Level.MANUALLY_SEPARATE, True)]


@pytest.mark.parametrize("name", ["cluster-info-device-1", "cluster-info-switch-0", "cluster-info-node-cm"])
def test_an_empty_map_of_clusterd_is_a_healthy_cluster(name: str) -> None:
    reading = read(objects.config_map(name, {name: ""}))
    assert (reading.facts, reading.rejected) == ([], [])


# ------------------------------------------------------------------ a public fault, told twice


def repeated_by_clusterd() -> dict[str, Any]:
    """ClusterD joins public faults to those of the device plugin, with their times in seconds."""
    times = {"220001001": {"fault_time": objects.FAULT_TIME // 1000, "fault_level": "SeparateNPU"}}
    one = objects.fault(level="SeparateNPU", code="220001001", fault_time_and_level_map=times, fault_type="PublicFault")
    return gathered(one, {**one, "npu_name": "Ascend910-0"})


def hears(*raws: dict[str, Any]) -> tuple[ClusterFaults, list[ClusterFact]]:
    faults = ClusterFaults({"node-1"})
    faults.frequency.settings = FrequencySettings(2)
    for number, raw in enumerate(raws):
        faults.store_object(f"{number}", read(raw), 0, keeps="any-name" in str(raw))
    return faults, list(faults.faults_on_node("node-1", 0))


def test_a_public_fault_that_clusterd_alone_tells_counts() -> None:
    _, facts = hears(repeated_by_clusterd())
    assert [(fact.source, fact.since_ms) for fact in facts if fact.code] == [(Source.PUBLIC, objects.FAULT_TIME)] * 2


@pytest.mark.parametrize("turned", [False, True])
def test_a_public_fault_that_is_read_twice_counts_once(turned: bool) -> None:
    raws = [objects.public(objects.public_fault()), repeated_by_clusterd()]
    _, facts = hears(*(reversed(raws) if turned else raws))
    assert [fact.id.partition("/")[0] for fact in facts if fact.code] == ["public", "public"]
    assert not any(fact.frequent for fact in facts)


@pytest.mark.parametrize(("text", "is_taken"), [("光模块\u3000故障\u00a0(口 5)", True), ("two\nlines", False)])
def test_white_space_of_a_description_is_gos(text: str, is_taken: bool) -> None:
    assert bool(told(objects.public(objects.public_fault(description=text)))) is is_taken
