"""The matrix of what was tried: each letter in a cell has a test of its kind, and a cell without one says why."""

from __future__ import annotations

import re

from e2e.bootstrap.paths import CHECKOUT
from tests.rigs.names_of_tests import names_of_tests

PAGE = (CHECKOUT / "docs/user/training-images.md").read_text()
SECTION = PAGE.partition("{#tried}")[2].partition("\n## ")[0]
SCENARIOS = CHECKOUT / "e2e/scenarios"
KINDS = {"P": "test_real_torch.py", "M": "test_real_mindspore.py", "S": "test_taskd.py"}
"""Letters whose tests stand in one file; T is any other scenario."""


def table(heading: str) -> list[list[str]]:
    """The rows of the table that has this heading, head included, cells stripped."""
    rows = SECTION.partition(heading)[2].partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows if not row.startswith("| ---")]


def letters_of_cell(cell: str) -> set[str]:
    """The letters that a cell begins with: `T, M: any rank` has two."""
    return set(re.findall(r"[TPMS]", (re.match(r"[TPMS](?:, [TPMS])*(?![\w])", cell) or [""])[0]))


MATRIX = {row[0]: row[1:] for row in table("| | torchrun, PyTorch | msrun, MindSpore | TaskD |")}
SHOWN = {row[0]: row[1] for row in table("| Shown by | tests |")}


def test_every_cell_is_shown_or_says_why_not() -> None:
    assert len(MATRIX) > 9
    for action, cells in MATRIX.items():
        for cell in cells:
            assert letters_of_cell(cell) or len(cell) > 4, f"{action}: {cell!r} tells nothing"


def test_every_letter_has_tests_of_its_kind() -> None:
    wanted = {
        f"{action}, {letter}" for action, cells in MATRIX.items() for cell in cells for letter in letters_of_cell(cell)
    }
    assert set(SHOWN) == wanted
    for key, said in SHOWN.items():
        letter, named = key.rpartition(", ")[2], set(re.findall(r"`(test_\w+)`", said))
        others = {path.name for path in SCENARIOS.glob("test_*.py")} - set(KINDS.values())
        files = {KINDS[letter]} if letter in KINDS else others
        there = {name for file in files for name in names_of_tests(SCENARIOS / file)}
        assert named, key
        assert named <= there, f"{key}: {sorted(named - there)}"
