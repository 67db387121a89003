"""What the demo leaves behind: one column per fault, and the line that says how it went."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from e2e.harness.account import Recovery

WIDTH = 80


def report(recoveries: Sequence[Recovery], writes: Sequence[str] = (), width: int = WIDTH) -> str:
    """The table, without colours and trailing blanks; times are seconds since the last step all ranks had in common."""
    table = Table(box=box.ASCII_DOUBLE_HEAD, padding=(0, 0, 0, 1))  # six faults on 80 characters
    table.add_column("fault", no_wrap=True)
    for each in recoveries:
        table.add_column(each.fault, justify="right")
    for name, cells in rows(recoveries):
        table.add_row(name, *cells)
    output = io.StringIO()
    Console(file=output, width=width, color_system=None, legacy_windows=False).print(table)
    text = "\n".join(line.rstrip() for line in output.getvalue().splitlines())
    return "\n".join([text, *(f"API writes: {each}" for each in writes)])


def rows(recoveries: Sequence[Recovery]) -> list[tuple[str, list[str]]]:
    """Name and cells of each row."""
    found = [
        ("action", [each.action for each in recoveries]),
        ("noticed after", [_seconds(each.noticed) for each in recoveries]),
        ("stopped after", [_seconds(each.stopped) for each in recoveries]),
        ("decided after", [_seconds(each.decided) for each in recoveries]),
        ("restored after", [_seconds(each.restored) for each in recoveries]),
        ("whole outage", [_seconds(each.outage) for each in recoveries]),
        ("start-up of new ranks", [_seconds(each.startup) for each in recoveries]),
        ("control share", [_seconds(each.control) for each in recoveries]),
        ("API writes", [str(each.write_count) for each in recoveries]),
    ]
    names = dict.fromkeys(name for each in recoveries for name in each.promises)
    return found + [(name, [_kept(each, name) for each in recoveries]) for name in names]


def last_line(faults: int, recovered: int, weights_equal: bool | None) -> str:
    """The last line; `weights_equal` is None where the training did not come to an end."""
    answer = {True: "yes", False: "no", None: "not compared"}[weights_equal]
    return f"demo: {faults} faults, {recovered} recovered, weights equal: {answer}"


def _kept(recovery: Recovery, promise: str) -> str:
    return "no" if recovery.promises.get(promise) else "yes"


def _seconds(value: float) -> str:
    return f"{value:.3f} s" if value < 10 else f"{value:.2f} s"  # seven characters: six faults on a line
