"""The rules in CEL of a CRD, evaluated by a library: what `kubectl apply` is refused for in a sentence.

As on the server, a rule that names `oldSelf` is asked only where there is an older value, all rules only where the
schema has nothing to say, and an expression that fails counts as a refusal. Rules about `status` are not asked:
an operator writes it thousands of times in a test, and its one rule stands in `schema`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any, Final

import cel

from e2e.memory_api.errors import Cause, invalid_value
from e2e.memory_api.schema import schema_of
from hajob.api.base import Json

_ITEM: Final = "[]"
"""In a path: each item of a list. Rules there do not compare with an older value."""
_OLD: Final = re.compile(r"\boldSelf\b")
_TYPES: Final[dict[type, str]] = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer"}


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule and where its object is.

    Attributes:
        path: of the object that carries it.
        program: the rule, compiled.
        message: said when it does not hold.
        told: an expression for that message; None where there is none.
        field: path below the object.
        on_updates: it compares with the older value.
    """

    path: tuple[str, ...]
    program: cel.Program
    message: str
    told: cel.Program | None
    field: str
    on_updates: bool


def broken_rules(plural: str, new: Json, old: Json | None) -> Iterator[Cause]:
    """The rules that an object does not keep.

    Args:
        plural: of the custom resource.
        new: the object, complete.
        old: the object before; None for a new one.
    """
    if old is not None and all(new.get(part) == old.get(part) for part in ("spec", "metadata")):
        return
    for path, grouped in groupby(_rules(plural), lambda rule: rule.path):
        rules = list(grouped)
        for where, here in _found_at(new, path, ""):
            before = next((value for _, value in _found_at(old, path, "")), None) if _ITEM not in path else None
            context = cel.Context({"self": here, "oldSelf": before})
            for rule in rules:
                if (before is not None or not rule.on_updates) and not _holds(rule.program, context):
                    field = (where + rule.field).lstrip(".")
                    yield invalid_value(field, _TYPES[type(here)], _message(rule, context))


@lru_cache
def _rules(plural: str) -> list[_Rule]:
    return list(_found(schema_of(plural), ()))


def _found(schema: Json, path: tuple[str, ...]) -> Iterator[_Rule]:
    """The rules of a schema."""
    for entry in schema.get("x-kubernetes-validations") or []:
        told = entry.get("messageExpression")
        yield _Rule(
            path=path,
            program=cel.compile(entry["rule"]),
            message=entry["message"],
            told=cel.compile(told) if told else None,
            field=entry.get("fieldPath", ""),
            on_updates=_OLD.search(entry["rule"]) is not None,
        )
    for name, below in (schema.get("properties") or {}).items():
        if path or name != "status":
            yield from _found(below, (*path, name))
    if isinstance(schema.get("items"), dict):
        yield from _found(schema["items"], (*path, _ITEM))


def _found_at(value: Any, path: tuple[str, ...], where: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - any JSON
    """What is at a path, each with the path as a refusal shows it; several below lists, none where it is absent."""
    if not path:
        yield where, value
    elif path[0] == _ITEM and isinstance(value, list):
        for number, each in enumerate(value):
            yield from _found_at(each, path[1:], f"{where}[{number}]")
    elif isinstance(value, dict) and path[0] in value:
        yield from _found_at(value[path[0]], path[1:], f"{where}.{path[0]}")


def _holds(program: cel.Program, context: cel.Context) -> bool:
    try:
        return bool(program.execute(context))
    except (RuntimeError, TypeError, ValueError, KeyError):  # an expression that fails, in the library's words
        return False


def _message(rule: _Rule, context: cel.Context) -> str:
    return str(rule.told.execute(context)) if rule.told is not None else rule.message
