"""Which chips a pod has, in the order of its ranks: from the annotations that device plugin and Volcano write.

A fault names a chip of a node; only the pod says which of its ranks sits there (docs/faults.md, "From chip to rank").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hajob.api import constants as names
from hajob.sources.reading import Reading, Terms, items, mapping, name_of, text

CONFIGURATION: Final = (
    "ascend.kubectl.kubernetes.io/ascend-910-configuration",
    "ascend.kubectl.kubernetes.io/ascend-npu-configuration",
)
ASSIGNED: Final = ("huawei.com/AscendReal", "huawei.com/Ascend910")
_MOST_CHIPS: Final = 64


@dataclass(frozen=True, slots=True)
class PodChips:
    """A rank pod with its chips.

    Attributes:
        pod: its name.
        node: name of its node; empty while it has none.
        node_rank: of the job.
        numbers: of its chips on the node, in the order of its ranks; empty while nobody has told.
    """

    pod: str
    node: str
    node_rank: int
    numbers: tuple[str, ...] = ()

    def is_on(self, number: str) -> bool:
        """Whether something on a chip of its node concerns it; of a pod of which nobody has told it does."""
        return not number or not self.numbers or number in self.numbers

    def rank_on(self, number: str, chips_per_node: int = 0) -> int | None:
        """Rank that sits on a chip; None: none of this pod's.

        Args:
            number: of the chip on the node.
            chips_per_node: ranks of one pod; 0: as many as the pod has chips.
        """
        if number not in self.numbers:
            return None
        return self.node_rank * (chips_per_node or len(self.numbers)) + self.numbers.index(number)


def pod_chips(raw: Mapping[str, Any]) -> PodChips | None:
    """The chips of a raw pod; None where it is no rank pod of ours."""
    metadata = mapping(raw.get("metadata"))
    rank = text(mapping(metadata.get("labels")).get(names.LABEL_NODE_RANK))
    if not rank.isdecimal() or not rank.isascii() or len(rank) > 6:
        return None
    node = text(mapping(raw.get("spec")).get("nodeName"))
    return PodChips(name_of(raw), node, int(rank), chip_numbers(mapping(metadata.get("annotations"))))


def chip_numbers(annotations: Mapping[str, Any]) -> tuple[str, ...]:
    """Numbers of a pod's chips on its node, in the order of its ranks, by its annotations; empty while nobody told."""
    for key in CONFIGURATION:
        told = mapping(Reading(Terms(0)).json(text(annotations.get(key)) or "null", key))
        found = [text(mapping(device).get("device_id")) for device in items(told.get("devices"))]
        if found and all(found):
            return tuple(found[:_MOST_CHIPS])
    for key in ASSIGNED:
        listed = [name.strip().rpartition("-")[2] for name in text(annotations.get(key)).split(",")]
        if all(listed):
            return tuple(listed[:_MOST_CHIPS])
    return ()
