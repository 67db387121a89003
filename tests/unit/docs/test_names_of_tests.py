"""A test's name says situation and outcome, in at most 60 characters, and no test hides another one of its name."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from e2e.bootstrap.paths import CHECKOUT

LONGEST = 60
FILES = sorted(path for root in ("tests", "e2e/scenarios") for path in (CHECKOUT / root).rglob("test_*.py"))


def names(path: Path) -> Iterator[str]:
    """The tests of a file; methods are tests of their class."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    yield from functions(body)
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{name}" for name in functions(node.body))


def functions(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name


def test_names_are_short() -> None:
    long = {name for path in FILES for name in names(path) if len(name.rpartition(".")[2]) > LONGEST}
    assert long == set()


def test_names_are_given_once_in_a_file() -> None:
    twice = [(path.name, name) for path in FILES for name, count in Counter(names(path)).items() if count > 1]
    assert twice == []


def test_no_two_test_modules_share_a_name() -> None:
    names = Counter(path.name for root in ("tests", "e2e") for path in (CHECKOUT / root).rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
