"""A training's step, read from the line that Megatron-like trainers print after each one.

` iteration        5/     100 | consumed samples: ... | lm loss: 1.234E+00 |`: step 5 of 100 is finished.
"""

from __future__ import annotations

import re

LINE = re.compile(rb"iteration\s+(\d{1,15})/\s*\d{1,15}")


def parse(line: bytes) -> int | None:
    """The finished step that a line of output tells of, None for any other line."""
    found = LINE.search(line)
    return int(found.group(1)) if found else None
