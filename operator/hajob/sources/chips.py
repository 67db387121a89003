"""Which chips a pod has, in the order of its ranks: from the annotations that device plugin and Volcano write.

A fault names a chip of a node; only the pod says which of its ranks sits there. Where it does not say, nothing is
guessed (docs/faults.md, "From chip to rank").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Any, Final

from hajob.sources.reading import Reading, Terms, items, mapping, text

_CONFIGURATION: Final = re.compile(r"ascend\.kubectl\.kubernetes\.io/ascend-[a-z0-9]{1,32}-configuration")
"""The annotation with a pod's devices; the middle is the kind of chip: `910`, `npu`."""
_REAL: Final = "huawei.com/AscendReal"
"""What was mounted, as the device plugin notes it under one name for every kind of chip."""
_MOST_CHIPS: Final = 64


class Seat(Enum):
    """Whether a pod has a chip of its node."""

    ON = auto()
    OFF = auto()
    UNKNOWN = auto()


def seat_on_chip(number: str, chips: tuple[str, ...], *, has_all: bool) -> Seat:
    """Say whether a fault of a chip, or of the whole node, is one of the pod's.

    Args:
        number: of the chip on the node; empty: the whole node.
        chips: numbers of the pod's chips; empty while nobody has told.
        has_all: the pod has every chip of its node, whatever their numbers.
    """
    if number and chips:
        return Seat.ON if number in chips else Seat.OFF
    return Seat.ON if has_all or not number else Seat.UNKNOWN


def rank_on_chip(number: str, chips: tuple[str, ...], node_rank: int, chips_per_node: int) -> int | None:
    """Return the rank that sits on a chip; None where the annotations do not tell it.

    A pod with more or fewer chips than ranks, because other containers have some too, tells no order of its ranks.
    """
    if len(chips) != chips_per_node or number not in chips:
        return None
    return node_rank * chips_per_node + chips.index(number)


def chip_numbers(annotations: Mapping[str, Any], resources: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the numbers of a pod's chips on its node, in the order of its ranks; empty while nobody told.

    Args:
        annotations: of the pod.
        resources: names of what the pod asks for: Volcano lists the chips under the resource's name.
    """
    for key in sorted(filter(_CONFIGURATION.fullmatch, annotations)):
        told = mapping(Reading(Terms(0)).parse_json(text(annotations.get(key)) or "null", key))
        found = [text(mapping(device).get("device_id")) for device in items(told.get("devices"))]
        if found and all(found):
            return tuple(found[:_MOST_CHIPS])
    for key in (_REAL, *resources):
        listed = [name.strip().rpartition("-")[2] for name in text(annotations.get(key)).split(",")]
        if all(listed):
            return tuple(listed[:_MOST_CHIPS])
    return ()
