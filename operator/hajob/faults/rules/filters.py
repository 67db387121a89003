"""Which standing faults of a node a job receives, and when: the rules by which one fault explains another.

The rules and windows are those that MindCluster applies before it acts (docs/admin/faults.md, "Filters"). Each looks at
what stands on one node, so a change costs what that node holds.

Faults of a chip that recur isolate it for longer than each single one: the same code three times in a day. The same
code on several chips at once is the program's doing, and is not counted.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hajob.domain.hardware import ClusterFact, Level, harms_job, kind_of_level

MEMORY_FAULT: Final = "80E01801"
"""An error of on-chip memory that could not be corrected (UCE)."""
MEMORY_SHADOWS: Final = frozenset({"80C98009", "80CB8009"})
"""Errors of the compute cores that such a memory error causes."""
SHADOW_MS: Final = 5_000
"""A shadow comes at most so long before or after its cause; so long it waits for it."""
RETRY_MS: Final = 10_000
"""So long a memory fault is left to the training, which repeats the step where it can."""

NETWORK_RETRY_FAILED: Final = "8C1F860B"
"""The network library has given up an operation after repeating it."""
NETWORK_RETRY_MS: Final = 60_000
"""So long it is left to the training; then it restarts its process, or leaves a chip whose link is down."""

_SWITCH_LINK: Final = "[0x08520003,na,L2,na]"
LINK_DOWN: Final = frozenset({"81078603", _SWITCH_LINK})
RELATION_MS: Final = 300_000
"""A fault is explained by a broken link at most so long before or after it."""
LINK_MEMORY_MS: Final = 180_000
"""A link that came up again explains what is told so long after."""
RELATIONS: Final = {
    "8C1F8609": Level.SUB_HEALTH,
    NETWORK_RETRY_FAILED: Level.SEPARATE,
    "8C1F8608": Level.SEPARATE,
    "4C1F8608": Level.SEPARATE,
}
"""Faults of the network that are ignored alone, and their level beside a broken link of the chip; a failed retry also
beside one of the switch."""

_WAITS: Final = {
    MEMORY_FAULT: RETRY_MS,
    NETWORK_RETRY_FAILED: NETWORK_RETRY_MS,
    **dict.fromkeys(MEMORY_SHADOWS, SHADOW_MS),
}
"""Codes that are told only after a while, in milliseconds."""
TOGETHER_MS: Final = 30_000
"""The same code on another chip so shortly before or after is one cause, and none of the chip's."""
_CHIPS: Final = 100_000
"""So many chips, and codes, are remembered; those that were quiet the longest are forgotten first."""


@dataclass(frozen=True, slots=True)
class LinkFault:
    """A link that is down, or was a moment ago: whose, and since when it is known."""

    device: str
    code: str
    appeared_ms: int


def effective_faults(
    facts: Sequence[ClusterFact],
    appeared_ms: Mapping[str, int],
    now_ms: int,
    past: Iterable[LinkFault] = (),
    is_frequent: Callable[[ClusterFact], bool] = lambda _: False,
) -> list[ClusterFact]:
    """Return the faults that a job on the node receives now.

    Args:
        facts: everything that stands on one node.
        appeared_ms: id to the time at which the operator first heard of it.
        now_ms: time of the question.
        past: links of the node that came up again a moment ago.
        is_frequent: whether a fault has come too often.
    """
    causes = {fact.device: appeared_ms[fact.id] for fact in facts if fact.code == MEMORY_FAULT}
    own = {what_is_repeated(fact) for fact in facts if not fact.repeated}
    links = [*past, *(link_of_fault(fact, appeared_ms[fact.id]) for fact in facts if fact.code in LINK_DOWN)]
    return [
        _as_frequent(raised) if is_frequent(fact) else raised
        for fact in facts
        if not (fact.repeated and what_is_repeated(fact) in own)
        and not _is_shadow_of_cause(fact, causes, appeared_ms)
        and now_ms >= _due_time_ms(fact, appeared_ms)
        for raised in [_with_related_link(fact, links, appeared_ms[fact.id])]
    ]


def what_is_repeated(fact: ClusterFact) -> tuple[str, str]:
    """Return the common part of a public fault and ClusterD's repetition of it, on its node."""
    return fact.chip_number, fact.code


def next_due_ms(facts: Iterable[ClusterFact], appeared_ms: Mapping[str, int], now_ms: int) -> int | None:
    """Return when `effective_faults` would next change by time alone; None: never."""
    return min((due for fact in facts if (due := _due_time_ms(fact, appeared_ms)) > now_ms), default=None)


def link_of_fault(fact: ClusterFact, appeared_ms: int) -> LinkFault:
    """Return the broken link that a fault reports."""
    return LinkFault(fact.device, fact.code, appeared_ms)


def _due_time_ms(fact: ClusterFact, appeared_ms: Mapping[str, int]) -> int:
    return appeared_ms[fact.id] + _WAITS.get(fact.code, 0)


def _is_shadow_of_cause(fact: ClusterFact, causes: Mapping[str, int], appeared_ms: Mapping[str, int]) -> bool:
    """Whether it only repeats a memory fault of the same chip."""
    cause_ms = causes.get(fact.device)
    return fact.code in MEMORY_SHADOWS and cause_ms is not None and abs(cause_ms - appeared_ms[fact.id]) <= SHADOW_MS


def _with_related_link(fact: ClusterFact, links: Sequence[LinkFault], appeared_ms: int) -> ClusterFact:
    """Return the fact, with a higher level where a broken link explains it."""
    level = RELATIONS.get(fact.code)
    if level is None:
        return fact
    for link in links:
        explains = link.device == fact.device or (link.code == _SWITCH_LINK and fact.code == NETWORK_RETRY_FAILED)
        if explains and abs(link.appeared_ms - appeared_ms) <= RELATION_MS:
            return _with_level(fact, level, f"{fact.message}; the link is down ({link.code})")
    if fact.code == NETWORK_RETRY_FAILED and fact.level is Level.NOT_HANDLE:
        return _with_level(fact, Level.RESTART_BUSINESS, f"{fact.message}; it did not pass")
    return fact


def _as_frequent(fact: ClusterFact) -> ClusterFact:
    raised = _with_level(fact, Level.MANUALLY_SEPARATE, f"{fact.message}; it comes too often")
    return dataclasses.replace(raised, frequent=True)


def _with_level(fact: ClusterFact, level: Level, message: str) -> ClusterFact:
    return dataclasses.replace(fact, level=level, kind=kind_of_level(level), harms=harms_job(level), message=message)


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
