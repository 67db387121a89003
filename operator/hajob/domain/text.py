"""Texts for people, short: programs print what went wrong last, so of a long one the end is kept, in whole lines."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

_TERMINAL: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
"""Sequences that colour a text or move a cursor."""
_CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def harmless_text(text: str) -> str:
    """Return the output of a program as a terminal and a status may show it: no colours, control characters escaped.

    A progress bar's carriage return ends a line.
    """
    plain = _TERMINAL.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), plain)


def last_lines(text: str, limit: int) -> str:
    """Return the last whole lines of `text` that fit in `limit` characters; of a single longer line its end."""
    if len(text) <= limit:
        return text
    # One character more than fits: if it is a line end, the line behind it is whole.
    end = text[-limit - 1 :]
    return end.partition("\n")[2] or end[1:]


def counted_noun(number: int, noun: str) -> str:
    """Return `1 node`, `2 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def number_runs(numbers: Iterable[int]) -> list[str]:
    """Return ascending numbers for people, runs shortened: `0-7`, `9`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [f"{low}" if low == high else f"{low}-{high}" for low, high in runs]


def first_of_list(listed: Sequence[object], most: int = 5) -> str:
    """Name the first of some things, and how many more there are."""
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(map(str, listed[:most])) + more
