"""The ids of observations that were taken in already: each is taken in once, however often it is told."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

REMEMBERED: Final = 4096
"""An observation is repeated soon or not at all; agent and coordinator remember as many."""


class KnownIds:
    """The newest ids."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def is_new_id(self, id_: str) -> bool:
        """Remember an id, in the place of the oldest one; whether it was not known."""
        if id_ in self._ids:
            return False
        self._ids[id_] = None
        if len(self._ids) > REMEMBERED:
            self._ids.popitem(last=False)
        return True
