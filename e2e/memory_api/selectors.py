"""Label and field selectors, as lists and watches carry them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial

from e2e.memory_api.errors import bad_request
from e2e.memory_api.resources import Resource
from hajob.api.base import Json

Predicate = Callable[[Json], bool]

_REQUIREMENTS = re.compile(r",(?![^(]*\))")
_SET = re.compile(r"^(\S+)\s+(in|notin)\s*\((.*)$")
_EQUAL = re.compile(r"^([^=!]+?)\s*(==|=|!=)\s*([^=!]*)$")


def selects(resource: Resource, label_selector: str, field_selector: str) -> Predicate:
    """Whether an object matches both selectors.

    Raises:
        ApiError: 400, a selector cannot be read.
    """
    labels, fields = _labels(label_selector), _fields(resource, field_selector)

    def matches(body: Json) -> bool:
        own = body["metadata"].get("labels") or {}
        return all(test(own) for test in labels) and all(test(body) for test in fields)

    return matches


def selector_of(spec: Json) -> Predicate:
    """A LabelSelector object, as disruption budgets have it; an empty one selects everything."""
    wanted = spec.get("matchLabels") or {}
    expressions = spec.get("matchExpressions") or []

    def matches(body: Json) -> bool:
        labels = body["metadata"].get("labels") or {}
        return all(labels.get(key) == value for key, value in wanted.items()) and all(
            _holds(labels, each["key"], each["operator"].lower(), set(each.get("values") or ())) for each in expressions
        )

    return matches


@lru_cache(maxsize=256)
def _labels(selector: str) -> tuple[Callable[[Json], bool], ...]:
    return tuple(_requirement(each.strip()) for each in _REQUIREMENTS.split(selector) if each.strip())


def _requirement(text: str) -> Callable[[Json], bool]:
    if found := _SET.match(text):
        key, operator, rest = found.groups()
        if not rest.endswith(")"):
            raise bad_request("unable to parse requirement: found '', expected: ',' or ')'")
        values = {value.strip() for value in rest[:-1].split(",")}
        return partial(_holds, key=key, operator=operator, values=values)
    if found := _EQUAL.match(text):
        key, operator, value = found.groups()
        return partial(_holds, key=key.strip(), operator="notin" if operator == "!=" else "in", values={value})
    if text.startswith("!"):
        return partial(_holds, key=text[1:].strip(), operator="doesnotexist", values=set())
    return partial(_holds, key=text, operator="exists", values=set())


def _holds(labels: Json, key: str, operator: str, values: set[str]) -> bool:
    if operator == "in":
        return labels.get(key) in values
    if operator == "notin":
        return labels.get(key) not in values
    return (key in labels) is (operator == "exists")


def _fields(resource: Resource, selector: str) -> list[Predicate]:
    tests: list[Predicate] = []
    for requirement in filter(None, selector.split(",")):
        found = _EQUAL.match(requirement)
        if found is None:
            raise bad_request(f"invalid selector: '{requirement}'; can't understand '{requirement}'")
        path, operator, value = found.groups()
        if path not in {"metadata.name", "metadata.namespace", *resource.fields}:
            raise bad_request(f"field label not supported: {path}")
        tests.append(partial(_is, path=path, value=value, equal=operator != "!="))
    return tests


def _is(body: Json, path: str, value: str, *, equal: bool) -> bool:
    node: object = body
    for part in path.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    shown = str(node).lower() if isinstance(node, bool) else str(node or "")
    return (shown == value) is equal
