"""The page about the stand-in names tests that there are."""

from __future__ import annotations

import re

from e2e.bootstrap.paths import CHECKOUT
from tests.rigs.names_of_tests import NAMES_IN_THE_PROJECT

PAGE = (CHECKOUT / "docs/internals/toy-trainer.md").read_text()
TABLE = PAGE.partition("{#checklist}")[2]
ROWS = [line.replace("\\|", "/").split("|")[1:-1] for line in TABLE.splitlines() if line.startswith("| ")][2:]


def test_every_line_names_a_test_or_says_not() -> None:
    assert len(ROWS) > 40
    for row in ROWS:
        assert re.findall(r"`test_\w+`", row[2]) or "**not**" in row[1], row


def test_the_tests_named_are_there() -> None:
    assert set(re.findall(r"`(test_\w+)`", TABLE)) - NAMES_IN_THE_PROJECT == set()


def test_the_vectors_named_are_there() -> None:
    for name in re.findall(r"vector `([\w-]+)`", TABLE):
        assert (CHECKOUT / f"e2e/mindio/vectors/{name}.yaml").exists()
