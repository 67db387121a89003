"""Python's collector of cycles, kept from looking at everything again and again.

Thousands of links are a million objects that stay. A whole collection looks at each of them, 0.1 s during which the
event loop grants no lease. So what has outlived one is set aside: the next ones look at what is newer.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

OLDEST = 2


def set_aside() -> None:
    """From now on; a second call changes nothing."""
    if _collected not in gc.callbacks:
        gc.callbacks.append(_collected)


def _collected(phase: str, found: Mapping[str, int]) -> None:
    if phase == "stop" and found["generation"] == OLDEST:
        gc.freeze()
