"""Records: frozen for whoever reads and checks the code, plain while it runs.

`dataclass(frozen=True)` guards every field at run time, which makes a record three times as expensive to construct;
for the planner, which constructs little else, that was most of a decision. So the type checker does the guarding: to
it a `record` is a frozen dataclass and an assignment to a field is an error. `lock` guards at run time as well; the
tests of the planner run with it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any, Final, TypeVar, dataclass_transform

Record = TypeVar("Record")
_RECORDS: Final[list[type]] = []
_new = object.__new__
_set = object.__setattr__


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(kind: type[Record]) -> type[Record]:
    """Make a class a dataclass of values: compared and hashed by them, and never changed."""
    made = dataclass(unsafe_hash=True)(kind)
    _RECORDS.append(made)
    return made


def changed(record: Record, **changes: Any) -> Record:  # noqa: ANN401  # as dataclasses.replace
    """A copy with some fields changed; nothing is derived or checked anew, as `dataclasses.replace` would.

    Raises:
        TypeError: a field does not exist.
    """
    values = record.__dict__
    merged = values | changes
    if len(merged) != len(values):
        raise TypeError(f"{type(record).__name__} has no {sorted(changes.keys() - values.keys())}")
    copy: Record = _new(record.__class__)
    _set(copy, "__dict__", merged)
    return copy


def _set_once(one: object, name: str, value: object) -> None:
    """What a constructor does, and nobody else."""
    if name in one.__dict__:
        raise FrozenInstanceError(f"{type(one).__name__}.{name} is changed; take a changed copy")
    _set(one, name, value)


def draft(record: object) -> dict[str, Any]:
    """The fields of a record, to be changed one after the other and made a record again by `redone`."""
    return record.__dict__.copy()


def redone(record: Record, fields: dict[str, Any]) -> Record:
    """A record like this one with the fields of its draft, which belongs to it from now on.

    Raises:
        TypeError: a field does not exist.
    """
    if len(fields) != len(record.__dict__):
        raise TypeError(f"{type(record).__name__} has no {sorted(fields.keys() - record.__dict__.keys())}")
    copy: Record = _new(record.__class__)
    _set(copy, "__dict__", fields)
    return copy


@contextmanager
def lock() -> Iterator[None]:
    """Refuse assignments to fields of all records, as a frozen dataclass would."""
    guard: Callable[..., None] = _set_once
    for kind in _RECORDS:
        kind.__setattr__ = guard  # type: ignore[method-assign]
    try:
        yield
    finally:
        for kind in _RECORDS:
            del kind.__setattr__
