"""What the Makefile names is there."""

from __future__ import annotations

import re
import shlex

import pytest

from e2e.bootstrap.paths import CHECKOUT
from tests.rigs.names_of_tests import names_of_tests

LINES = (CHECKOUT / "Makefile").read_text(encoding="utf-8").splitlines()
FILTERED = [line for line in LINES if re.search(r" -k ", line) and line.startswith("\t")]


def test_there_are_filters_to_look_at() -> None:
    assert FILTERED


@pytest.mark.parametrize("line", FILTERED, ids=range(len(FILTERED)))
def test_each_word_of_a_filter_names_a_test_of_its_files(line: str) -> None:
    words = shlex.split(line)
    files = [CHECKOUT / word for word in words if word.endswith(".py")]
    known = [name for path in files for name in names_of_tests(path)]
    chosen = [word for word in words[words.index("-k") + 1].split() if word not in {"and", "or", "not"}]
    assert [word for word in chosen if not any(word in name for name in known)] == []
