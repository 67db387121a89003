"""docs/admin/faults.md says of every source how its facts end, in the words of the table that the code follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from hajob.sources import registry
from hajob.sources.reading import CONDITIONS, DRAIN_TAINTS

PAGE = (Path(__file__).parents[3] / "docs" / "admin" / "faults.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("row", registry.SOURCES, ids=lambda row: row.name)
def test_the_page_says_how_the_facts_of_a_source_end(row: registry.SourceRow) -> None:
    assert row.ends
    assert f"| {row.name} | {row.ends} |" in PAGE


@pytest.mark.parametrize("name", sorted({*DRAIN_TAINTS, *CONDITIONS}))
def test_the_page_names_what_counts_by_default(name: str) -> None:
    assert f"`{name}`" in PAGE
