"""Python's collector of cycles, kept from looking at everything again and again.

Thousands of links are a million objects that stay. A whole collection looks at each of them, 0.1 s during which the
event loop grants no lease. So what has outlived one is set aside: the next ones look at what is newer. Now and then one
looks at everything, since what was set aside may have become garbage.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

OLDEST = 2  # the generation of a whole collection
EVERYTHING_EACH = 64
"""One of so many whole collections looks at everything: seldom enough for its 0.1 s, so that no leak lasts."""

_collections = 0


def freeze_survivors() -> None:
    """Have each whole collection set aside what outlives it, from now on; a second call changes nothing."""
    if _handle_collection not in gc.callbacks:
        gc.callbacks.append(_handle_collection)


def _handle_collection(phase: str, found: Mapping[str, int]) -> None:
    global _collections  # noqa: PLW0603  # the collector itself is the process's, too
    if found["generation"] != OLDEST:
        return
    if phase == "stop":
        gc.freeze()
        return
    _collections += 1
    if _collections % EVERYTHING_EACH == 0:
        gc.unfreeze()
