"""Each example is a manifest that `kubectl hajob lint` has nothing against."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.bootstrap.paths import CHECKOUT
from hajob.cli.lint import findings_of_file
from hajob.cli.lint_pods import ERROR

EXAMPLES = sorted((CHECKOUT / "examples").glob("*.yaml"))
ADVICE = {"moe": 1, "mindformers": 1}
"""How much `lint` finds worth knowing: Shrink cannot work with experts, and MindSpore does not shrink."""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.stem))
def test_lint_finds_nothing_to_change(path: Path) -> None:
    assert [one["message"] for one in findings_of_file(str(path)) if one["grade"] == ERROR] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.stem))
def test_lint_advises_no_more_than_is_known(path: Path) -> None:
    advice = [one["message"] for one in findings_of_file(str(path)) if one["grade"] != ERROR]
    assert len(advice) == ADVICE.get(path.stem, 0), advice
