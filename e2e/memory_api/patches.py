"""Merge patches (RFC 7386) and JSON patches (RFC 6902)."""

from __future__ import annotations

from collections.abc import Sequence

from e2e.memory_api.errors import patch_rejected
from hajob.api.base import Json


def merged(target: object, patch: object) -> object:
    """A merge patch: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def operated(target: Json, operations: Sequence[Json]) -> Json:
    """A JSON patch, all of it or nothing.

    Raises:
        ApiError: 422, a test fails or a path is not there.
    """
    root: Json = {"": target}
    for operation in operations:
        parts = ["", *(_unescaped(part) for part in operation["path"].split("/")[1:])]
        try:
            _operate(root, parts, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise patch_rejected() from error
    result: Json = root[""]
    return result


def _operate(root: Json, parts: list[str], operation: Json) -> None:
    """One operation, on copies of what lies on its way.

    Raises:
        KeyError, IndexError, ValueError, TypeError: it does not apply.
    """
    node: dict[str, object] | list[object] = root
    for part in parts[:-1]:
        key = _key(node, part)
        below = node[key]  # type: ignore[index]
        if not isinstance(below, dict | list):
            raise TypeError(part)
        node[key] = below.copy()  # type: ignore[index]
        node = node[key]  # type: ignore[index, assignment]
    kind, last = operation["op"], parts[-1]
    if kind == "add" and isinstance(node, list):
        position = len(node) if last == "-" else int(last)
        if position > len(node):
            raise IndexError(last)
        node.insert(position, operation["value"])
    elif kind == "add" and isinstance(node, dict):
        node[last] = operation["value"]
    elif kind == "test":
        if node[_key(node, last)] != operation["value"]:  # type: ignore[index]
            raise ValueError(last)
    elif kind == "replace":
        _ = node[_key(node, last)]  # type: ignore[index]
        node[_key(node, last)] = operation["value"]  # type: ignore[index]
    elif kind == "remove":
        del node[_key(node, last)]  # type: ignore[arg-type]
    else:
        raise ValueError(kind)


def _key(node: object, part: str) -> str | int:
    return int(part) if isinstance(node, list) else part


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")
