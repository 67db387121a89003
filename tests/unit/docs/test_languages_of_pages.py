"""A page in two languages is one page: the same headings, snippets, tables and pictures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.bootstrap.paths import CHECKOUT

CHINESE = sorted([*(CHECKOUT / "docs").rglob("*.zh.md"), *CHECKOUT.glob("*.zh.md")])
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def english_of(page: Path) -> Path:
    return page.with_name(page.name.replace(".zh.md", ".md"))


def without_snippets(page: Path) -> str:
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def snippets_of(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def headings_of(page: Path) -> list[int]:
    """Return the depth of each heading."""
    return [len(found) for found in re.findall(r"^(#+) ", without_snippets(page), re.MULTILINE)]


def tables_of(page: Path) -> list[tuple[int, int]]:
    """Return rows and columns of each table; of README the Chinese table of actions has MindCluster's names as well."""
    tables: list[tuple[int, int]] = []
    lines: list[str] = []
    for line in [*without_snippets(page).splitlines(), ""]:
        if line.startswith("|"):
            lines.append(line)
        elif lines:
            columns = 2 if "`Retry`" in "".join(lines) else len(re.findall(r"(?<!\\)\|", lines[0]))
            tables.append((len(lines), columns))
            lines = []
    return tables


def test_there_are_chinese_pages() -> None:
    names = {page.relative_to(CHECKOUT).as_posix() for page in CHINESE}
    assert names >= {
        "README.zh.md",
        "docs/README.zh.md",
        "docs/admin/install.zh.md",
        "docs/admin/remedies.zh.md",
        "docs/admin/troubleshooting.zh.md",
        "docs/user/cli.zh.md",
        "docs/user/quick-start.zh.md",
        "docs/user/taskd.zh.md",
        "docs/user/terms.zh.md",
    }


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_headings_snippets_and_tables_are_the_same(page: Path) -> None:
    english = english_of(page)
    assert headings_of(page) == headings_of(english)
    assert snippets_of(page) == snippets_of(english)
    assert tables_of(page) == tables_of(english)


def links_of(page: Path) -> set[str]:
    """Return what a page leads to, Chinese pages and pictures by their English names; not the page itself."""
    found = re.findall(r"\]\(([^)\s]+)\)", without_snippets(page))
    targets = {re.sub(r"[.-]zh(?=\.\w+$)", "", target.partition("#")[0]) for target in found}
    return targets - {english_of(page).name, ""}


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_links_lead_to_the_same_pages(page: Path) -> None:
    """What the English page leads to, the Chinese one leads to, too; it may lead to more that is in Chinese."""
    assert links_of(english_of(page)) - links_of(page) == set()


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_named_things_are_the_same(page: Path) -> None:
    """What stands in backticks is a name or a command: nothing of it is lost on the way."""
    english = set(re.findall(r"`([^`\n]+)`", without_snippets(english_of(page))))
    chinese = set(re.findall(r"`([^`\n]+)`", without_snippets(page)))
    assert english - chinese == set()
