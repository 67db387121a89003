"""Every number of nodes at once, and a shrink and its return, whatever the layout of the ranks is.

Six layouts in both orders of ranks: one and two pods to a data-parallel rank, one and two data-parallel ranks to a pod.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

import pytest

from e2e.harness.account import hajob_writes, layout_of
from e2e.harness.job import IMPATIENT, Job
from e2e.harness.marks import only_e2e
from e2e.harness.rig import Rig, RigLayout
from e2e.scenarios.nodes_taken import pods_by_node_rank
from e2e.scenarios.proofs import assert_recovered, assert_weights_equal
from e2e.trainer.layout import Layout

pytestmark = [
    only_e2e,
    pytest.mark.timeout(900),
]
STEPS = 400
STEP_MILLISECONDS = 200.0
ORDERS = ("TensorDataPipeline", "TensorPipelineData")


class Shape(NamedTuple):
    """Of a job; its data-parallel size follows."""

    tensor: int
    pipeline: int
    nodes: int
    chips: int

    def __str__(self) -> str:
        """As a part of a test's name."""
        return f"tensor{self.tensor}-pipeline{self.pipeline}-{self.nodes}x{self.chips}"


SHAPES = (
    Shape(1, 1, 4, 1),
    Shape(1, 1, 4, 2),
    Shape(2, 1, 4, 2),
    Shape(1, 2, 4, 1),
    Shape(1, 2, 4, 2),
    Shape(2, 2, 4, 2),
)
SHRINKABLE = tuple(shape for shape in SHAPES if shape.nodes * shape.chips // (shape.tensor * shape.pipeline) >= 4)
"""Of two data-parallel ranks none may be dropped: the other one would have no copy."""


def submit(rig: Rig, shape: Shape, order: str, more: Mapping[str, object], arguments: list[str]) -> Job:
    """A training of this shape, which has begun."""
    parallelism = {"tensor": shape.tensor, "pipeline": shape.pipeline, "rankOrder": order}
    mapped = ["--use-tp-pp-dp-mapping"] if order == ORDERS[1] else []
    job = rig.submit(
        tensor=shape.tensor,
        pipeline=shape.pipeline,
        nodes=shape.nodes,
        chips=shape.chips,
        iterations=STEPS,
        step_milliseconds=STEP_MILLISECONDS,
        spec={"parallelism": parallelism, **more},
        arguments=[*mapped, *arguments],
    )
    job.wait_step(5)
    return job


def ranks_on(nodes: tuple[int, ...], shape: Shape) -> set[int]:
    """Of these rank pods."""
    return {rank for node in nodes for rank in range(node * shape.chips, (node + 1) * shape.chips)}


def survivable(layout: Layout, shape: Shape) -> Iterator[tuple[int, ...]]:
    """For each number of nodes, from one on, some whose ranks have their copies elsewhere; as many as there can be."""
    for count in range(1, shape.nodes):
        for nodes in combinations(range(shape.nodes), count):
            lost = ranks_on(nodes, shape)
            if lost.isdisjoint(layout.partner(rank) for rank in lost):
                yield nodes
                break


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_number_of_nodes_at_once_is_replaced(
    start_rig: Callable[[RigLayout], Rig], shape: Shape, order: str
) -> None:
    rig = start_rig(RigLayout(chip_nodes=shape.nodes + 2, chips=shape.chips))
    job = submit(rig, shape, order, {}, [])
    losses = list(survivable(layout_of(job), shape))
    assert losses, "a node can be lost in every one of these layouts"
    for incarnation, nodes in enumerate(losses, 2):
        off, before = [job.node_of(node_rank) for node_rank in nodes], pods_by_node_rank(job)
        began = min(int(rig.nodes.control.power_off(node)["time"]) for node in off)
        incident = job.wait_incident(incarnation)
        assert (incident["action"], incident["lostSteps"]) == ("Replace", 0), nodes
        made = pods_by_node_rank(job)
        assert {node_rank for node_rank in before if made[node_rank] != before[node_rank]} == set(nodes)
        writes = hajob_writes(rig, datetime.datetime.fromtimestamp(began / 1e9, datetime.UTC))
        created = [one for one in writes if (one.verb, one.resource) == ("create", "pods")]
        assert len(created) == len(nodes), "one pod for each"
        for node in off:
            rig.nodes.control.power_on(node)
        job.wait_step(job.common_step() + 5)
    assert_recovered(job, set().union(*(ranks_on(nodes, shape) for nodes in losses)), STEPS)
    assert len(job.incidents()) == len(losses)


@pytest.mark.parametrize("shape", SHRINKABLE, ids=str)
def test_each_layout_shrinks_and_grows_back(start_rig: Callable[[RigLayout], Rig], shape: Shape) -> None:
    """In the one order that MindIO can shrink in; the last node, which never holds data-parallel rank 0."""
    rig = start_rig(RigLayout(chip_nodes=shape.nodes, chips=shape.chips))
    job = submit(rig, shape, ORDERS[0], IMPATIENT, ["--enable-elastic-training"])
    full = job.status()["dataParallel"]["desired"]
    node = job.node_of(shape.nodes - 1)
    rig.nodes.control.power_off(node)
    assert job.wait_incident(2)["action"] == "Shrink"
    assert job.status()["dataParallel"]["current"] < full
    rig.nodes.control.power_on(node)
    rig.plane.wait("the original size", lambda: job.status()["dataParallel"]["current"] == full)
    assert job.wait_incident(3)["action"] == "Expand"
    assert_weights_equal(job, STEPS)
