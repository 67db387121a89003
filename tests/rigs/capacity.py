"""Nodes, pods and jobs that ask for nodes, for the arithmetic of what is free."""

from __future__ import annotations

from typing import Any

import yaml

from e2e.bootstrap.paths import CHECKOUT
from hajob.api import constants as names
from hajob.api.spec import HATrainingJobSpec
from hajob.capacity.caches import Caches
from hajob.capacity.demand import Demand
from hajob.capacity.gang import Claim
from hajob.capacity.nodes import Capacity
from hajob.plan.policy import layout_from_spec
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView

QUICKSTART = CHECKOUT / "examples/quickstart.yaml"
NODE_WITH_TWO_CHIPS = NodeView("node", chips={names.DEFAULT_RESOURCE_NAME: 2}, labels={"pool": "a", "rack": "1"})


def caches_of(*nodes: str) -> Caches:
    """Build the caches of an operator that knows these nodes, and no pods."""
    made = Caches()
    for name in nodes:
        made.store_node(NodeView(name))
    return made


def quickstart_spec(excluded: tuple[str, ...] = (), **pod: Any) -> HATrainingJobSpec:
    """Build the quickstart's spec, with nodes that it leaves out and other values in its pods' spec."""
    body = yaml.safe_load(QUICKSTART.read_text())["spec"]
    body["template"]["spec"] |= pod
    body["scheduling"] = {"excludedNodeNames": list(excluded)}
    return HATrainingJobSpec.model_validate(body)


def demand_of(job: HATrainingJobSpec) -> Demand:
    """Compute what a job asks for."""
    return Demand.from_spec(job, layout_from_spec(job))


def pod_of_this_operator(name: str, node: str, role: str = names.ROLE_RANK) -> PodView:
    """Build a pod of a job of this operator; a rank pod holds two chips."""
    held = ((names.DEFAULT_RESOURCE_NAME, 2),) if role == names.ROLE_RANK else ()
    return PodView("default", name, name, "uid-1", role, 0, 1, node_name=node, requests=held)


DEMAND_FOR_POOL_A = Demand.from_spec(quickstart_spec(nodeSelector={"pool": "a"}), layout_from_spec(quickstart_spec()))
DEMAND_FOR_ANY_NODE = Demand.from_spec(quickstart_spec(), layout_from_spec(quickstart_spec()))


def capacity_of_pools(a: int = 0, b: int = 0) -> Capacity:
    """Build a cluster of free nodes with two chips each: so many in the pools a and b."""
    pools = {**{f"a-{n}": "a" for n in range(a)}, **{f"b-{n}": "b" for n in range(b)}}
    chips = {names.DEFAULT_RESOURCE_NAME: 2}
    return Capacity.from_nodes_and_pods(
        [NodeView(name, chips=chips, labels={"pool": pool}) for name, pool in pools.items()], []
    )


def waiting_claim(uid: str, need: int, demand: Demand = DEMAND_FOR_POOL_A) -> Claim:
    """Build the claim of a job that waits for nodes."""
    return Claim(uid, uid, demand, need, waits=True)
