"""The state as plain JSON types and back, for `status` and for whoever takes over.

Values that are as they begin are left out, so that a healthy job's journal is a few dozen bytes. The reader fills
them in again; what it does not know it refuses by name, because acting on half a state is worse than asking.
"""

from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from hajob.domain.errors import JournalError
from hajob.plan.state import JobState

VERSION: Final = 1
"""How the journal is to be read; status.journalVersion."""


def to_dict(state: JobState) -> dict[str, Any]:
    """The state in plain JSON types, defaults left out."""
    plain = _plain(state)
    assert isinstance(plain, dict)
    return plain


def from_dict(data: dict[str, Any]) -> JobState:
    """Read a journalled state.

    Raises:
        JournalError: a key is unknown, missing or of a wrong type; the message names it.
    """
    state = _read_record(JobState, data, "journal")
    assert isinstance(state, JobState)
    return state


def _plain(value: object) -> object:
    if is_dataclass(value):
        return {
            field.name: _plain(item)
            for field in fields(value)
            if (item := getattr(value, field.name)) != _default(type(value), field.name)
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


@cache
def _defaults(kind: type) -> dict[str, object]:
    found: dict[str, object] = {}
    for field in fields(kind):
        if field.default is not MISSING:
            found[field.name] = field.default
        elif field.default_factory is not MISSING:
            found[field.name] = field.default_factory()
        else:
            found[field.name] = MISSING
    return found


def _default(kind: type, name: str) -> object:
    return _defaults(kind)[name]


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(kind: object, data: object, where: str) -> object:
    """Read one value of an annotated type."""
    origin = get_origin(kind)
    if origin in {Union, UnionType}:
        return None if data is None else _read(_not_none(kind), data, where)
    if origin is tuple:
        if not isinstance(data, list):
            raise JournalError(f"{where} is {data!r}; it must be a list")
        return tuple(_read(get_args(kind)[0], item, f"{where}[{place}]") for place, item in enumerate(data))
    if origin is not None:
        return _read_mapping(kind, data, where)
    assert isinstance(kind, type)
    return _read_record(kind, data, where) if is_dataclass(kind) else _read_scalar(kind, data, where)


def _not_none(kind: object) -> object:
    return next(part for part in get_args(kind) if part is not NoneType)


def _read_record(kind: type, data: object, where: str) -> object:
    if not isinstance(data, dict):
        raise JournalError(f"{where} is {data!r}; it must be an object")
    hints, defaults = _hints(kind), _defaults(kind)
    unknown = set(data) - set(defaults)
    if unknown:
        raise JournalError(f"{where} has the unknown keys {sorted(unknown)}")
    missing = [name for name, default in defaults.items() if default is MISSING and name not in data]
    if missing:
        raise JournalError(f"{where} lacks {missing}")
    return kind(**{name: _read(hints[name], item, f"{where}.{name}") for name, item in data.items()})


def _read_mapping(kind: object, data: object, where: str) -> object:
    if not isinstance(data, dict):
        raise JournalError(f"{where} is {data!r}; it must be an object")
    key_kind, item_kind = get_args(kind)
    try:
        keyed = {key_kind(key): item for key, item in data.items()}
    except ValueError as error:
        raise JournalError(f"{where} has a key that is no {key_kind.__name__}: {error}") from None
    return {key: _read(item_kind, item, f"{where}.{key}") for key, item in keyed.items()}


def _read_scalar(kind: type, data: object, where: str) -> object:
    if issubclass(kind, Enum):
        try:
            return kind(data)
        except ValueError:
            raise JournalError(f"{where} is {data!r}; it must be one of {[item.value for item in kind]}") from None
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise JournalError(f"{where} is {data!r}; it must be {kind.__name__}")
    return data
