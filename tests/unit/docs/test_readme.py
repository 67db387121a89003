"""The README says what is: its example is the file, its jobs are valid, its links lead somewhere."""

from __future__ import annotations

import re

import pytest
import yaml

from e2e.bootstrap.paths import CHECKOUT
from e2e.demo.acts import EXAMPLE
from e2e.demo.table import last_line, rows
from e2e.harness.account import Recovery
from hajob.api.spec import HATrainingJobSpec

README = (CHECKOUT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
JOBS = [text for language, text in BLOCKS if language == "yaml"]
PICTURES = [text for language, text in BLOCKS if language == "text"]
ACCOUNT = Recovery("a fault", "InPlace", 0, 0, 0, 0, 0, 0, {}, {})


def test_the_example_is_the_file() -> None:
    assert JOBS[0] == EXAMPLE.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", JOBS)
def test_its_jobs_are_valid(text: str) -> None:
    job = yaml.safe_load(text)
    assert job["kind"] == "HATrainingJob"
    assert HATrainingJobSpec.model_validate(job["spec"])


def test_its_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith(("http", "#"))]
    assert [link for link in links if not (CHECKOUT / link.partition("#")[0]).exists()] == []


def test_every_page_is_in_the_index_of_docs() -> None:
    """The site's navigation is made of it, too."""
    docs = CHECKOUT / "docs"
    index = (docs / "README.md").read_text(encoding="utf-8")
    pages = [page.relative_to(docs).as_posix() for page in docs.rglob("*.md") if "decisions" not in page.parts]
    listed = [page for page in pages if not page.endswith(".zh.md") and page != "README.md"]
    assert [page for page in listed if not re.search(rf"\({re.escape(page)}[)#]", index)] == []


def test_its_table_is_what_the_demo_prints() -> None:
    table = next(text for text in PICTURES if "whole outage" in text)
    names = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")]
    assert [name for name, _ in rows([ACCOUNT])] == [name for name in names[1:] if name in dict(rows([ACCOUNT]))]
    assert table.rstrip().endswith(last_line(6, 6, True))


def test_it_is_short_enough_to_be_read() -> None:
    assert len(README.splitlines()) < 250
