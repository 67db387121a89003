"""The words of a Kubernetes engineer: what once was private idiom does not come back."""

from __future__ import annotations

import re

from e2e.bootstrap.paths import CHECKOUT

IDIOM = re.compile(
    r"\b(desks?|keepers?|wish(es)?|rungs?|occasions?|homeless|shunned|misfits?|errands?|witness(es)?)\b", re.IGNORECASE
)
ROOTS = ("operator", "trainer_sidecar", "e2e", "tests", "docs")
FILES = [path for root in ROOTS for path in (CHECKOUT / root).rglob("*") if path.suffix in {".py", ".md", ".proto"}]


def test_nothing_speaks_the_old_idiom() -> None:
    found = {
        f"{path.relative_to(CHECKOUT)}: {word.group()}"
        for path in FILES
        if path.name != "test_idiom.py"
        for word in IDIOM.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == set()
