"""Faults of a chip that recur: they isolate it for longer than each single one.

MindCluster's rule: the same code three times in a day on one chip isolates it. The same code on several chips at once
is the program's doing, and is not counted (docs/faults.md, "Filters").
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from hajob.domain.hardware import ClusterFact

TOGETHER_MS: Final = 30_000
"""The same code on another chip so shortly before or after is one cause, and none of the chip's."""
_CHIPS: Final = 100_000
"""So many chips, and codes, are remembered; those that were quiet the longest are forgotten first."""


@dataclass(frozen=True, slots=True)
class FrequencySettings:
    """The limit of recurrences.

    Attributes:
        count: so many times; 0: never.
        window_ms: within so many milliseconds.
    """

    count: int = 3
    window_ms: int = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class _Last:
    """The last occurrence of a code: where, when, and whether it was counted."""

    key: tuple[str, str, str]
    time_ms: int


class Frequency:
    """Counts faults by node, chip and code. Times are milliseconds of one clock that never runs back."""

    def __init__(self, settings: FrequencySettings | None = None) -> None:
        self.settings = settings or FrequencySettings()
        self._times: dict[tuple[str, str, str], deque[int]] = {}
        self._last: dict[str, _Last] = {}

    def count_fault(self, fact: ClusterFact, now_ms: int) -> None:
        """Count a fault that did not stand before."""
        if not fact.chip_number or not fact.code or not fact.harms or fact.repeated or not self.settings.count:
            return
        key = (fact.node, fact.device, fact.code)
        last = self._last.pop(fact.code, None)
        self._last[fact.code] = _Last(key, now_ms)
        _forget_oldest(self._last)
        if last is not None and last.key != key and now_ms - last.time_ms <= TOGETHER_MS:
            self._take_back_count(last)
            return
        times = self._times.pop(key, None) or deque(maxlen=self.settings.count)
        times.append(now_ms)
        self._times[key] = times  # the newest last
        _forget_oldest(self._times)

    def is_fault_frequent(self, fact: ClusterFact, now_ms: int) -> bool:
        """Return whether this fault recurs too often."""
        times = self._times.get((fact.node, fact.device, fact.code))
        needed, since = self.settings.count, now_ms - self.settings.window_ms
        return bool(needed) and times is not None and sum(time > since for time in times) >= needed

    def forget_node(self, node: str) -> None:
        """Forget what was counted on a node's chips."""
        for key in [key for key in self._times if key[0] == node]:
            del self._times[key]

    def _take_back_count(self, last: _Last) -> None:
        """Take back the count of the other chip: it was no fault of that chip either."""
        times = self._times.get(last.key)
        if times and times[-1] == last.time_ms:
            times.pop()


def _forget_oldest(known: dict[Any, Any]) -> None:
    while len(known) > _CHIPS:
        del known[next(iter(known))]
