"""The tests that there are, by their names, without importing them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from e2e.bootstrap.paths import CHECKOUT

NAMES_IN_THE_PROJECT = {
    name
    for tree in ("tests", "e2e/scenarios")
    for path in (CHECKOUT / tree).rglob("test_*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
}


def names_of_tests(path: Path) -> Iterator[str]:
    """List the tests of a file; methods are tests of their class."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    yield from _names_of_functions(body)
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{name}" for name in _names_of_functions(node.body))


def _names_of_functions(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name
