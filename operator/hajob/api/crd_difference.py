"""What an installed CRD and this program's own disagree about: fields and words that only one of them knows.

A CRD that lacks a field makes the server drop it from statuses, and refuse a word that it does not list; a field that
only the CRD knows is accepted from people and read by nobody. Both are told by name. This program's own comes from a
generated file: an operator that made it from its models would do so while it should begin to lead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from hajob.api import constants as names
from hajob.api.base import Json

CRD_NAMES: Final = (names.CRD_NAME, names.QUARANTINE_CRD_NAME)
OWN_FILE: Final = "fields.json"
"""Beside this module: `shape` of this program's schemas, by the name of the CRD."""
OPEN: Final = "x-kubernetes-preserve-unknown-fields"
PARTS: Final = {"items": "[]", "additionalProperties": "{}"}


@dataclass(frozen=True, slots=True)
class CrdDifference:
    """Paths of fields, and `path: word` for words of a list.

    Attributes:
        lacking: what the installed CRD does not know: it is older than this program.
        unknown: what this program does not know: the CRD is newer.
    """

    lacking: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@cache
def _load_own_crd() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((resources.files(__package__) / OWN_FILE).read_text(encoding="utf-8"))
    return loaded


def compare_crd(crd: Json) -> CrdDifference:
    """Compare an installed CRD, as the server has it, with this program's.

    Args:
        crd: one of `CRD_NAMES`; places in the second are told with its kind.
    """
    name = crd.get("metadata", {}).get("name", names.CRD_NAME)
    kind = "" if name == names.CRD_NAME else names.QUARANTINE_KIND
    versions = crd.get("spec", {}).get("versions") or []
    served = next((each for each in versions if each.get("name") == names.VERSION and each.get("served")), None)
    if served is None:
        return CrdDifference(lacking=(f"{kind} version {names.VERSION}".strip(),))
    installed = served.get("schema", {}).get("openAPIV3Schema") or {}
    own = _load_own_crd()[name]
    return CrdDifference(tuple(_only_in_first(own, installed, kind)), tuple(_only_in_first(installed, own, kind)))


def _only_in_first(one: Json, other: Json, path: str) -> Iterator[str]:
    """What only the first of two schemas has; of a field that the other lacks nothing more is said."""
    if other.get(OPEN) and not other.get("properties"):
        return
    for word in one.get("enum") or ():
        if word not in (other.get("enum") or (word,)):
            yield f"{path}: {word}"
    theirs = other.get("properties") or {}
    for name, schema in (one.get("properties") or {}).items():
        place = f"{path}.{name}".lstrip(".")
        if name in theirs:
            yield from _only_in_first(schema, theirs[name], place)
        else:
            yield place
    for part, sign in PARTS.items():
        if isinstance(one.get(part), dict) and isinstance(other.get(part), dict):
            yield from _only_in_first(one[part], other[part], f"{path}{sign}")
