"""The page about the stand-in names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/toy-trainer.md").read_text()
TABLE = PAGE.partition("{#checklist}")[2]
ROWS = [line.replace("\\|", "/").split("|")[1:-1] for line in TABLE.splitlines() if line.startswith("| ")][2:]
DEFINED = {
    name
    for tree in ("tests", "e2e/scenarios")
    for path in (ROOT / tree).rglob("test_*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
}


def test_every_line_names_a_test_or_says_not() -> None:
    assert len(ROWS) > 40
    for row in ROWS:
        assert re.findall(r"`test_\w+`", row[2]) or "**not**" in row[1], row


def test_the_tests_named_are_there() -> None:
    assert set(re.findall(r"`(test_\w+)`", TABLE)) - DEFINED == set()


def test_the_vectors_named_are_there() -> None:
    for name in re.findall(r"vector `([\w-]+)`", TABLE):
        assert (ROOT / f"e2e/mindio/vectors/{name}.yaml").exists()
