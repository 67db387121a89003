"""The work of a planned pause that TaskD does. Only watch/pause_work.py changes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class PauseWork:
    """What was asked for last, and what was said of it; both as JSON."""

    asked: str = ""
    result: str = ""

    def note_asked_work(self, work: str) -> None:
        """Note that this work was asked for."""
        self.asked, self.result = work, ""

    def note_result(self, result: str) -> None:
        """Note what was said of it."""
        self.result = result
