"""A training's step, read from the line that Megatron-like trainers print after each one.

` iteration        5/     100 | consumed samples: ... | lm loss: 1.234E+00 |`: step 5 of 100 is finished.
"""

from __future__ import annotations

import re

TOGETHER_SECONDS = 0.005
"""The ranks of a pod end a step at almost the same time: one message tells of all of them."""
QUICK_SECONDS = 0.2
GATHER_SECONDS = 0.4
"""Steps quicker than that are gathered for so long, since a message for each would cost more than they do."""

LINE = re.compile(rb"iteration\s+(\d{1,15})/\s*\d{1,15}")


def parse(line: bytes) -> int | None:
    """The finished step that a line of output tells of, None for any other line."""
    found = LINE.search(line)
    return int(found.group(1)) if found else None


def telling_delay(seconds: float) -> float:
    """How long a finished step waits for company before the agent is told; `seconds` since the rank's last one.

    A node that loses its power takes along what it has not told, so a step of usual length is told at once.
    """
    return GATHER_SECONDS if seconds < QUICK_SECONDS else TOGETHER_SECONDS
