"""`make house`: what of the structure can be counted, beside the goal; `--check` fails where a figure got worse.

    python -m tests.house [--check | --write]

limits.json holds what was reached. `--write` takes today's figures as limits where they are better; by hand one makes a
limit looser, and the commit says why. `--check` reads the code only, so that `make lint` stays quick; walks through the
running product (tests/house/walks.py) are held by a unit test, and what commits change by nobody.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.house import measures
from tests.house.commits import COMMITS, changes
from tests.house.measures import Source
from tests.house.walks import CHECKOUT, PRODUCT
from tests.rigs.walks import exit_to_stop_train, walks_to_orders

LIMITS: Final = Path(__file__).with_name("limits.json")
VERBS: Final = frozenset(Path(__file__).with_name("verbs.txt").read_text().split())
"""Words that a docstring begins with when it commands."""
SHELL: Final = tuple(
    f"operator/hajob/{room}/" for room in ("app", "job", "pki", "coordinator_link", "faults", "leader", "kube")
)
"""Of the operator: what touches the outside world."""
PASSING: Final = (*SHELL, "trainer_sidecar/coordinator/", "trainer_sidecar/agent/")


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    Attributes:
        name: What is counted.
        value: How much there is.
        goal: Where it shall come to; None where only its direction counts.
        more_is_better: Whether it may only grow, else only shrink.
    """

    name: str
    value: float
    goal: float | None = None
    more_is_better: bool = False

    def is_as_good_as(self, limit: float) -> bool:
        """Whether this is not worse than a limit."""
        value = rounded(self.value)
        return value >= limit if self.more_is_better else value <= limit


def figures(product: Sequence[Source], tests: Sequence[Source]) -> list[Figure]:
    """Count everything in the modules of the product, and of its tests and stand-ins."""

    def below(*directories: str) -> list[Source]:
        return [source for source in product if source.path.as_posix().startswith(directories)]

    rooms = sorted({source.path.parts[2] for source in below("operator/hajob/") if len(source.path.parts) > 3})
    told = {name: f"operator/hajob/{name}/" for name in rooms} | {"the sidecar": "trainer_sidecar/"}
    docstrings = [
        Figure(
            f"imperative docstrings in {name}, %",
            measures.imperative(below(directory), VERBS),
            95,
            more_is_better=True,
        )
        for name, directory in told.items()
    ]
    return [
        Figure("lines of the product", measures.lines(product)),
        Figure("classes of the product", len(measures.classes(product))),
        Figure("constructors with more than five arguments", len(measures.wide_constructors(product)), 0),
        Figure("callables handed to the operator's shell", measures.handed_callables(below(*SHELL)), 10),
        Figure("Protocols that at most one class fulfils", len(measures.lonely_protocols(product)), 2),
        Figure("classes with a timer of their own", len(measures.own_timers(product)), 1),
        Figure("functions that only pass on", len(measures.passing_on(below(*PASSING))), 10),
        Figure("mean length of a function's name", measures.mean_name(product), 13, more_is_better=True),
        Figure("names of one word that six functions share", len(measures.homonyms(product)), 0),
        Figure("comment lines in 1,000", measures.comments(product), 15, more_is_better=True),
        *docstrings,
        Figure("test modules that import from another", len(measures.borrowing_tests(tests)), 0),
        Figure("reaches of tests into private attributes", measures.private_reaches(tests), 20),
    ]


def walk_figures(product: Sequence[Source]) -> list[Figure]:
    """Play the walks, and count what each passes."""
    fault, report = asyncio.run(walks_to_orders())
    walks = {"fault → order": fault, "report → order": report, "exit → stop_train": exit_to_stop_train()}

    def of(name: str, goals: dict[str, float | None]) -> list[Figure]:
        walk = walks[name]
        counted = {
            "files outside the pure rooms": len(walk.files_outside_pure_rooms),
            "functions that only hand on": len(walk.handed_on(product)),
            "returns": len(walk.returns),
        }
        return [Figure(f"{name}: {what}", counted[what], goal) for what, goal in goals.items()]

    return [
        *of("fault → order", {"files outside the pure rooms": 25, "functions that only hand on": 0}),
        *of("report → order", {"files outside the pure rooms": None, "returns": 2}),
        *of("exit → stop_train", {"files outside the pure rooms": None, "returns": 4}),
    ]


def commit_figures() -> list[Figure]:
    """Count what the newest commits changed; nothing where there is no history."""
    found = changes(CHECKOUT, PRODUCT)
    if found is None:
        return []
    return [
        Figure(f"files that one of {COMMITS} commits changes, median", found.files.median),
        Figure(f"files that one of {COMMITS} commits changes, p90", found.files.p90, 8),
        Figure(f"packages that one of {COMMITS} commits changes, median", found.packages.median),
        Figure(f"packages that one of {COMMITS} commits changes, p90", found.packages.p90, 3),
    ]


def rounded(value: float) -> float:
    """A figure as it is kept and shown."""
    return round(value, 1)


def worse(found: Sequence[Figure], limits: dict[str, float]) -> list[str]:
    """A sentence for each figure that is worse than its limit."""
    return [
        f"{one.name}: {rounded(one.value):g}, and {limits[one.name]:g} was reached (tests/house/limits.json)"
        for one in found
        if one.name in limits and not one.is_as_good_as(limits[one.name])
    ]


def table(found: Sequence[Figure], limits: dict[str, float], product: Sequence[Source]) -> Table:
    """Everything as a table, with the names that too many functions share below it."""
    shown = Table(caption=", ".join(f"{name} {count}" for name, count in measures.homonyms(product).items()))
    for heading in ("what", "today", "limit", "goal"):
        shown.add_column(heading, justify="left" if heading == "what" else "right")
    for one in found:
        goal = "" if one.goal is None else f"{'≥' if one.more_is_better else '≤'} {one.goal:g}"
        shown.add_row(one.name, f"{rounded(one.value):g}", f"{limits[one.name]:g}" if one.name in limits else "", goal)
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--check", action="store_true", help="fail where a figure is worse than what was reached")
    choice.add_argument("--write", action="store_true", help="keep what is better than what was reached")
    chosen = parser.parse_args(arguments)
    gc.disable()  # two million nodes of trees live till the end, and looking through them again takes most of the time
    product = measures.sources(CHECKOUT, *PRODUCT)
    found = figures(product, measures.sources(CHECKOUT, "tests", "e2e"))
    if not chosen.check:
        logging.disable()
        found += walk_figures(product)
    limits: dict[str, float] = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    if chosen.write:
        better = {
            one.name: rounded(one.value)
            for one in found
            if one.goal is not None and one.is_as_good_as(limits.get(one.name, rounded(one.value)))
        }
        LIMITS.write_text(json.dumps(limits | better, indent=2, ensure_ascii=False) + "\n")
        return 0
    problems = worse(found, limits)
    if not chosen.check:
        Console().print(table([*found, *commit_figures()], limits, product))
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
