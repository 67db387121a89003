"""The words of a Kubernetes engineer: what once was private idiom does not come back."""

from __future__ import annotations

import re

import pytest

from e2e.bootstrap.paths import CHECKOUT

# Letters alone bound a word, so that one within a snake_case name is found, too.
IDIOM = re.compile(
    r"(?<![a-z])(desks?|keepers?|wish(es)?|rungs?|occasions?|homeless|shunned|misfits?|errands?|witness(es)?"
    r"|judg(e|es|ed|ing|ements?)|bookkeeping|half_told|self_watch|footprint)(?![a-z])",
    re.IGNORECASE,
)
ROOTS = ("operator", "trainer_sidecar", "e2e", "tests", "docs", "release", "charts")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
KINDS = {".py", ".md", ".proto", ".yaml", ".json", ".tpl", ".txt"}
FILES = [path for root in ROOTS for path in (CHECKOUT / root).rglob("*") if path.suffix in KINDS]


@pytest.mark.parametrize("text", ["a wish", "_wish(name)", "test_it_judges_nothing", "Desk(ports)", "## Judged"])
def test_idiom_is_found_within_names_too(text: str) -> None:
    assert IDIOM.search(text)


def test_nothing_speaks_the_old_idiom() -> None:
    found = {
        f"{path.relative_to(CHECKOUT)}: {word.group()}"
        for path in [*FILES, *(CHECKOUT / page for page in PAGES)]
        if path.name != "test_idiom.py"
        for word in IDIOM.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == set()
