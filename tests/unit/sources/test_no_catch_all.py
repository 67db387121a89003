"""The rule of `make lint` for parsers: what may go wrong is named, a catch-all would hide what nobody thought of."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from e2e.bootstrap.paths import CHECKOUT

ROOMS = ("operator/hajob/sources", "operator/hajob/faults/rules")
EVERYTHING = {"Exception", "BaseException"}


def catch_alls(source: str) -> Iterator[int]:
    """Lines that catch whatever comes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler):
            caught = (
                [None] if node.type is None else [name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)]
            )
            if None in caught or EVERYTHING & set(caught):
                yield node.lineno
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            caught = [name.id for name in node.args if isinstance(name, ast.Name)]
            yield from [node.lineno] if EVERYTHING & set(caught) else []


def test_no_parser_catches_everything() -> None:
    files = [path for room in ROOMS for path in Path(CHECKOUT / room).rglob("*.py")]
    assert len(files) > 20
    assert [f"{path.name}:{line}" for path in files for line in catch_alls(path.read_text("utf-8"))] == []


def test_the_rule_finds_what_it_forbids() -> None:
    for caught in ("except:", "except Exception:", "except (OSError, BaseException) as error:"):
        assert list(catch_alls(f"try:\n    pass\n{caught}\n    pass\n")) == [3]
    assert list(catch_alls("with contextlib.suppress(Exception):\n    pass\n")) == [1]
    assert list(catch_alls("try:\n    pass\nexcept ValueError:\n    pass\n")) == []
