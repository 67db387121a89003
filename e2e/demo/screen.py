"""Where the demo is seen: a terminal gets the moving picture with the lines above it, everything else gets the lines.

Nothing of the picture may end up in a file or a log of a CI, and a terminal must be left as it was found, whatever
happens; both are rich's affair once it knows what it writes to.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from e2e.demo.board import Board
from e2e.demo.grid import picture
from e2e.demo.lines import changes

REFRESH_PER_SECOND = 8


class Screen:
    """Says lines and shows pictures; use it within `open`."""

    def __init__(self, console: Console | None = None) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # an old locale is no reason to end
        self.console = console or Console(highlight=False)
        self._began = time.monotonic()
        self._board = Board()
        self._doing = ""
        self._live: Live | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Show the picture, where there is a terminal; it is gone afterwards, the lines stay."""
        if not self.console.is_terminal or self.console.is_dumb_terminal:
            yield
            return
        with Live(console=self.console, refresh_per_second=REFRESH_PER_SECOND, transient=True) as self._live:
            yield
        self._live = None

    @property
    def elapsed(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """A line, with the time."""
        self.text(f"{self.elapsed:6.1f} s  {text}")

    def text(self, text: str) -> None:
        """Lines as they are."""
        self.console.print(text, markup=False, soft_wrap=True)
        if not self.console.is_terminal:
            self.console.file.flush()

    def begin(self, doing: str) -> None:
        """From now on the demo does this."""
        self._doing = doing
        self.say(doing)
        self._draw()

    def show(self, board: Board) -> None:
        """Show a picture, say what is new in it."""
        for line in changes(self._board, board):
            self.say(f"  {line}")
        self._board = board
        self._draw()

    def _draw(self) -> None:
        if self._live:
            self._live.update(picture(self._board, f"{self.elapsed:5.1f} s  {self._doing} …"))
