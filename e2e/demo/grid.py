"""The picture of a moment on a terminal: a column per node, a cell per rank, step and incident below.

Narrow enough for seven nodes on 80 characters, because that is what a terminal is unless somebody has changed it.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from e2e.demo.board import Board, ShownIncident, ShownNode, ShownRank

STYLES = {
    "training": "green",
    "finished": "bold green",
    "starting": "cyan",
    "ready": "bright_cyan",
    "stopped": "yellow",
    "killed": "bold white on red",
    "off": "bold white on red",
}
BUSY = "magenta"
PHASE_STYLES = {"StartUp": "cyan", "Recovery": "magenta", "Detection": "yellow"}
BAR_WIDTH = 40
COLUMN_WIDTH = 8


def picture(board: Board, doing: str) -> RenderableType:
    """The whole picture; `doing` says what the demo is at."""
    parts: list[RenderableType] = []
    if board.nodes:
        parts.append(nodes(board))
    if board.goal:
        parts.append(progress(board))
    parts += [incident(each) for each in board.incidents]
    parts.append(Text(doing, style="bold"))
    return Group(*parts)


def nodes(board: Board) -> Table:
    """A column per node."""
    table = Table(padding=(0, 1, 0, 0))
    for node in board.nodes:
        table.add_column(
            Text(node.name, style="bold red" if node.is_off else "bold"), min_width=COLUMN_WIDTH, no_wrap=True
        )
    columns = [_cells(board, node) for node in board.nodes]
    for row in range(max(len(cells) for cells in columns)):
        table.add_row(*(cells[row] if row < len(cells) else Text() for cells in columns))
    return table


def rank_cell(rank: ShownRank) -> Text:
    """One rank: its number, its step while it trains, and else what it does."""
    says = str(rank.step) if rank.does == "training" else rank.does
    return Text(f"{rank.number}: {says}", style=STYLES.get(rank.does, BUSY))


def progress(board: Board) -> Table:
    """State and step of the job."""
    table = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=board.goal, completed=board.step, width=BAR_WIDTH)
    state = Text(board.state or "submitted", style="green" if board.state in {"Running", "Complete"} else "yellow")
    table.add_row(Text("step"), Text(f"{board.step:>3}/{board.goal}"), bar, state)
    return table


def incident(each: ShownIncident) -> Text:
    """An incident and its phases, each in its own colour."""
    recovered = each.outcome == "Recovered"
    text = Text()
    text.append(f"incident {each.number} ", style="bold")
    text.append(f"{each.cause}: ")
    text.append(f"{each.action}, {each.outcome} ", style="green" if recovered else "bold yellow")
    for name, length in each.phases:
        text.append(f"\u00b7 {name} {length} ", style=PHASE_STYLES.get(name, ""))
    if recovered:
        text.append(f"= {each.milliseconds} ms", style="bold")
    return text


def _cells(board: Board, node: ShownNode) -> list[Text]:
    ranks = board.ranks_of(node)
    if node.is_off and not ranks:
        return [Text("powered off", style=STYLES["off"])]
    if ranks:
        return [rank_cell(rank) for rank in ranks]
    if node.chips and node.node_rank < 0:
        return [Text("spare", style="dim")]
    return [Text(guest, style="dim") for guest in dict.fromkeys(node.guests)] or [Text("starting", style="dim")]
