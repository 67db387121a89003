"""Metrics of nodes and chips, counted when Prometheus asks: a node is what keeps pods out first, then what is on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hajob.capacity.nodes import Capacity
from hajob.faults.quarantines import OffenceSource
from hajob.job.cluster import NodeMarks
from hajob.sources.node import NodeView

NODE_STATES: Final = ("not_ready", "quarantined", "sick", "cordoned", "used", "free")
"""In the order in which they are asked; a node is in one of them."""
CHIP_STATES: Final = ("unhealthy", "out_of_service", "used", "free")
CLUSTER_METRICS: Final = (
    ("hajob_nodes", "Nodes with chips, by what they are.", ("state",)),
    ("hajob_chips", "Chips of these nodes, by resource name and what they are.", ("resource", "state")),
    ("hajob_node_offences", "How often a node was isolated; each quiet day takes one away.", ("node",)),
)


class ClusterMetrics(Collector):
    """Counts nodes and chips.

    Args:
        capacity: nodes, and what occupies their chips.
        marks: of nodes.
        offences: of nodes.
    """

    def __init__(self, capacity: Capacity, marks: NodeMarks, offences: OffenceSource) -> None:
        self._capacity, self._marks, self._offences = capacity, marks, offences

    def collect(self) -> Iterator[Metric]:
        """Yield the families; a state without a node is told as 0, a node without offences not at all."""
        nodes: Counter[tuple[str, ...]] = Counter({(state,): 0 for state in NODE_STATES})
        chips: Counter[tuple[str, ...]] = Counter()
        for node in self._capacity.nodes.values():
            resources = {name: number for name, number in (node.all_chips or {}).items() if number}
            # A node without chips is none that a training could have.
            if not resources:
                continue
            used = self._capacity.chips_used_on(node.name)
            state = self._state_of_node(node, used)
            nodes[state,] += 1
            for resource, number in resources.items():
                in_service = state in {"used", "free"}
                chips.update(_chips_by_state(node, resource, number, used[resource], in_service=in_service))
        offences: Counter[tuple[str, ...]] = Counter()
        offences.update({(node,): number for node, number in self._offences.offences_by_node().items() if number})
        for (name, told, labels), counts in zip(CLUSTER_METRICS, (nodes, chips, offences), strict=True):
            family = GaugeMetricFamily(name, told, labels=list(labels))
            for key, number in counts.items():
                family.add_metric(list(key), number)
            yield family

    def _state_of_node(self, node: NodeView, used: Counter[str]) -> str:
        marks = self._marks
        found = (
            not node.ready,
            node.name in marks.quarantined,
            node.name in marks.kept_out or node.name in marks.sub_healthy,
            node.is_to_be_emptied,
            bool(used),
            True,
        )
        return NODE_STATES[found.index(True)]


def _chips_by_state(
    node: NodeView, resource: str, number: int, used: int, *, in_service: bool
) -> dict[tuple[str, ...], int]:
    """Return all chips of a node by state; those that a pod uses count as used whatever its node is."""
    healthy = (node.chips or {}).get(resource, 0)
    rest = max(healthy - used, 0)
    by_state = {
        "unhealthy": max(number - healthy, 0),
        "used": used,
        "free" if in_service else "out_of_service": rest,
    }
    return {(resource, state): by_state.get(state, 0) for state in CHIP_STATES}
