"""A node that fell silent a moment ago gets no replacement while another has room."""

from __future__ import annotations

from hajob.api.constants import DEFAULT_RESOURCE_NAME as CHIP
from hajob.capacity.demand import Demand
from hajob.capacity.nodes import Capacity
from hajob.job.cluster import Cluster
from hajob.sources.node import NodeView
from tests.rigs.fake_clock import FakeClock


def refused_with(*names_of_nodes: str) -> set[str]:
    """Return the nodes that one new pod is kept off, of these, after trouble on node-0."""
    nodes = [NodeView(name, chips={CHIP: 8}, all_chips={CHIP: 8}, boot="first") for name in names_of_nodes]
    cluster = Cluster(FakeClock(), Capacity.from_nodes_and_pods(nodes, ()))
    cluster.avoid_node("node-0")
    return cluster.nodes_to_refuse(Demand(CHIP, 8, b'{"tolerations":[],"selector":{},"terms":null,"excluded":[]}'), 1)


def test_a_silent_node_is_refused_while_another_has_room() -> None:
    assert refused_with("node-0", "node-1") == {"node-0"}


def test_a_silent_node_is_taken_where_there_is_no_other() -> None:
    assert refused_with("node-0") == set()
