"""Who may change what the coordinator knows: the table in job.py, read from the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainer_sidecar.coordinator

PACKAGE = Path(trainer_sidecar.coordinator.__file__).parent
CONVERSATION = {"conversation/conversation", "conversation/effects"}
OWNERS = {
    "attempt": {"state/attempt"},
    "incident": {"state/incidents"},
    "incidents": {"state/incidents"},
    "effects": {"state/effects"},
    "outbox": {"state/effects"},
    "steps": {"state/steps"},
    "ending": {"state/last_step"},
    "roster": {"state/roster"},
    "pod": {"state/roster"},
    "target": {"state/roster"},
    "targets": {"state/roster"},
    "spares": {"state/roster"},
    "registered": {"state/roster"},
    "dropped": {"state/roster"},
    "conversation": CONVERSATION,
    "memory": CONVERSATION,
    "controller": {"state/views"},
    "checkpoints": {"state/views"},
    "contacts": {"state/leases"},
    "standstill": {"state/standstill"},
    "job": {"state/job"},
}
"""What a value is called where it is used, and the modules that may change it."""

CHANGES = {"add", "append", "clear", "discard", "extend", "insert", "pop", "popleft", "remove", "setdefault", "update"}


def holder(node: ast.expr) -> str:
    """The name of the value that `node` is an attribute or an entry of."""
    inner = node.value if isinstance(node, ast.Attribute | ast.Subscript) else node
    return inner.attr if isinstance(inner, ast.Attribute) else inner.id if isinstance(inner, ast.Name) else ""


def changed(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The values that the code of `tree` changes, and where."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.AugAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            targets = [node.func, node.func.value]  # x.add(…) changes x, job.x.add(…) what holds x, too
        for target in targets:
            for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(one, ast.Attribute | ast.Subscript):
                    yield holder(one), one.lineno


def module(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=module)
def test_a_value_is_changed_by_its_own_module_only(path: Path) -> None:
    for name, line in changed(ast.parse(path.read_text())):
        assert module(path) in OWNERS.get(name, {module(path)}), f"{module(path)}:{line} changes {name}"


@pytest.mark.parametrize(
    "code", ["job.order = 1", "job.attempt.done = True", "roster.targets[3] = 1", "job.roster.registered.add(1)"]
)
def test_a_change_is_seen_by_this_test(code: str) -> None:
    assert {name for name, _ in changed(ast.parse(code))} & OWNERS.keys()
