"""A CRD's structural schema: unknown fields are dropped, defaults set, values checked. `rules` has the rules in CEL.

The one rule in CEL that an operator's life depends on stands here in Python: the fence of a status may only grow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.memory_api.errors import Cause, invalid_value, required, unsupported
from hajob.api.base import Json

CRDS: Final = Path(__file__).parents[2] / "crds"
_TYPES: Final[dict[str, Any]] = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "object": dict,
    "array": list,
    "number": (int, float),
}


@lru_cache
def schema_of(plural: str) -> Json:
    """The schema of a custom resource."""
    definition = yaml.safe_load((CRDS / f"training.hajob.io_{plural}.yaml").read_text(encoding="utf-8"))
    schema: Json = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def job_schema() -> Json:
    """The schema of a HATrainingJob."""
    return schema_of("hatrainingjobs")


def completed(schema: Json, value: Any) -> Any:  # noqa: ANN401 - any JSON
    """The value with its defaults and without what the schema does not know."""
    if isinstance(value, list) and "items" in schema:
        return [completed(schema["items"], each) for each in value]
    if not isinstance(value, dict):
        return value
    known: Json = schema.get("properties") or {}
    if "additionalProperties" in schema:
        return {key: completed(schema["additionalProperties"], each) for key, each in value.items()}
    found: Json = {}
    for key, each in value.items():
        if key in known:
            if each is not None or known[key].get("nullable"):
                found[key] = completed(known[key], each)
        elif schema.get("x-kubernetes-preserve-unknown-fields") or (not known and schema.get("type") != "object"):
            found[key] = each
    for key, below in known.items():
        if key not in found and "default" in below:
            found[key] = completed(below, below["default"])
    return found


def unknown_fields(schema: Json, value: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401 - any JSON
    """Paths of the fields that `completed` leaves out because the schema does not know them."""
    if isinstance(value, list) and "items" in schema:
        for number, each in enumerate(value):
            yield from unknown_fields(schema["items"], each, f"{path}[{number}]")
    if not isinstance(value, dict):
        return
    known: Json = schema.get("properties") or {}
    free = schema.get("x-kubernetes-preserve-unknown-fields") or (not known and schema.get("type") != "object")
    for key, each in value.items():
        where = f"{path}.{key}".lstrip(".")
        below = known.get(key) or schema.get("additionalProperties")
        if isinstance(below, dict):
            yield from unknown_fields(below, each, where)
        elif not free:
            yield where


def problems(schema: Json, value: Any, path: str) -> Iterator[Cause]:  # noqa: ANN401 - any JSON
    """What the schema says against a value."""
    if value is None and schema.get("nullable"):
        return
    expected = schema.get("type")
    if expected and (not isinstance(value, _TYPES[expected]) or (expected == "integer" and isinstance(value, bool))):
        shown = _type_of(value)
        yield invalid_value(path, shown, f'{path} in body must be of type {expected}: "{shown}"')
        return
    yield from _bounds(schema, value, path)
    if isinstance(value, dict):
        for key in schema.get("required") or []:
            if key not in value:
                yield required(f"{path}.{key}" if path else key)
        for key, each in value.items():
            below = (schema.get("properties") or {}).get(key) or schema.get("additionalProperties")
            if isinstance(below, dict):
                yield from problems(below, each, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and "items" in schema:
        for number, each in enumerate(value):
            yield from problems(schema["items"], each, f"{path}[{number}]")


def _bounds(schema: Json, value: Any, path: str) -> Iterator[Cause]:  # noqa: ANN401 - any JSON
    if "enum" in schema and value not in schema["enum"]:
        yield unsupported(path, value, schema["enum"])
    if "minimum" in schema and value < schema["minimum"]:
        yield invalid_value(path, value, f"{path} in body should be greater than or equal to {schema['minimum']}")
    if "maximum" in schema and value > schema["maximum"]:
        yield invalid_value(path, value, f"{path} in body should be less than or equal to {schema['maximum']}")
    if isinstance(value, str):
        yield from _text_bounds(schema, value, path)
    if isinstance(value, list):
        yield from _list_bounds(schema, value, path)


def _text_bounds(schema: Json, value: str, path: str) -> Iterator[Cause]:
    if len(value) > schema.get("maxLength", len(value)):
        yield Cause(path, "FieldValueTooLong", f"Too long: may not be more than {schema['maxLength']} bytes")
    if len(value) < schema.get("minLength", 0):
        yield invalid_value(path, value, f"{path} in body should be at least {schema['minLength']} chars long")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield invalid_value(path, value, f"{path} in body should match '{schema['pattern']}'")


def _list_bounds(schema: Json, value: list[Any], path: str) -> Iterator[Cause]:
    if len(value) > schema.get("maxItems", len(value)):
        most = schema["maxItems"]
        yield Cause(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items")
    if len(value) < schema.get("minItems", 0):
        fewest = schema["minItems"]
        yield invalid_value(path, len(value), f"{path} in body should have at least {fewest} items")


def shrunken_fence(old: Json, new: Json) -> Iterator[Cause]:
    """The rule on the status, in the words of the CRD."""
    before = (old.get("status") or {}).get("fence")
    after = new.get("status") or {}
    if before is not None and old.get("status") and new.get("status") and after.get("fence", -1) < before:
        rule = job_schema()["properties"]["status"]["x-kubernetes-validations"][0]
        yield invalid_value("status.fence", "object", rule["message"])


def _type_of(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    known = {str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return known[type(value)]
