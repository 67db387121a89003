"""Which standing faults of a node a job hears of, and when: the rules by which one fault explains another.

The rules and windows are those that MindCluster applies before it acts (docs/faults.md, "Filters"). Each looks at what
stands on one node, so a change costs what that node holds. The frequency and duration rules are the device plugin's own
and arrive as a raised level.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Final

from hajob.domain.hardware import ClusterFact, Level, harms, kind_of

MEMORY_FAULT: Final = "80E01801"
"""An error of on-chip memory that could not be corrected (UCE)."""
MEMORY_SHADOWS: Final = frozenset({"80C98009", "80CB8009"})
"""Errors of the compute cores that such a memory error causes."""
SHADOW_MS: Final = 5_000
"""A shadow comes at most so long before or after its cause; so long it waits for it."""
RETRY_MS: Final = 10_000
"""So long a memory fault is left to the training, which repeats the step where it can."""

LINK_DOWN: Final = frozenset({"81078603", "[0x08520003,na,L2,na]"})
RELATION_MS: Final = 300_000
"""A fault is explained by a broken link at most so long before or after it."""
RELATIONS: Final = {
    "8C1F8609": Level.SUB_HEALTH,
    "8C1F860B": Level.SEPARATE,
    "8C1F8608": Level.SEPARATE,
    "4C1F8608": Level.SEPARATE,
}
"""Faults of the network that are ignored alone, and their level beside a broken link."""


def effective(facts: Sequence[ClusterFact], appeared_ms: dict[str, int], now_ms: int) -> list[ClusterFact]:
    """What a job on the node hears of now.

    Args:
        facts: everything that stands on one node.
        appeared_ms: id to the time at which the operator first heard of it.
        now_ms: time of the question.
    """
    return [
        raised
        for fact in facts
        if not _is_shadow(fact, facts, appeared_ms) and now_ms >= _due_ms(fact, appeared_ms)
        for raised in [_related(fact, facts, appeared_ms)]
    ]


def next_due_ms(facts: Iterable[ClusterFact], appeared_ms: dict[str, int], now_ms: int) -> int | None:
    """When `effective` would next answer otherwise by itself; None: never."""
    return min((due for fact in facts if (due := _due_ms(fact, appeared_ms)) > now_ms), default=None)


def _due_ms(fact: ClusterFact, appeared_ms: dict[str, int]) -> int:
    wait = RETRY_MS if fact.code == MEMORY_FAULT else SHADOW_MS if fact.code in MEMORY_SHADOWS else 0
    return appeared_ms[fact.id] + wait


def _is_shadow(fact: ClusterFact, facts: Sequence[ClusterFact], appeared_ms: dict[str, int]) -> bool:
    """Whether it only repeats a memory fault of the same chip."""
    return fact.code in MEMORY_SHADOWS and any(
        cause.code == MEMORY_FAULT
        and cause.device == fact.device
        and abs(appeared_ms[cause.id] - appeared_ms[fact.id]) <= SHADOW_MS
        for cause in facts
    )


def _related(fact: ClusterFact, facts: Sequence[ClusterFact], appeared_ms: dict[str, int]) -> ClusterFact:
    """The fact, raised where a broken link of the same chip, or of the node's switch, explains it."""
    level = RELATIONS.get(fact.code)
    if level is None:
        return fact
    for link in facts:
        near = abs(appeared_ms[link.id] - appeared_ms[fact.id]) <= RELATION_MS
        if link.code in LINK_DOWN and link.device in {"", fact.device} and near:
            why = f"{fact.message}; the link is down ({link.code})"
            return dataclasses.replace(fact, level=level, kind=kind_of(level), harms=harms(level), message=why)
    return fact
