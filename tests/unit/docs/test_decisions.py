"""The decisions are numbered without a gap, and their index says of each page the question that it answers."""

from __future__ import annotations

import re

from e2e.bootstrap.paths import CHECKOUT

DIRECTORY = CHECKOUT / "docs/decisions"
PAGES = sorted(page for page in DIRECTORY.glob("*.md") if page.name != "README.md")
INDEX = (DIRECTORY / "README.md").read_text(encoding="utf-8")


def test_numbers_follow_one_another() -> None:
    assert [page.name[:4] for page in PAGES] == [f"{number:04}" for number in range(1, len(PAGES) + 1)]


def test_the_index_has_every_page_with_its_question() -> None:
    rows = re.findall(r"^\| \[(\d+)\]\(([^)]+)\) \| (.+) \|$", INDEX, re.MULTILINE)
    titles = [page.read_text(encoding="utf-8").splitlines()[0] for page in PAGES]
    assert [(page, f"# {number} {question}") for number, page, question in rows] == [
        (page.name, title) for page, title in zip(PAGES, titles, strict=True)
    ]
