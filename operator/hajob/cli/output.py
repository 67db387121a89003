"""How commands print: tables and colours on a terminal, plain and stable lines into a pipe; json, yaml, names.

Colours need the package rich (`pip install 'hajob[cli]'`); without it, or with `NO_COLOR`, a terminal gets what a pipe
gets.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import yaml

from hajob.api import constants as names
from hajob.cli.language import in_language
from hajob.cli.widths import display_width
from hajob.domain.text import harmless_text

FORMATS: Final = ("text", "json", "yaml", "name")
"""What `print_answer` can print."""

WITHOUT_NAMES: Final = FORMATS[:-1]
"""Formats of an answer that is about no objects."""

UNKNOWN: Final = "unknown"
"""What could not be read; the right that is missing stands beside it."""

STYLES: Final = {
    **dict.fromkeys(("Running", "Complete", "Full", "Recovered", "Done", "ready", "ok", "free"), "green"),
    **dict.fromkeys(("Failed", "None", "Refused", "problem", "error", "sick", "lost"), "bold red"),
    **dict.fromkeys(
        ("Pending", "Starting", "Recovering", "Restarting", "Saving", "Held", "OnHold", "Partial", "Open", "note"),
        "yellow",
    ),
    **dict.fromkeys(("Shrunk", "Expanding", "Migrating", "Paused", "cordoned", "quarantined", UNKNOWN), "yellow"),
    **dict.fromkeys(("training", "■"), "green"),
    **dict.fromkeys(("stands", "waits", "□", "·"), "yellow"),
    **dict.fromkeys(("starts", "▒"), "blue"),
    "✕": "bold red",
    "Suspended": "cyan",
}
"""Colour of a cell that begins with such a word, or consists of such a sign."""


_LABEL: Final = re.compile(r"\S* +(?=\S)")
"""What names a line, with the gap behind it, where the text of `status` and `why` begins."""
_LABEL_WIDTHS: Final = range(10, 25)
"""Of a label; what is shorter is a word of a sentence."""


def resource_name_of_job(job: str) -> str:
    """Return the name of a job as `kubectl -o name` prints it."""
    return f"{names.PLURAL}.{names.GROUP}/{job}"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under column names."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def plain_lines(self) -> Iterator[str]:
        """Yield the lines of the table as kubectl would print it: three spaces between columns, none at the end."""
        lines = [self.columns, *(tuple(map(_as_cell, row)) for row in self.rows)]
        widths = [max(display_width(line[place]) for line in lines) for place in range(len(self.columns))]
        for line in lines:
            padded = (cell + " " * (width - display_width(cell)) for cell, width in zip(line, widths, strict=True))
            yield "   ".join(padded).rstrip()


Block = str | Table


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command has to say, for people and for programs.

    Attributes:
        told: lines and tables for people.
        data: the same as JSON types.
        names: of the objects, as `kubectl -o name` has them.
    """

    told: Sequence[Block]
    data: Any
    names: Sequence[str] = ()


def print_answer(answer: Answer, output: str) -> None:
    """Print an answer in the format that was asked for."""
    if output == "text" and (console := _console_with_colours()) is not None:
        for block in answer.told:
            console.print(as_rich_block(block))
        return
    for line in lines_of_answer(answer, output):
        print(line)


def lines_of_answer(answer: Answer, output: str) -> Iterator[str]:
    """Yield an answer in the format that was asked for, as a pipe gets it."""
    if output == "json":
        yield json.dumps(answer.data, indent=2)
    elif output == "yaml":
        told = _as_yaml(answer.data, readable=True)
        # YAML lets characters through that turn a terminal's line around; escaped, they are the same to a program.
        yield told if harmless_text(told) == told else _as_yaml(answer.data, readable=False)
    elif output == "name":
        yield from answer.names
    else:
        yield from plain_lines(answer.told)


def _as_yaml(data: Any, *, readable: bool) -> str:  # noqa: ANN401  any JSON
    return yaml.dump(data, Dumper=_PlainDumper, sort_keys=False, allow_unicode=readable).rstrip("\n")


class _PlainDumper(yaml.SafeDumper):
    """Writes words of an enumeration as words, and the same list twice as two lists: programs know no anchors."""

    def represent_data(self, data: Any) -> yaml.Node:  # noqa: ANN401  any JSON
        """Return the node of a value, of an enumeration's member that of its word."""
        return super().represent_data(data.value if isinstance(data, Enum) else data)

    def ignore_aliases(self, _: Any) -> bool:  # noqa: ANN401  any JSON
        """Return True: nothing is written by reference."""
        return True


def plain_lines(blocks: Iterable[Block]) -> Iterator[str]:
    """Yield the lines of an answer as a pipe gets them."""
    for block in blocks:
        yield from block.plain_lines() if isinstance(block, Table) else (_as_line(block),)


def _as_line(text: str) -> str:
    """Return a text as a terminal may get it: names, messages and annotations in it are anybody's words."""
    return harmless_text(in_language(text))


def _as_cell(text: str) -> str:
    """Return the text of a cell, which has one line."""
    return _as_line(text).replace("\n", "\\n")


@contextmanager
def live_screen() -> Iterator[Callable[[Sequence[Block]], None]]:
    """Yield a function that draws an answer over the one before on a terminal, and prints each one elsewhere."""
    if (console := _console_with_colours()) is None:
        yield lambda blocks: print("\n".join(plain_lines(blocks)), flush=True)
        return
    from rich.console import Group
    from rich.live import Live

    with Live(console=console, screen=True, auto_refresh=False) as live:
        yield lambda blocks: live.update(Group(*map(as_rich_block, blocks)), refresh=True)


def _console_with_colours() -> Any:  # noqa: ANN401  rich is optional
    """Return rich's console where standard output is a terminal that shows colours; None elsewhere."""
    # NO_COLOR is the convention of no-color.org; a dumb terminal would print the sequences.
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(highlight=False)


def style_of(cell: str) -> str:
    """Return the colour of a cell by its first word; empty for none."""
    return STYLES.get(cell.partition(" ")[0].rstrip(":,"), "") or STYLES.get(cell[:1], "")


def as_rich_block(block: Block) -> Any:  # noqa: ANN401  rich is optional
    """Return a block as rich shows it; text of users is never read as markup."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    if isinstance(block, str):
        return _as_rich_line(_as_line(block))
    made = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for name in block.columns:
        made.add_column(name, overflow="fold", justify="right" if name in {"STEP", "LOST", "CHIPS"} else "left")
    for row in block.rows:
        made.add_row(*(Text(_as_cell(cell), style=style_of(cell)) for cell in row))
    return made


def _as_rich_line(line: str) -> Any:  # noqa: ANN401  rich is optional
    """Return a line as rich shows it: its first word names it, and what is longer than the line stays beside it."""
    from rich.table import Table as RichTable
    from rich.text import Text

    head, gap, rest = line.partition(" ")
    label = _LABEL.match(line)
    if label is None or display_width(label[0]) not in _LABEL_WIDTHS or "\n" in line:
        return Text.assemble((head, "bold"), gap, rest) if head else Text(line)
    made = RichTable.grid()
    made.add_column(no_wrap=True, width=display_width(label[0]))
    made.add_column(overflow="fold")
    made.add_row(Text(label[0].rstrip(), style="bold"), Text(line[label.end() :]))
    return made
