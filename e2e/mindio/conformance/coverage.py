"""The table of what must be simulated (`e2e/mindio/coverage.yaml`), read and checked.

A switch for every behaviour proves nothing about behaviours that nobody thought of; this table lists the statements
of docs/protocols/mindio.md one by one, so that one without a switch is seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import yaml

TABLE = Path(__file__).resolve().parent.parent / "coverage.yaml"


@dataclass(frozen=True)
class Statement:
    """One statement of a paragraph, and the ways to leave it out of the simulator or to ask for it."""

    paragraph: str
    says: str
    switches: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    unseen: str = ""


def statements() -> list[Statement]:
    """The whole table; `TypeError` when a line has a word too many."""
    return [Statement(**line) for line in yaml.safe_load(TABLE.read_text())]
