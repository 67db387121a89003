"""What the proof leaves: the matrix for the terminal, docs/proof.md for readers, JSON for machines.

A cell that was not played or was not as promised stands there as such; what was wrong with it stands below.
"""

from __future__ import annotations

import datetime
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from e2e.bootstrap.paths import CHECKOUT
from e2e.proof.cells import ACTIONS, EXTRA, MOMENTS, RANKS, Cell, script
from e2e.proof.verdict import Result

PAGE: Final = CHECKOUT / "docs/proof.md"
RESULTS: Final = CHECKOUT / "bench/results/proof.json"
RANK_WORDS: Final[Mapping[str, str]] = {
    "first": "rank 0",
    "last": "rank 7",
    "two": "ranks 1 and 2",
    "node": "a node (2, 3)",
}
MOMENT_WORDS: Final[Mapping[str, str]] = {
    "forward": "forward pass",
    "update": "optimizer update",
    "save": "checkpoint being written",
    "recovery": "another recovery",
}
NOT_PLAYED: Final = "–"

Results = Mapping[str, Sequence[Result]]


def word(results: Sequence[Result]) -> str:
    """A cell of the table: the p50 of the control share, or that it failed."""
    if not results:
        return NOT_PLAYED
    bad = sum(not each.is_good for each in results)
    if bad:
        return f"FAILED {bad}/{len(results)}"
    shares = [each.control for each in results if each.control is not None]
    return f"{statistics.median(shares):.2f} s"


def rows(results: Results) -> list[list[str]]:
    """The matrix: a row for each action and set of ranks, a column for each moment."""
    return [
        [action, RANK_WORDS[ranks], *(word(results.get(Cell(action, ranks, moment).name, ())) for moment in MOMENTS)]
        for action in ACTIONS
        for ranks in RANKS
    ]


def table(results: Results) -> str:
    """The matrix as a Markdown table, which can be read in a terminal, too."""
    head = ["action", "ranks", *(MOMENT_WORDS[moment] for moment in MOMENTS)]
    lines = [head, *rows(results)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    made = [
        "| " + " | ".join(value.ljust(width) for value, width in zip(line, widths, strict=True)) + " |"
        for line in lines
    ]
    return "\n".join([made[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *made[1:]])


def extra_table(results: Results) -> str:
    """The cells beside the matrix."""
    lines = ["| cell | what happens | ends in | control share |", "|---|---|---|---|"]
    for key in EXTRA:
        cell = Cell(*key)
        found = results.get(cell.name, ())
        ends = found[-1].action if found else NOT_PLAYED
        restored = f", {found[-1].restored}" if found and found[-1].restored else ""
        lines.append(f"| {cell.name} | {script(cell).note} | {ends}{restored} | {word(found)} |")
    return "\n".join(lines)


def failures(results: Results) -> list[str]:
    """A line for every sentence about what was not as promised."""
    return [
        f"{name}, play {number}: {problem}"
        for name, found in results.items()
        for number, each in enumerate(found, 1)
        for problem in each.problems
    ]


def write_json(path: Path, results: Results, rounds: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> None:
    """Everything, for machines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    content = {
        "time": when,
        **about,
        "cells": {name: [asdict(each) for each in found] for name, found in results.items()},
        "random": list(rounds),
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
