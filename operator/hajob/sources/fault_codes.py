"""Which level a fault code has: the table that MindCluster ships, and what an admin changes of it.

The table is data (`fault_codes.json`): chip, switch, node and public codes by level. An override names codes with a
level of their own, so that an admin can make a code milder or worse without a new version (docs/admin/faults.md,
"Codes").
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Final

from hajob.domain.hardware import Level

MINOR_SEVERITY: Final = 1
"""The driver's severities: 0 hint, 1 minor, 2 major, 3 critical."""

LEVEL_WORDS: Final = {
    **{level.value: level for level in Level},
    **dict.fromkeys(("NotHandle",), Level.NOT_HANDLE),
    **dict.fromkeys(("SubHealth", "SubHealthy"), Level.SUB_HEALTH),
    **dict.fromkeys(("RestartRequestFault",), Level.RESTART_REQUEST),
    **dict.fromkeys(("RestartBusinessFault",), Level.RESTART_BUSINESS),
    **dict.fromkeys(("Reset", "ResetFault"), Level.RESTART_CHIP),
    **dict.fromkeys(("PreSeparate", "PreSeparateFault"), Level.PRE_SEPARATE),
    **dict.fromkeys(("Separate", "SeparateFault"), Level.SEPARATE),
}
"""What writers call the levels: chips, switches and nodes each have words of their own."""


class CodeTable(StrEnum):
    """The four families of fault codes, each with its own table."""

    CHIP = "chip"
    SWITCH = "switch"
    NODE = "node"
    PUBLIC = "public"


@dataclass(frozen=True, slots=True)
class FaultCodes:
    """The levels of fault codes: the shipped tables and the admin's overrides.

    Attributes:
        overrides: code to level, before the shipped table.
    """

    overrides: Mapping[str, Level] = field(default_factory=dict)

    def level_of_code(self, table: CodeTable, code: str) -> Level | None:
        """Return the level of a code; None where neither an override nor the table has it."""
        return self.overrides.get(code) or _shipped_levels()[table].get(code)

    def level_by_writer(self, table: CodeTable, code: str, told: Level | None, severity: int | None = None) -> Level:
        """Return the level of a code; `told`: the level that its writer has given it, None where it has given none.

        The admin's override comes first, then the writer's word, then the table. A code that nobody knows counts by its
        severity: hint and minor are ignored; anything else, and a code without a severity, isolates.
        """
        found = self.overrides.get(code) or told or _shipped_levels()[table].get(code)
        if found is not None:
            return found
        return Level.NOT_HANDLE if severity is not None and severity <= MINOR_SEVERITY else Level.SEPARATE


@cache
def _shipped_levels() -> Mapping[CodeTable, Mapping[str, Level]]:
    raw = json.loads((resources.files(__package__) / "fault_codes.json").read_text(encoding="utf-8"))
    return {
        table: {code: Level(level) for level, codes in raw[table.value].items() for code in codes}
        for table in CodeTable
    }
