"""A training's step, read from the line that Megatron-like trainers print after each one.

` iteration        5/     100 | consumed samples: ... | lm loss: 1.234E+00 |`: step 5 of 100 is finished.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LINE = re.compile(rb"iteration\s+(\d{1,15})/\s*(\d{1,15})")


class Step(NamedTuple):
    """A finished step and how many there will be."""

    number: int
    total: int


def parse(line: bytes) -> Step | None:
    """The step that a line of output tells of, None for any other line."""
    found = LINE.search(line)
    return Step(int(found.group(1)), int(found.group(2))) if found else None
