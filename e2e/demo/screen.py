"""Where the demo is seen: a terminal gets the moving picture with the lines above it, everything else gets the lines.

Nothing of the picture may end up in a file or a log of a CI, and a terminal must be left as it was found, whatever
happens; both are rich's affair once it knows what it writes to.
"""

from __future__ import annotations

import io
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner

from e2e.demo.board import Board
from e2e.demo.grid import picture
from e2e.demo.lines import changes
from e2e.demo.recording import Recording

REFRESH_PER_SECOND = 8
SILENT_SECONDS = 15.0
"""After so long without a line, one says that it still goes on; then after twice as long, and so on."""


class Screen:
    """Says lines and shows pictures; use it within `open`."""

    def __init__(self, console: Console | None = None, recording: Recording | None = None) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # an old locale is no reason to end
        self.console = console or Console(highlight=False)
        self._began = time.monotonic()
        self._board = Board()
        self._doing = ""
        self._since = self._began
        self._said_at = self._began
        self._live: Live | None = None
        self._spinner = Spinner("dots")
        self._recording = recording

    @contextmanager
    def open(self) -> Iterator[None]:
        """Show the picture, where there is a terminal; it is gone afterwards, the lines stay."""
        if not self.console.is_terminal or self.console.is_dumb_terminal:
            over = threading.Event()
            signs = threading.Thread(target=self._show_signs_of_life, args=(over,), daemon=True)
            signs.start()
            try:
                yield
            finally:
                over.set()
                signs.join()
            return
        with Live(
            console=self.console,
            refresh_per_second=REFRESH_PER_SECOND,
            transient=True,
            get_renderable=self._picture,
            vertical_overflow="crop",
        ) as self._live:
            yield
        self._live = None

    @property
    def elapsed(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """A line, with the time; on a terminal it goes on below where it ends, between two words."""
        line = f"{self.elapsed:6.1f} s  {text}"
        if self.console.is_terminal and "\n" not in text:
            indent = " " * (len(line) - len(text.lstrip()) + 2)
            line = "\n".join(textwrap.wrap(line, max(40, self.console.width), subsequent_indent=indent))
        self.text(line)

    def text(self, text: str) -> None:
        """Lines as they are."""
        self._said_at = time.monotonic()
        self.console.print(text, markup=False, soft_wrap=True)
        if not self.console.is_terminal:
            self.console.file.flush()

    def begin(self, doing: str) -> None:
        """From now on the demo does this."""
        self._doing, self._since = doing, time.monotonic()
        self.say(doing)

    def show(self, board: Board) -> None:
        """Show a picture, say what is new in it."""
        for line in changes(self._board, board):
            self.say(f"  {line}")
        self._board = board
        if self._recording is not None:
            self._recording.add_moment(self.elapsed, self._doing, board)

    def _picture(self) -> RenderableType:
        # What it does stands in the line above already: here is how long.
        waited = time.monotonic() - self._since
        return picture(self._board, f"{self._doing} … {waited:.0f} s" if self._doing else "", self._spinner)

    def _show_signs_of_life(self, over: threading.Event) -> None:
        """Say that it still goes on, where no picture shows it."""
        while not over.wait(1.0):
            waited = time.monotonic() - self._since
            # A training that goes on until somebody ends it must not fill a log with that.
            if self._doing and time.monotonic() - self._said_at >= max(SILENT_SECONDS, waited / 2):
                self.say(f"  still: {self._doing} ({waited:.0f} s)")
