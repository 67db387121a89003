"""The picture of a moment on a terminal: a column per node, a cell per rank, step and incidents below.

Narrow enough for seven nodes on 80 characters, because that is what a terminal is unless somebody has changed it. It is
always as high as before: what a terminal has scrolled away cannot be drawn over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from e2e.demo.board import Board, ShownIncident, ShownNode, ShownRank
from e2e.demo.words import seconds_in_words
from hajob.domain.text import counted_noun

LOST = "bold white on red"
WAITS = "black on yellow"
STARTS = "bold white on blue"
STYLES = {
    "training": "green",
    "finished": "bold green",
    "starting": STARTS,
    "ready": STARTS,
    "stopped": WAITS,
    "waits": WAITS,
    "killed": LOST,
    "lost": LOST,
    "off": LOST,
}
REPAIRED = WAITS
"""Of what MindIO does with a rank before it goes on: it stands, and its step is frozen."""
FROZEN = frozenset({"waits", "stopped"})
PHASE_STYLES = {
    "Detection": "yellow",
    "Stop": "bright_black",
    "Decision": "red",
    "Placement": "bright_yellow",
    "StartUp": "blue",
    "Naming": "bright_black",
    "Recovery": "magenta",
}
BAR_WIDTH = 40
COLUMN_WIDTH = 8
ROOMY_WIDTH = 12
"""Of a column where there is room: what a rank does has as many letters at most, so no column moves."""
MOST_INCIDENTS = 3
PHASES_WIDTH = 16
HAPPENED_WIDTH = 34


def picture(board: Board, doing: str, spinner: Spinner | None = None) -> RenderableType:
    """The whole picture; `doing` says what the demo is at, `spinner` that it lives."""
    parts: list[RenderableType] = []
    if board.nodes:
        parts.append(Nodes(board))
        parts += [progress(board), counters(board), *incidents(board)]
        parts += [Text(f"also {line}", no_wrap=True, overflow="ellipsis", style="dim") for line in board.others]
    words = Text(doing, style="bold", no_wrap=True, overflow="ellipsis")
    if spinner is None:
        parts.append(words)
    else:
        spinner.update(text=words)
        parts.append(spinner)
    return Group(*parts)


@dataclass(frozen=True)
class Nodes:
    """The nodes of a board, in columns as wide as the terminal allows."""

    board: Board

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Draw them."""
        between = 2  # a blank, and the line to the next column
        whole = len(self.board.nodes) * (ROOMY_WIDTH + between) + 1
        yield nodes(self.board, ROOMY_WIDTH if whole <= options.max_width else COLUMN_WIDTH)


def nodes(board: Board, width: int) -> Table:
    """A column per node, so wide at least; as many lines as a node has chips, whatever is on it."""
    table = Table(padding=(0, 1, 0, 0))
    for node in board.nodes:
        table.add_column(
            Text(node.name, style="bold red" if node.is_off or node.trouble else "bold"),
            min_width=width,
            no_wrap=True,
            overflow="ellipsis",
        )
    columns = [_cells(board, node) for node in board.nodes]
    for row in range(max(board.ranks_per_node, *(len(cells) for cells in columns))):
        table.add_row(*(cells[row] if row < len(cells) else Text() for cells in columns))
    return table


def rank_cell(rank: ShownRank) -> Text:
    """One rank: its number, its step while it trains or stands there, and else what it does."""
    says = str(rank.step) if rank.does == "training" or rank.does in FROZEN else rank.does
    return Text(f"{rank.number}: {says}", style=STYLES.get(rank.does, REPAIRED))


def progress(board: Board) -> Table:
    """State and step of the job."""
    table = Table.grid(padding=(0, 1))
    trains = board.state in {"Running", "Complete", "Shrunk", "Migrating", "Expanding"}
    style = "green" if trains else "bold red" if board.state in {"Failed", "deleted"} else "yellow"
    state = Text(board.state or "submitted", style=style)
    step = Text(f"{board.step:>3}/{board.goal}" if board.goal else str(board.step), style="" if trains else "yellow")
    bar = ProgressBar(total=board.goal, completed=board.step, width=BAR_WIDTH) if board.goal else Text()
    table.add_row(Text("step"), step, bar, state)
    return table


def counters(board: Board) -> Text:
    """What it has come to so far."""
    done = [each for each in board.incidents if each.outcome in {"Recovered", "Done"}]
    told = [
        f"{counted_noun(len(board.incidents), 'incident')}, {len(done)} recovered",
        f"{seconds_in_words(sum(each.milliseconds for each in done))} outage",
        f"steps again {sum(each.lost_steps for each in board.incidents)}",
    ]
    told += [f"goodput {board.goodput}"] if board.goodput else []
    told += [f"{board.step_time} a step"] if board.step_time else []
    return Text(" · ".join(told), no_wrap=True, overflow="ellipsis", style="dim")


def incidents(board: Board) -> list[Text]:
    """The newest ones, a line each; lines that are not needed yet are empty, so that nothing jumps."""
    newest = board.incidents[-MOST_INCIDENTS:]
    first = board.incidents[0].started if board.incidents else 0
    lines = [incident(each, first) for each in newest]
    return lines + [Text() for _ in range(MOST_INCIDENTS - len(lines))]


def incident(each: ShownIncident, first: int) -> Text:
    """An incident as a line: when after the first one, what happened, what was done, how long it took, and on what."""
    is_over = each.outcome in {"Recovered", "Done"}
    after = f"+{(each.started - first) / 1000:.0f} s" if each.started and first else ""
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{after:>6} ", style="dim")
    text.append(f"{_cut(each.happened, HAPPENED_WIDTH):<{HAPPENED_WIDTH}} ")
    text.append(f"{each.action or '':<9}", style="green" if is_over else "bold yellow")
    # How long an open one lasts nobody has told yet: its phases so far are the short ones.
    text.append(f"{seconds_in_words(each.milliseconds) if is_over else each.outcome:>7} ", style="bold")
    for style, width in _widths_of_phases(each) if is_over else ():
        text.append("▇" * width, style=style)
    return text


def _widths_of_phases(each: ShownIncident) -> list[tuple[str, int]]:
    whole = max(each.milliseconds, 1)
    shown = [(name, length) for name, length in each.phases if length]
    return [(PHASE_STYLES.get(name, ""), max(1, round(PHASES_WIDTH * length / whole))) for name, length in shown]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _cells(board: Board, node: ShownNode) -> list[Text]:
    ranks = board.ranks_of(node)
    if node.is_off and not ranks:
        return [Text("powered", style=LOST), Text("off", style=LOST)]
    if ranks:
        return [rank_cell(rank) for rank in ranks]
    if node.chips and node.node_rank < 0:
        words = node.vacancy.split(" ")
        style = "red" if node.trouble else "dim"
        return [Text(word, style=style) for word in words[: board.ranks_per_node]]
    return [Text(guest, style="dim") for guest in dict.fromkeys(node.guests)] or [Text("starting", style="dim")]
