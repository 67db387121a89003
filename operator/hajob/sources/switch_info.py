"""Faults of a node's switch chips (A3): `SwitchInfoCfg` in the device plugin's ConfigMap.

A switch joins every chip of its node to the others, so a fault of it concerns all ranks on the node, whatever its port.
Formats: docs/admin/faults.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from hajob.domain.facts import Source
from hajob.domain.hardware import ClusterFact, Level, harms_job, kind_of_level
from hajob.sources.fault_codes import LEVEL_WORDS, CodeTable, FaultCodes
from hajob.sources.reading import Reading, RejectionReason, Terms, data_of_config_map, is_integer, items, mapping, text

KEY: Final = "SwitchInfoCfg"
_CODE: Final = re.compile(r"\[0x[0-9a-fA-F]{1,8},[^\[\]]{1,64}\]")


def parse_switch_info(raw: Mapping[str, Any], node: str, terms: Terms) -> Reading:
    """Read what the ConfigMap of a node says about its switches; nothing where it has no such key (A2)."""
    reading = Reading(terms)
    told = data_of_config_map(raw, KEY)
    if told:
        read_switch_info(mapping(reading.parse_json(told, KEY)), node, reading)
    return reading


def read_switch_info(info: Mapping[str, Any], node: str, reading: Reading) -> None:
    """Read a SwitchInfoCfg, which ClusterD's aggregated maps repeat in the same form."""
    for place, item in enumerate(items(info.get("FaultCode"))):
        where = f"FaultCode[{place}]"
        event = mapping(reading.parse_json(item, where) if isinstance(item, str) else None)
        code, chip, port = text(event.get("AssembledFaultCode")), event.get("SwitchChipId"), event.get("SwitchPortId")
        if not _CODE.fullmatch(code) or not is_integer(chip) or not is_integer(port):
            reading.note_rejection(RejectionReason.MALFORMED, where, item)
            continue
        detail = mapping(mapping(info.get("FaultTimeAndLevelMap")).get(f"{code}_{chip}_{port}"))
        level = _level_of_switch_fault(code, event, detail, info.get("FaultLevel"), reading.terms.codes)
        reading.facts.append(
            ClusterFact(
                id=f"node/{node}/switch/{chip}/{port}/{code}",
                source=Source.SWITCH,
                kind=kind_of_level(level),
                node=node,
                code=code,
                level=level,
                since_ms=reading.parse_time(detail.get("fault_time", event.get("AlarmRaisedTime")), where),
                harms=harms_job(level),
                message=f"switch chip {chip} port {port}: {code}",
            )
        )


def _level_of_switch_fault(
    code: str, event: Mapping[str, Any], detail: Mapping[str, Any], whole: object, codes: FaultCodes
) -> Level:
    """Of the fault itself, else of its code, else of the whole node (`FaultLevel`), else by the driver's severity."""
    told = LEVEL_WORDS.get(text(detail.get("fault_level"))) or codes.level_of_code(CodeTable.SWITCH, code)
    severity = event.get("Severity")
    told = told or LEVEL_WORDS.get(text(whole))
    return codes.level_by_writer(CodeTable.SWITCH, code, told, severity if is_integer(severity) else None)
