"""What tests keep as JSON with names: journals that released operators wrote, and whole lives of jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from hajob.api.base import Json

UNIT: Final = Path(__file__).resolve().parents[1] / "unit"
JOURNALS: Final = UNIT / "job" / "status" / "journals"
LIVES: Final = UNIT / "plan" / "lives"


def load(path: Path) -> Json:
    """Read something kept."""
    found: Json = json.loads(path.read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True)
class KeptJournal:
    """A journal as a released operator wrote it, and what it meant to that operator.

    Attributes:
        version: that wrote it, the name of its directory.
        situation: which the job was in, the name of its file.
        text: the journal, to the letter.
        told: everything that stands in the file.
    """

    version: str
    situation: str
    text: str
    told: Json

    @property
    def journal_version(self) -> int:
        """`status.journalVersion` beside it."""
        return int(self.told["journalVersion"])


def kept_journals() -> list[KeptJournal]:
    """Read all kept journals."""
    found = [(path, load(path)) for path in sorted(JOURNALS.glob("*/*.json"))]
    return [KeptJournal(path.parent.name, path.stem, compact(told["journal"]), told) for path, told in found]


def compact(value: object) -> str:
    """Write JSON as an operator does: without spaces, keys in their order."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def kept_life(name: str) -> Json:
    """Read a life of a job.

    Raises:
        FileNotFoundError: none of this name is kept.
    """
    return load(LIVES / f"{name}.json")


def keep_life(name: str, steps: list[Json]) -> None:
    """Keep a life, one line for each part of a step and one for each effect, so that it reads like a log."""
    told = []
    for step in steps:
        parts = [f"{json.dumps(key)}: {_lines(value)}" for key, value in step.items()]
        told.append("  {" + ",\n   ".join(parts) + "}")
    text = f'{{"life": {json.dumps(name)},\n "steps": [\n' + ",\n".join(told) + "\n ]}\n"
    assert json.loads(text) == {"life": name, "steps": steps}
    LIVES.mkdir(exist_ok=True)
    (LIVES / f"{name}.json").write_text(text, encoding="utf-8")


def _lines(value: object) -> str:
    if isinstance(value, list) and len(value) > 1:
        return "[\n    " + ",\n    ".join(json.dumps(one, ensure_ascii=False) for one in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def as_json(value: object) -> Any:
    """Return a value of the planner as JSON: a dataclass under the name of its class, with all of its fields."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {type(value).__name__: {one.name: as_json(getattr(value, one.name)) for one in fields(value)}}
    if isinstance(value, Mapping):
        return {str(as_json(key)): as_json(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(as_json, value))
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    assert value is None or isinstance(value, str | int | float), f"{value!r} has no form in JSON"
    return value
