"""What a benchmark leaves: a table for people, JSON for machines, and the machine it ran on.

Each number stands beside its limit with "ok" or "missed". A number that could not be taken is "not measured", never
left out: silence would read as success.
"""

from __future__ import annotations

import datetime
import io
import json
import math
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from e2e.bootstrap.machine import limits

WIDTH = 120


@dataclass(frozen=True)
class Limit:
    """What was promised: that `which` of p50, p95 or max is at most `value`."""

    which: str
    value: float


@dataclass(frozen=True)
class Row:
    """One number of the table.

    Attributes:
        name: What was measured.
        unit: Of all values.
        count: How many values there are; 0: it could not be measured.
        p50: Median.
        p95: Of 20 values the 19th.
        most: The largest.
        limit: What was promised, in words; empty where nothing was.
        verdict: ok, missed, not measured, or empty without a limit.
    """

    name: str
    unit: str
    count: int
    p50: float
    p95: float
    most: float
    limit: str = ""
    verdict: str = ""


def row(name: str, unit: str, values: Iterable[float], limit: Limit | None = None) -> Row:
    """The row of some values; those that are no numbers were not measured."""
    found = sorted(value for value in values if not math.isnan(value))
    if not found:
        return Row(name, unit, 0, 0.0, 0.0, 0.0, _words(limit, unit), "not measured")
    p50, p95, most = quantile(found, 0.5), quantile(found, 0.95), found[-1]
    verdict = ""
    if limit is not None:
        verdict = "ok" if {"p50": p50, "p95": p95, "max": most}[limit.which] <= limit.value else "missed"
    return Row(name, unit, len(found), p50, p95, most, _words(limit, unit), verdict)


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the ordered values that is not below `share` of them."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _words(limit: Limit | None, unit: str) -> str:
    return f"{limit.which} <= {limit.value:g} {unit}".rstrip() if limit else ""


def table(rows: Sequence[Row]) -> str:
    """The table, without colours and trailing blanks."""
    made = Table(box=box.ASCII_DOUBLE_HEAD)
    made.add_column("measured")
    for name in ("p50", "p95", "most", "unit", "of", "limit", ""):
        made.add_column(name, justify="right" if name in {"p50", "p95", "most", "of"} else "left")
    for each in rows:
        values = [in_short(value) if each.count else "-" for value in (each.p50, each.p95, each.most)]
        made.add_row(each.name, *values, each.unit, str(each.count), each.limit, each.verdict)
    output = io.StringIO()
    Console(file=output, width=WIDTH, color_system=None, legacy_windows=False).print(made)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines())


def in_short(value: float) -> str:
    """Write a number with three digits that count, or whole."""
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"


def machine() -> dict[str, Any]:
    """Where the numbers come from, as far as it matters to them."""
    found = limits()
    model = next(
        (line.partition(":")[2].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name")), ""
    )
    return {
        "processor": model or platform.processor(),
        "architecture": platform.machine(),
        "cores": found.processors,
        "memoryGibibytes": round(found.memory / 2**30, 1),
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
        "loadBefore": os.getloadavg()[0],
    }


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def write(path: Path, rows: Sequence[Row], about: dict[str, Any], plan: Sequence[Any]) -> None:
    """Write JSON to `path` and the table beside it, as .txt.

    Args:
        path: Of the JSON file.
        rows: The numbers.
        about: The machine and the rounds.
        plan: Figures of the planner, dataclasses.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    content = {
        "time": when,
        **about,
        "rows": [asdict(each) for each in rows],
        "planner": [asdict(each) for each in plan],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    path.with_suffix(".txt").write_text(table(rows) + "\n")
