"""Nodes that share a value of the topology label take one pod of a job together, and are counted so."""

from __future__ import annotations

from hajob.api import constants as names
from hajob.capacity.demand import Demand
from hajob.capacity.nodes import Capacity
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView

CHIPS = {names.DEFAULT_RESOURCE_NAME: 2}
DEMAND = Demand(names.DEFAULT_RESOURCE_NAME, 2, b'{"selector":{},"terms":null,"tolerations":[],"excluded":[]}')
LABEL = "example.com/blade"


def node(name: str, blade: str = "") -> NodeView:
    return NodeView(name, chips=CHIPS, labels={LABEL: blade} if blade else {})


def capacity() -> Capacity:
    """Two blades of two nodes, and two nodes without the label."""
    made = Capacity(LABEL)
    for name, blade in {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "c": "", "d": ""}.items():
        made.store_node(node(name, blade))
    return made


def test_nodes_of_one_domain_take_one_pod_of_a_job() -> None:
    made = capacity()
    assert (made.shares_domains, made.count_free_for(DEMAND, "job", set())) == (True, 4)
    assert made.count_free_for(DEMAND, "job", set(), {"a1"}) == 4
    assert made.count_free_for(DEMAND, "job", set(), {"a1", "a2"}) == 3


def test_a_domain_with_a_pod_of_the_job_takes_no_other() -> None:
    made = capacity()
    requests = ((names.DEFAULT_RESOURCE_NAME, 2),)
    made.store_pod(PodView("ns", "p", "u", "job", "rank", 0, 1, "Running", node_name="a1", requests=requests))
    assert made.count_free_for(DEMAND, "job", {"a1"}) == 3
    assert made.count_free_for(DEMAND, "another", set()) == 4


def test_domains_follow_the_nodes() -> None:
    made = capacity()
    for name in ("a2", "b2"):
        made.remove_node(name)
    assert (made.shares_domains, made.count_free_for(DEMAND, "job", set())) == (False, 4)
    made.store_node(node("d", "a"))
    assert (made.shares_domains, made.count_free_for(DEMAND, "job", set())) == (True, 3)
    made.store_node(node("d"))
    assert made.count_free_for(DEMAND, "job", set()) == 4
