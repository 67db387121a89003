"""What commits change, read from a history that a test makes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.house.commits import Spread, changes


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Three commits that change two files in two packages, one and one, and one that changes no product."""
    git(tmp_path, "init", "-q")
    for number, names in enumerate(
        [("p/a/x.py", "p/b/y.py"), ("p/a/x.py", "t/z.py"), ("t/z.py",), ("p/b/y_pb2.py", "p/c.py")]
    ):
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"{number}\n")
        git(tmp_path, "add", ".")
        git(tmp_path, "-c", "user.name=me", "-c", "user.email=me@here", "commit", "-q", "-m", "change")
    return tmp_path


def git(where: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=where, check=True)


def test_only_commits_that_change_the_product_count(history: Path) -> None:
    found = changes(history, ["p"], 3)
    assert found is not None
    assert (found.files, found.packages) == (Spread.of([1, 1, 2]), Spread.of([1, 1, 2]))
    assert found.files.median == 1


def test_without_a_history_of_so_many_nothing_is_said(history: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert changes(history, ["p"], 4) is None
    assert changes(tmp_path_factory.mktemp("archive"), ["p"], 1) is None


def test_nine_in_ten_do_not_exceed_the_p90() -> None:
    spread = Spread.of(list(range(1, 12)))
    assert (spread.median, spread.p90) == (6, 10)
