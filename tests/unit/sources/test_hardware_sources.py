"""What each source of hardware faults reads in objects of real shape, and what it refuses."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from hajob.domain.facts import FactKind, Source
from hajob.domain.hardware import Level
from hajob.sources import node, registry
from hajob.sources.check_code import check_codes
from hajob.sources.fault_codes import CodeTable, FaultCodes
from hajob.sources.reading import Reading, RejectionReason, SickCondition, Terms
from tests.rigs import hardware_objects as objects

TERMS = Terms(objects.NOW_MS)


def read(raw: dict[str, Any], terms: Terms = TERMS) -> Reading:
    return registry.read_object(raw, terms)


def told(raw: dict[str, Any], terms: Terms = TERMS) -> list[tuple[str, str, Level | None, bool]]:
    return [(fact.device, fact.code, fact.level, fact.harms) for fact in read(raw, terms).facts]


def reasons(raw: dict[str, Any]) -> list[RejectionReason]:
    return [one.reason for one in read(raw).rejected]


# ------------------------------------------------------------------ device plugin


def test_check_code_is_the_one_that_go_computes() -> None:
    info = {"DeviceList": objects.device_list(), "UpdateTime": 1_767_225_601}
    assert check_codes(info) == (objects.PUBLISHED_CODE,)


def test_go_escapes_what_python_does_not() -> None:
    assert len(set(check_codes({"a": "<&>\u2028"}))) == 1
    assert check_codes({"a": "<"}) != check_codes({"a": "\\u003c"})
    assert len(check_codes({"a": "\b"})) == 2


def test_a_chip_fault_is_read_with_level_code_and_time() -> None:
    found = read(objects.device_info())
    assert found.rejected == []
    (fact,) = found.facts
    assert (fact.source, fact.kind, fact.node) == (Source.DEVICE, FactKind.CHIP_ERROR, "node-1")
    assert (fact.device, fact.code, fact.level) == ("Ascend910-3", "80E01801", Level.RESTART_BUSINESS)
    assert (fact.since_ms, fact.harms) == (objects.FAULT_TIME, True)
    assert found.updated_ms == 1_767_225_601_000


@pytest.mark.parametrize(
    ("level", "kind", "harms"),
    [
        ("NotHandleFault", FactKind.CHIP_ERROR, False),
        ("SubHealthFault", FactKind.SUB_HEALTH, True),
        ("RestartRequest", FactKind.CHIP_ERROR, True),
        ("RestartBusiness", FactKind.CHIP_ERROR, True),
        ("RestartNPU", FactKind.CHIP_FAULT, True),
        ("PreSeparateNPU", FactKind.CHIP_FAULT, False),
        ("SeparateNPU", FactKind.CHIP_FAULT, True),
        ("ManuallySeparateNPU", FactKind.CHIP_FAULT, True),
    ],
)
def test_each_level_says_what_a_job_does(level: str, kind: FactKind, harms: bool) -> None:
    (fact,) = read(objects.device_info(objects.fault(level=level))).facts
    assert (fact.kind, fact.harms) == (kind, harms)


def test_a_free_restart_counts_only_on_an_unhealthy_chip() -> None:
    listed = objects.device_info(objects.fault(level="FreeRestartNPU"))
    healthy = objects.device_info(objects.fault(level="FreeRestartNPU"), unhealthy="")
    assert [fact.harms for fact in (*read(listed).facts, *read(healthy).facts)] == [True, False]


def test_every_code_of_an_entry_is_a_fact_with_its_level() -> None:
    both = {"80E01801": {"fault_time": 1, "fault_level": "RestartBusiness"}, "40F84E00": {"fault_level": "RestartNPU"}}
    raw = objects.device_info(objects.fault(code="80E01801,40F84E00", fault_time_and_level_map=both))
    assert told(raw) == [
        ("Ascend910-3", "80E01801", Level.RESTART_BUSINESS, True),
        ("Ascend910-3", "40F84E00", Level.RESTART_CHIP, True),
    ]


def test_an_unhealthy_chip_without_a_fault_is_kept_out() -> None:
    raw = objects.device_info(objects.fault(), unhealthy="Ascend910-3,Ascend910-5")
    assert told(raw)[1] == ("Ascend910-5", "", Level.PRE_SEPARATE, False)


def test_a_chip_isolated_by_hand_is_a_fact() -> None:
    raw = objects.device_info(objects.fault(), ManuallySeparateNPU="Ascend910-6, ,nonsense")
    assert told(raw)[-1] == ("Ascend910-6", "", Level.MANUALLY_SEPARATE, True)
    assert reasons(raw) == [RejectionReason.UNKNOWN_DEVICE]


def test_a_rule_of_the_plugin_raises_the_level() -> None:
    entry = {
        "upgrade_time": objects.FAULT_TIME,
        "fault_code": "80E01801",
        "fault_level": "ManuallySeparateNPU",
        "upgrade_type": "FaultFrequency",
    }
    raw = objects.device_info(UpgradeFaultReason=objects.compact({"Ascend910-3": [entry, {"fault_code": 1}]}))
    (fact,) = read(raw).facts
    assert (fact.level, fact.message) == (Level.MANUALLY_SEPARATE, "chip Ascend910-3: 80E01801 (it came too often)")
    assert reasons(raw) == [RejectionReason.MALFORMED]


def test_an_edited_object_is_refused_whole() -> None:
    raw = objects.device_info()
    raw["data"]["DeviceInfoCfg"] = raw["data"]["DeviceInfoCfg"].replace("RestartBusiness", "NotHandleFault")
    assert (told(raw), reasons(raw)) == ([], [RejectionReason.CHECK_CODE])


def test_a_truncated_object_is_refused() -> None:
    raw = objects.device_info()
    raw["data"]["DeviceInfoCfg"] = raw["data"]["DeviceInfoCfg"][:-20]
    assert (told(raw), reasons(raw)) == ([], [RejectionReason.MALFORMED])


def test_one_broken_entry_leaves_the_others() -> None:
    raw = objects.device_info("text", {"npu_name": 5}, objects.fault("Ascend910-7\x1b[2J"), objects.fault())
    assert [fact.device for fact in read(raw).facts] == ["Ascend910-3"]
    assert set(reasons(raw)) == {RejectionReason.UNKNOWN_DEVICE}
    assert all("\x1b" not in one.found for one in read(raw).rejected)


def test_a_time_in_the_future_is_not_believed() -> None:
    late = {"80E01801": {"fault_time": objects.NOW_MS + 10**12, "fault_level": "RestartBusiness"}}
    raw = objects.device_info(objects.fault(fault_time_and_level_map=late))
    assert (read(raw).facts[0].since_ms, reasons(raw)) == (None, [RejectionReason.FUTURE_TIME])


def test_an_unknown_level_gives_way_to_the_codes_own() -> None:
    raw = objects.device_info(objects.fault(level="Worse", fault_time_and_level_map={}))
    assert (told(raw)[0][2], reasons(raw)) == (Level.RESTART_BUSINESS, [RejectionReason.UNKNOWN_LEVEL])


def test_a_thousand_faults_on_one_chip_are_all_read() -> None:
    many = [objects.fault(code=f"8F{number:06X}") for number in range(1000)]
    assert len(read(objects.device_info(*many)).facts) == 1000


def test_a_plugin_that_has_fallen_silent_is_known() -> None:
    row = registry.SOURCES[0]
    assert not registry.is_source_silent(row, objects.NOW_MS - 900_000, objects.NOW_MS)
    assert registry.is_source_silent(row, objects.NOW_MS - 900_001, objects.NOW_MS)
    assert not registry.is_source_silent(row, None, objects.NOW_MS)


# ------------------------------------------------------------------ codes


def test_an_override_wins_over_the_writer() -> None:
    terms = Terms(objects.NOW_MS, codes=FaultCodes({"80E01801": Level.NOT_HANDLE}))
    assert told(objects.device_info(), terms) == [("Ascend910-3", "80E01801", Level.NOT_HANDLE, False)]


@pytest.mark.parametrize(("severity", "level"), [(0, Level.NOT_HANDLE), (1, Level.NOT_HANDLE), (2, Level.SEPARATE)])
def test_an_unknown_code_counts_by_its_severity(severity: int, level: Level) -> None:
    assert FaultCodes().level_by_writer(CodeTable.CHIP, "unheard", None, severity) is level
    assert FaultCodes().level_by_writer(CodeTable.CHIP, "unheard", None) is Level.SEPARATE


@pytest.mark.parametrize(
    ("code", "level"),
    [
        ("80E01801", Level.RESTART_BUSINESS),
        ("80C98009", Level.RESTART_REQUEST),
        ("40F84E00", Level.RESTART_CHIP),
        ("80818C05", Level.SEPARATE),
        ("81078603", Level.NOT_HANDLE),
        ("80818C06", Level.SUB_HEALTH),
    ],
)
def test_the_shipped_table_has_the_known_levels(code: str, level: Level) -> None:
    assert FaultCodes().level_of_code(CodeTable.CHIP, code) is level


# ------------------------------------------------------------------ switches


def test_a_switch_fault_concerns_the_whole_node() -> None:
    fact = read(objects.switch_info(objects.switch_event())).facts[-1]
    assert (fact.source, fact.device, fact.kind) == (Source.SWITCH, "", FactKind.SUB_HEALTH)
    assert fact.id == "node/node-1/switch/0/5/[0x00f1ff06,155910,na,na]"


def test_a_switch_fault_has_the_level_of_its_own_entry() -> None:
    code = "[0x00f1ff06,155910,na,na]"
    details = {f"{code}_0_5": {"fault_time": 5, "fault_level": "SeparateFault"}}
    fact = read(objects.switch_info(objects.switch_event(), FaultTimeAndLevelMap=details)).facts[-1]
    assert (fact.level, fact.since_ms) == (Level.SEPARATE, 5)


def test_a_switch_code_without_a_level_takes_the_nodes() -> None:
    event = objects.switch_event("[0x12345678,1,na,na]")
    assert read(objects.switch_info(event, level="NotHandle")).facts[-1].level is Level.NOT_HANDLE
    assert read(objects.switch_info(event, level="?")).facts[-1].level is Level.SEPARATE


def test_a_switch_event_that_is_none_is_refused_alone() -> None:
    raw = objects.switch_info("{", objects.switch_event(SwitchChipId="0"), objects.switch_event())
    assert len([fact for fact in read(raw).facts if fact.source is Source.SWITCH]) == 1
    assert set(reasons(raw)) == {RejectionReason.MALFORMED}


# ------------------------------------------------------------------ NodeD


def test_hardware_of_the_node_is_read() -> None:
    (fact,) = read(objects.node_info(objects.hardware())).facts
    assert (fact.source, fact.device, fact.level) == (Source.NODE_HARDWARE, "CPU-0", Level.SEPARATE)
    assert fact.since_ms == 1_767_225_600_000


def test_node_info_with_a_wrong_seal_is_refused() -> None:
    raw = objects.node_info(objects.hardware())
    raw["data"]["NodeInfo"] = raw["data"]["NodeInfo"].replace("SeparateFault", "NotHandleFault")
    assert reasons(raw) == [RejectionReason.CHECK_CODE]


def test_node_info_without_faults_is_well() -> None:
    assert (told(objects.node_info(status="Healthy")), reasons(objects.node_info())) == ([], [])


# ------------------------------------------------------------------ public faults


def test_a_public_fault_reaches_every_chip_it_names() -> None:
    found = read(objects.public(objects.public_fault()))
    assert [(fact.node, fact.device) for fact in found.facts] == [("node-1", "Ascend910-0"), ("node-1", "Ascend910-3")]
    assert {fact.level for fact in found.facts} == {Level.SEPARATE}
    assert found.rejected == []


def test_a_public_fault_that_is_over_is_told_by_id() -> None:
    came = read(objects.public(objects.public_fault()))
    went = read(objects.public(objects.public_fault(assertion="recover")))
    assert (went.facts, went.over) == ([], ["public/CCAE/fault-00001/node-1"])
    assert all(fact.id.startswith(f"{went.over[0]}/") for fact in came.facts)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"resource": "somebody"}, RejectionReason.UNKNOWN_SENDER),
        ({"version": "2.0"}, RejectionReason.MALFORMED),
        ({"id": "short"}, RejectionReason.MALFORMED),
        ({"timestamp": 1}, RejectionReason.MALFORMED),
        ({"faults": []}, RejectionReason.MALFORMED),
        ({"faults": [objects.public_fault()] * 101}, RejectionReason.TOO_MANY),
    ],
)
def test_an_envelope_out_of_order_is_refused(change: dict[str, Any], reason: RejectionReason) -> None:
    raw = objects.public(objects.public_fault(), **change)
    assert (told(raw), reasons(raw)) == ([], [reason])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"faultId": "x"}, RejectionReason.MALFORMED),
        ({"faultType": "Other"}, RejectionReason.MALFORMED),
        ({"faultCode": "1"}, RejectionReason.MALFORMED),
        ({"faultCode": "999999999"}, RejectionReason.UNKNOWN_CODE),
        ({"faultTime": 1}, RejectionReason.MALFORMED),
        ({"assertion": "maybe"}, RejectionReason.MALFORMED),
        ({"faultLocation": {"k" * 17: "v"}}, RejectionReason.MALFORMED),
        ({"description": "d" * 513}, RejectionReason.MALFORMED),
        ({"influence": []}, RejectionReason.MALFORMED),
        ({"influence": [{"nodeName": "node-1", "deviceIds": [0]}] * 1001}, RejectionReason.TOO_MANY),
        ({"influence": [{"nodeName": "Node!", "deviceIds": [0]}]}, RejectionReason.UNKNOWN_NODE),
        ({"influence": [{"nodeName": "node-1", "deviceIds": [0, 0]}]}, RejectionReason.UNKNOWN_DEVICE),
        ({"influence": [{"nodeName": "node-1", "deviceIds": [32]}]}, RejectionReason.UNKNOWN_DEVICE),
    ],
)
def test_a_public_fault_out_of_order_is_refused_alone(change: dict[str, Any], reason: RejectionReason) -> None:
    raw = objects.public(objects.public_fault(**change), objects.public_fault(faultId="fault-00002"))
    assert (len(told(raw)), reasons(raw)) == (2, [reason])


# ------------------------------------------------------------------ ClusterD, nodes


def test_what_clusterd_repeats_has_the_same_ids() -> None:
    direct = read(objects.device_info())
    info = {"DeviceList": objects.device_list(), "UpdateTime": 1, "CmName": "mindx-dl-deviceinfo-node-1"}
    name = "cluster-info-device-0"
    gathered = objects.config_map(name, {name: objects.compact({"mindx-dl-deviceinfo-node-1": info, "odd": {}})})
    assert [fact.id for fact in read(gathered).facts] == [fact.id for fact in direct.facts]
    assert reasons(gathered) == [RejectionReason.UNKNOWN_NODE]


@pytest.mark.parametrize("name", ["cluster-info-switch-0", "cluster-info-node-cm"])
def test_the_other_gathered_maps_are_read(name: str) -> None:
    inner = {
        "cluster-info-switch-0": {"FaultCode": [objects.switch_event()], "FaultLevel": "SubHealth"},
        "cluster-info-node-cm": {"FaultDevList": [objects.hardware()], "NodeStatus": "UnHealthy"},
    }[name]
    raw = objects.config_map(name, {name: objects.compact({"mindx-dl-nodeinfo-node-1": inner})})
    assert [fact.node for fact in read(raw).facts] == ["node-1"]


def test_a_node_says_whether_it_is_ready_and_cordoned() -> None:
    assert told(objects.node()) == []
    sick = read(objects.node(ready="Unknown", unschedulable=True)).facts
    assert [fact.kind for fact in sick] == [FactKind.NODE_NOT_READY, FactKind.CORDONED]
    assert sick[0].since_ms == 1_767_225_600_000


TAINTS = [
    ({"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}, (FactKind.CORDONED, True)),
    ({"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}, (FactKind.CORDONED, True)),
    ({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"},
     (FactKind.NODE_NOT_READY, True)),
    ({"key": "team", "value": "vision", "effect": "NoExecute"}, (FactKind.CORDONED, False)),
    ({"key": "team", "value": "vision", "effect": "NoSchedule"}, (FactKind.CORDONED, False)),
]  # fmt: skip


@pytest.mark.parametrize(("taint", "fact"), TAINTS)
def test_a_taint_is_shown_and_harms_where_a_node_empties(taint: dict[str, str], fact: tuple[FactKind, bool]) -> None:
    raw = objects.node()
    raw["spec"]["taints"] = [taint, {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]
    (found,) = read(raw).facts
    assert ((found.kind, found.harms), found.code) == (fact, taint["key"])
    assert found.message.startswith(f"taint {taint['key']}")


def test_a_taint_of_no_effect_is_refused() -> None:
    raw = objects.node()
    raw["spec"]["taints"] = [{"key": "team", "effect": "Sometimes"}, "x"]
    assert (told(raw), reasons(raw)) == ([], [RejectionReason.MALFORMED] * 2)


def test_a_node_that_is_being_deleted_is_to_be_emptied() -> None:
    raw = objects.node()
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    (found,) = read(raw).facts
    assert (found.kind, found.code, found.since_ms) == (FactKind.CORDONED, "NodeDeleting", 1_767_225_600_000)
    assert node.node_view_of(raw).is_to_be_emptied
    assert not node.node_view_of(objects.node()).is_to_be_emptied


@pytest.mark.parametrize(
    ("age", "seconds", "silent"), [(39, 40, False), (41, 40, True), (41, None, True), (41, "x", True), (41, 60, False)]
)
def test_a_lease_that_ran_out_says_so(age: int, seconds: Any, silent: bool) -> None:
    renewed = datetime.fromtimestamp(objects.NOW_MS / 1000 - age, UTC).isoformat()
    spec = {"renewTime": renewed, "leaseDurationSeconds": seconds}
    raw = {"kind": "Lease", "metadata": {"name": "node-1", "namespace": "kube-node-lease"}, "spec": spec}
    found = read(raw)
    assert [(fact.node, fact.code) for fact in found.facts] == ([("node-1", "LeaseExpired")] if silent else [])
    assert found.rejected == []


def test_a_lease_that_is_no_nodes_is_not_used() -> None:
    raw = {"kind": "Lease", "metadata": {"name": "hajob-operator", "namespace": "hajob-system"}, "spec": {}}
    assert (told(raw), reasons(raw)) == ([], [RejectionReason.UNKNOWN_OBJECT])


def test_only_named_conditions_of_a_node_count() -> None:
    raw = objects.node(KernelDeadlock="True", NPULost="True", DiskPressure="False")
    sick = {"NPULost": SickCondition(Level.SEPARATE), "DiskPressure": SickCondition(Level.SUB_HEALTH)}
    terms = Terms(objects.NOW_MS, conditions=sick)
    assert told(raw) == [("", "KernelDeadlock", Level.PRE_SEPARATE, False)]
    assert told(raw, terms) == [("", "NPULost", Level.SEPARATE, True)]


@pytest.mark.parametrize("status", ["True", "False", "Unknown"])
def test_a_condition_is_a_fault_with_its_named_status_only(status: str) -> None:
    raw = objects.node(NPUHealthy=status, KernelReady=status)
    terms = Terms(objects.NOW_MS, conditions={"NPUHealthy": SickCondition(Level.SEPARATE, "False")})
    assert [code for _, code, _, _ in told(raw, terms)] == (["NPUHealthy"] if status == "False" else [])
    assert [code for _, code, _, _ in told(raw)] == (["KernelReady"] if status == "False" else [])


def test_a_reason_left_behind_for_an_offered_chip_is_no_fault() -> None:
    entry = [{"fault_level": "SeparateNPU", "fault_code": "40f84e00", "upgrade_type": "FaultFrequency"}]
    reasons_of = {"Ascend910-0": entry, "Ascend910-3": entry}
    raw = objects.device_info(unhealthy="Ascend910-3", UpgradeFaultReason=objects.compact(reasons_of))
    assert [device for device, code, _, _ in told(raw) if code == "40F84E00"] == ["Ascend910-3"]
    assert reasons(raw) == [RejectionReason.LEFT_OVER]
    milder = {"Ascend910-0": [{**entry[0], "fault_level": "SubHealthFault"}]}  # such a chip is offered
    raw = objects.device_info(unhealthy="Ascend910-3", UpgradeFaultReason=objects.compact(milder))
    assert (len(told(raw)), reasons(raw)) == (2, [])


def test_an_object_of_nobody_is_told_as_such() -> None:
    assert reasons(objects.config_map("kube-root-ca.crt", {})) == [RejectionReason.UNKNOWN_OBJECT]
    assert reasons(objects.config_map("mindx-dl-deviceinfo-Bad_Name", {}))[0] is RejectionReason.UNKNOWN_NODE


def test_every_reason_has_a_sentence() -> None:
    raw = objects.device_info("text")
    assert "names no device" in read(raw).rejected[0].rejection_message
    assert json.dumps([one.rejection_message for one in read(raw).rejected])


def test_the_same_object_read_later_is_no_other_reading() -> None:
    raw = objects.device_info()
    assert read(raw, Terms(objects.NOW_MS)) == read(raw, Terms(objects.NOW_MS + 60_000))
