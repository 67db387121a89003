"""Links of the documentation lead to files and headings; code that they name in backticks is in the file."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from e2e.bootstrap.paths import CHECKOUT

ARCHITECTURE = CHECKOUT / "docs/internals/architecture.md"
PAGES = sorted([*(CHECKOUT / "docs").rglob("*.md"), *CHECKOUT.glob("*.md"), CHECKOUT / "e2e/README.md"])
LINK = re.compile(r"\[([^]\n]+)\]\(([^)\s]+)\)")
SOURCES = sorted(path for root in ("operator", "trainer_sidecar") for path in (CHECKOUT / root).rglob("*.py"))
REFERENCE = re.compile(r"docs/[\w/.-]+\.md(?:#[\w-]+)?")
CODE = re.compile(r"`([A-Za-z_][\w.]*)`")


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the functions, classes, methods and constants of a module, members with the name of their class."""
    found: set[str] = set()
    bodies = [("", ast.parse(path.read_text(encoding="utf-8")).body)]
    while bodies:
        prefix, body = bodies.pop()
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                bodies.append((f"{prefix}{node.name}.", node.body))
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            found.update(prefix + target.id for target in targets if isinstance(target, ast.Name))
    return frozenset(found)


@cache
def headings_of(page: Path) -> frozenset[str]:
    """Return the anchors of a page: those it gives itself, and those that are made from its headings."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    made = (re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings)
    return frozenset([*made, *re.findall(r"\{#([\w-]+)\}", text)])


def links_of(text: str) -> list[tuple[str, str]]:
    """Return words and target of each link to a file."""
    return [link for link in LINK.findall(text) if not link[1].startswith(("http:", "https:", "mailto:"))]


def problem_of(page: Path, words: str, target: str) -> str:
    """Return what is wrong with a link; empty for nothing."""
    file, _, heading = target.partition("#")
    path = (page.parent / file).resolve() if file else page
    if not path.exists():
        return f"[{words}]({target}): there is no such file"
    if heading and heading not in headings_of(path):
        return f"[{words}]({target}): there is no such heading"
    missing = set(CODE.findall(words)) - names_in(path) if path.suffix == ".py" else set()
    return f"[{words}]({target}): it has no {', '.join(sorted(missing))}" if missing else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = links_of(page.read_text(encoding="utf-8"))
    assert [problem for words, target in links if (problem := problem_of(page, words, target))] == []


def test_comments_refer_to_headings_that_are_there() -> None:
    found = {(reference, path.name) for path in SOURCES for reference in REFERENCE.findall(path.read_text("utf-8"))}
    assert len(found) > 50
    assert [problem for target, name in found if (problem := problem_of(CHECKOUT / "README.md", name, target))] == []


def test_code_is_named_wherever_it_is_linked() -> None:
    links = links_of(ARCHITECTURE.read_text(encoding="utf-8"))
    code = [words for words, target in links if target.endswith(".py")]
    assert len(code) > 100
    assert [words for words in code if not CODE.findall(words)] == []


@pytest.mark.parametrize(
    ("words", "target", "problem"),
    [
        ("`JobController.apply_report`", "../../operator/hajob/job/controller.py", ""),
        ("`TABLE`", "../../operator/hajob/plan/table.py", ""),
        ("`JobController.gone`", "../../operator/hajob/job/controller.py", "it has no JobController.gone"),
        ("`JobController`", "../../operator/hajob/job/nowhere.py", "there is no such file"),
        ("launcher", "../protocols/launcher.md#reached", ""),
        ("launcher", "../protocols/launcher.md#arguments", "there is no such heading"),
    ],
)
def test_wrong_links_are_found(words: str, target: str, problem: str) -> None:
    assert problem_of(ARCHITECTURE, words, target).endswith(problem)
    assert bool(problem_of(ARCHITECTURE, words, target)) is bool(problem)
