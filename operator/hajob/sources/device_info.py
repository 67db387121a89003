"""Faults of chips: the ConfigMap `mindx-dl-deviceinfo-<node>` that MindCluster's device plugin writes.

`DeviceInfoCfg` lists the chips and their faults and is sealed by a CheckCode; `ManuallySeparateNPU` and
`UpgradeFaultReason` say which chips a person, or a rule of the plugin, has isolated. Formats: docs/admin/faults.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hajob.domain.facts import Source
from hajob.domain.hardware import SEVERITY, ClusterFact, Level, harms_job, kind_of_level
from hajob.sources.check_code import check_codes
from hajob.sources.fault_codes import LEVEL_WORDS, CodeTable
from hajob.sources.reading import (
    Reading,
    RejectionReason,
    Terms,
    data_of_config_map,
    is_device_name,
    is_integer,
    items,
    mapping,
    printable,
    text,
)

KEY: Final = "DeviceInfoCfg"
MANUAL_KEY: Final = "ManuallySeparateNPU"
UPGRADE_KEY: Final = "UpgradeFaultReason"
_FAULTS: Final = "-Fault"
_UNHEALTHY: Final = "-Unhealthy"
_SECOND: Final = 1000  # milliseconds
_PUBLIC: Final = "PublicFault"
"""Type of the faults that ClusterD has from messages and repeats here; their times are in seconds."""
_HEXADECIMAL: Final = re.compile(r"[0-9a-fA-F]+")
_NOT_OFFERED: Final = frozenset({Level.RESTART_CHIP, Level.SEPARATE, Level.MANUALLY_SEPARATE})
"""Levels with which the plugin offers a chip to nobody."""
_UPGRADES: Final = {
    "FaultAutofill": "the plugin raised it",
    "FaultFrequency": "it came too often",
    "FaultDuration": "it lasted too long",
}


@dataclass(frozen=True, slots=True)
class _ChipFault:
    """One fault of one chip: how bad, why (for people), and its code where it has one."""

    device: str
    level: Level
    why: str
    code: str = ""

    @property
    def is_repeated_public(self) -> bool:
        """Whether ClusterD only repeats what a message told."""
        return self.why == _PUBLIC


def parse_device_info(raw: Mapping[str, Any], node: str, terms: Terms) -> Reading:
    """Read what the ConfigMap of a node says about its chips."""
    reading, offered = Reading(terms), frozenset[str]()
    told = data_of_config_map(raw, KEY)
    if told is None:
        reading.note_rejection(RejectionReason.MISSING_KEY, KEY)
    else:
        sealed = mapping(reading.parse_json(told, KEY))
        info = mapping(sealed.get("DeviceInfo"))
        if _has_right_check_code(sealed, info, reading):
            read_device_info(info, node, reading)
            offered = _offered_chips(info)
    _read_manually_isolated(data_of_config_map(raw, MANUAL_KEY) or "", node, reading)
    _read_upgrades(data_of_config_map(raw, UPGRADE_KEY) or "", node, reading, offered)
    return reading


def _has_right_check_code(sealed: Mapping[str, Any], info: Mapping[str, Any], reading: Reading) -> bool:
    """Whether the CheckCode is that of the content, encoded as its reader in Go would."""
    if not sealed:
        return False  # said already, or an empty object
    devices, updated = info.get("DeviceList"), info.get("UpdateTime", 0)
    is_list = isinstance(devices, Mapping) and all(isinstance(value, str) for value in devices.values())
    if (devices is not None and not is_list) or not is_integer(updated):
        reading.note_rejection(RejectionReason.MALFORMED, KEY, info)
        return False
    ordered = None if devices is None else dict(sorted(devices.items()))
    if sealed.get("CheckCode") in check_codes({"DeviceList": ordered, "UpdateTime": updated}):
        return True
    reading.note_rejection(RejectionReason.CHECK_CODE, KEY, sealed.get("CheckCode"))
    return False


def read_device_info(info: Mapping[str, Any], node: str, reading: Reading) -> None:
    """Read an inner DeviceInfo, which the aggregated maps of ClusterD hold without a seal of its own."""
    updated = info.get("UpdateTime")
    reading.updated_ms = updated * _SECOND if is_integer(updated) else None
    unhealthy: set[str] = set()
    faults: list[tuple[str, Any]] = []
    for key, value in mapping(info.get("DeviceList")).items():
        if not isinstance(value, str):
            reading.note_rejection(RejectionReason.MALFORMED, f"DeviceList[{key}]", value)
        elif key.endswith(_FAULTS):
            listed = items(reading.parse_json(value, key) if value else None)
            faults += [(f"{key}[{place}]", entry) for place, entry in enumerate(listed)]
        elif key.endswith(_UNHEALTHY):
            unhealthy.update(_split_names(value))
    told: set[str] = set()
    for where, entry in faults:
        for chip, since_ms in _chip_faults(mapping(entry), reading, where):
            told.add(chip.device)
            reading.facts.append(_fact_of_chip(node, chip, since_ms, unhealthy=chip.device in unhealthy))
    # A chip may be listed as unhealthy without a fault that says why: the plugin offers it to nobody all the same.
    _read_devices(sorted(unhealthy - told), node, reading, Level.PRE_SEPARATE, "listed as unhealthy without a fault")


def _chip_faults(entry: Mapping[str, Any], reading: Reading, where: str) -> Iterator[tuple[_ChipFault, int | None]]:
    """A fault, and since when, for each code of one entry of the fault list.

    An entry may be worse than each of its codes: a chip that is isolated has a level, and no code for it.
    """
    device = text(entry.get("npu_name"))
    if not is_device_name(device):
        reading.note_rejection(RejectionReason.UNKNOWN_DEVICE, f"{where}.npu_name", entry.get("npu_name"))
        return
    whole = reading.parse_level(
        entry.get("fault_level") or entry.get("large_model_fault_level"), f"{where}.fault_level"
    )
    details, why = mapping(entry.get("fault_time_and_level_map")), text(entry.get("fault_type"))
    worst = -1
    # Codes of the list and of the map: either may lack one, and each counts once.
    for code in dict.fromkeys((*_split_names(text(entry.get("fault_code"))), *details)):
        detail, at = mapping(details.get(code)), f"{where}.fault_time_and_level_map[{code}]"
        told = reading.parse_level(detail.get("fault_level"), at) or whole
        worst = max(worst, SEVERITY[told] if told is not None else worst)
        table = CodeTable.PUBLIC if why == _PUBLIC else CodeTable.CHIP
        fault = _ChipFault(device, reading.terms.codes.level_by_writer(table, code, told), why, printable(code))
        since = detail.get("fault_time")
        since = since * _SECOND if fault.is_repeated_public and is_integer(since) else since
        yield fault, reading.parse_time(since, at)
    if whole is not None and SEVERITY[whole] > worst:
        yield _ChipFault(device, whole, why), None


def _split_names(listed: str) -> list[str]:
    """The parts of a comma list."""
    return [name for part in listed.split(",") if (name := part.strip())]


def _fact_of_chip(node: str, fault: _ChipFault, since_ms: int | None = None, *, unhealthy: bool = False) -> ClusterFact:
    code, why = fault.code, fault.why
    return ClusterFact(
        id=f"node/{node}/chip/{fault.device}/{code or fault.level}",
        source=Source.PUBLIC if fault.is_repeated_public else Source.DEVICE,
        kind=kind_of_level(fault.level),
        node=node,
        device=fault.device,
        code=code,
        level=fault.level,
        since_ms=since_ms,
        harms=harms_job(fault.level, unhealthy=unhealthy),
        message=f"chip {fault.device}: {code or why}" + (f" ({why})" if code and why else ""),
        repeated=fault.is_repeated_public,
    )


def _read_manually_isolated(listed: str, node: str, reading: Reading) -> None:
    devices = list(dict.fromkeys(_split_names(listed)))
    _read_devices(devices, node, reading, Level.MANUALLY_SEPARATE, "isolated by hand or by a rule")


def _read_devices(devices: list[str], node: str, reading: Reading, level: Level, why: str) -> None:
    """Chips that are only listed, without a code."""
    for device in devices:
        if is_device_name(device):
            reading.facts.append(_fact_of_chip(node, _ChipFault(device, level, why)))
        else:
            reading.note_rejection(RejectionReason.UNKNOWN_DEVICE, why, device)


def _offered_chips(info: Mapping[str, Any]) -> frozenset[str]:
    """The chips that new pods may have: the plugin takes an isolated one out of this list, whatever its codes."""
    listed = (value for key, value in mapping(info.get("DeviceList")).items() if "-" not in key.rpartition("/")[2])
    return frozenset(name for value in listed for name in _split_names(text(value)))


def _read_upgrades(told: str, node: str, reading: Reading, offered: frozenset[str]) -> None:
    """What a rule of the plugin has made worse than its code says; the worse of the two levels counts.

    The plugin may leave the reason behind when the isolation is over: one that isolates an offered chip is no fault.
    """
    for device, reasons in mapping(reading.parse_json(told, UPGRADE_KEY) if told else None).items():
        if not is_device_name(device):
            reading.note_rejection(RejectionReason.UNKNOWN_DEVICE, UPGRADE_KEY, device)
            continue
        for place, entry in enumerate(items(reasons)):
            where = f"{UPGRADE_KEY}[{device}][{place}]"
            level = LEVEL_WORDS.get(text(mapping(entry).get("fault_level")))
            if device in offered and level in _NOT_OFFERED:
                reading.note_rejection(RejectionReason.LEFT_OVER, where, level)
            else:
                _read_upgrade(mapping(entry), device, node, reading, where)


def _read_upgrade(entry: Mapping[str, Any], device: str, node: str, reading: Reading, where: str) -> None:
    level, code = reading.parse_level(entry.get("fault_level"), where), text(entry.get("fault_code"))
    if level is None or not code:
        reading.note_rejection(RejectionReason.MALFORMED, where, entry)
        return
    why = _UPGRADES.get(text(entry.get("upgrade_type")), "the plugin raised it")
    fault = _ChipFault(device, level, why, _code_as_listed(code))
    raised = _fact_of_chip(node, fault, reading.parse_time(entry.get("upgrade_time"), where))
    for place, fact in enumerate(reading.facts):
        if fact.id == raised.id:
            if fact.level is not None and SEVERITY[level] > SEVERITY[fact.level]:
                reading.facts[place] = raised
            return
    reading.facts.append(raised)


def _code_as_listed(code: str) -> str:
    """The code as the fault list writes it: in capitals; here the plugin writes small letters."""
    return code.upper() if _HEXADECIMAL.fullmatch(code) else printable(code)
