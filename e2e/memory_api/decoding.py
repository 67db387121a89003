"""Whether a body can be read as an object of its kind: the types that the server's Go structs have.

The types come from the models of the `kubernetes` package, which are generated from the server's OpenAPI document.
Unknown fields are dropped and null means absent, as the server does with what it stores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from e2e.memory_api.errors import cannot_be_read
from e2e.memory_api.resources import Resource
from hajob.api.base import Json

_LONG: Final = frozenset(
    {"terminationGracePeriodSeconds", "activeDeadlineSeconds", "generation", "runAsUser", "runAsGroup", "fsGroup"}
    | {"deletionGracePeriodSeconds", "tolerationSeconds", "expirationSeconds", "observedGeneration"}
)
_QUANTITIES: Final = frozenset({"requests", "limits", "hard", "used", "capacity", "allocatable", "overhead"})
_QUANTITY: Final = re.compile(r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$")
_MICROTIME: Final = frozenset({"renewTime", "acquireTime", "eventTime"})
_MICRO: Final = re.compile(r"\.\d{6}(Z|[+-]\d\d:\d\d)$")
_FREE: Final = frozenset({"fieldsV1", "data_object", "raw"})


def unknown_fields(resource: Resource, body: Json) -> Iterator[str]:
    """Paths of the fields that `decoded` drops because their kind has none of that name."""
    name = "CoreV1Event" if resource.kind == "Event" else f"V1{resource.kind}"
    return _unknown(name, body, "")


def _unknown(kind: str, value: object, path: str) -> Iterator[str]:
    if kind.startswith("List[") and isinstance(value, list):
        for number, each in enumerate(value):
            yield from _unknown(kind[5:-1], each, f"{path}[{number}]")
    elif kind.startswith("Dict[") and isinstance(value, dict):
        for key, each in value.items():
            yield from _unknown(kind[5:-1].split(", ", 1)[1], each, f"{path}.{key}")
    elif isinstance(value, dict) and (fields := _fields(kind)) is not None:
        for name, each in value.items():
            where = f"{path}.{name}".lstrip(".")
            if name not in fields:
                yield where
            elif name not in _FREE:
                yield from _unknown(fields[name], each, where)


class _UnreadableError(Exception):
    """A value has another type than its field."""


def decoded(resource: Resource, body: Json) -> Json:
    """The body with what the server knows of it.

    Raises:
        ApiError: 400, a field has a value of another type.
    """
    name = "CoreV1Event" if resource.kind == "Event" else f"V1{resource.kind}"
    try:
        found: Json = _struct(name, body, "")
    except _UnreadableError as error:
        raise cannot_be_read(resource.kind, resource.version, str(error)) from error
    return {"apiVersion": resource.api_version, "kind": resource.kind, **found}


@lru_cache(maxsize=512)
def _fields(model: str) -> dict[str, str] | None:
    """Type by JSON name; None for what is no struct."""
    from kubernetes.client import models

    found: Any = getattr(models, model, None)
    if found is None:
        return None
    return {found.attribute_map[name]: kind for name, kind in found.openapi_types.items()}


def _struct(model: str, value: object, path: str) -> Json:
    fields = _fields(model) or {}
    if not isinstance(value, dict):
        raise _UnreadableError(f"json: cannot unmarshal {_json_type(value)} into Go value of type {_go(model, '')}")
    read: Json = {}
    for name, content in value.items():
        if name in fields and content is not None:
            where = f"{path}.{name}" if path else name
            read[name] = _value(fields[name], content, where, f"{_go_name(model)}.{where}", name)
    return read


def _value(kind: str, value: object, path: str, field: str, name: str) -> object:
    """A value of a type, read; `field` is how the server names it in a refusal."""
    if kind.startswith("List["):
        if not isinstance(value, list):
            raise _mismatch(value, field, kind, name)
        return [_value(kind[5:-1], each, path, field, name) for each in value]
    if kind.startswith("Dict["):
        return _mapping(kind, value, path, field, name)
    if kind in {"int", "bool", "str"}:
        return _scalar(kind, value, field, name)
    if kind == "datetime":
        return _time(value, field, name)
    if _fields(kind) is None or name in _FREE:
        return value
    if not isinstance(value, dict):
        raise _mismatch(value, field, kind, name)
    return _struct(kind, value, path)


def _mapping(kind: str, value: object, path: str, field: str, name: str) -> object:
    if not isinstance(value, dict):
        raise _mismatch(value, field, kind, name)
    inner = kind[5:-1].split(", ", 1)[1]
    if name in _QUANTITIES and inner == "str":
        return {key: _quantity(each) for key, each in value.items()}
    return {key: _value(inner, each, path, field, "") for key, each in value.items() if each is not None}


def _quantity(value: object) -> str:
    text = str(value)
    if isinstance(value, bool) or not isinstance(value, int | float | str) or not _QUANTITY.match(text):
        raise _UnreadableError(f"quantities must match the regular expression '{_QUANTITY.pattern}'")
    return text


def _scalar(kind: str, value: object, field: str, name: str) -> object:
    if kind == "int":
        bits = 64 if name in _LONG else 32
        if isinstance(value, bool) or not isinstance(value, int):
            raise _mismatch(value, field, kind, name)
        if abs(value) >= 2 ** (bits - 1):
            raise _UnreadableError(
                f"json: cannot unmarshal number {value} into Go struct field {field} of type int{bits}"
            )
    elif not isinstance(value, bool if kind == "bool" else str):
        raise _mismatch(value, field, kind, name)
    return value


def _time(value: object, field: str, name: str) -> object:
    if not isinstance(value, str):
        raise _mismatch(value, field, "Time", name)
    if name in _MICROTIME and not _MICRO.search(value):
        layout = "2006-01-02T15:04:05.000000Z07:00"
        raise _UnreadableError(f'parsing time "{value}" as "{layout}": cannot parse "Z" as ".000000"')
    return value


def _mismatch(value: object, field: str, kind: str, name: str) -> _UnreadableError:
    return _UnreadableError(
        f"json: cannot unmarshal {_json_type(value)} into Go struct field {field} of type {_go(kind, name)}"
    )


def _json_type(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    known = {str: "string", int: "number", float: "number", list: "array", dict: "object"}
    return known.get(type(value), "null")


def _go(kind: str, name: str) -> str:
    """A type as Go writes it."""
    if kind.startswith("List["):
        return f"[]{_go(kind[5:-1], name)}"
    if kind.startswith("Dict["):
        return f"map[string]{_go(kind[5:-1].split(', ', 1)[1], name)}"
    plain = {"str": "string", "bool": "bool", "int": "int64" if name in _LONG else "int32"}
    return plain.get(kind) or f"v1.{_go_name(kind)}"


def _go_name(model: str) -> str:
    return re.sub(r"^(Events|Core)?V\d+", "", model)
