"""Agents are told to start ranks only with a rank table that is true for every pod."""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World


def give(world: World, version: str, *uids: str) -> None:
    assignment = pb.Assignment()
    assert world.core.job.assignment is not None
    assignment.CopyFrom(world.core.job.assignment)
    assignment.rank_table.CopyFrom(pb.RankTable(version=version, pod_uids=uids))
    world.core.apply_assignment(assignment, world.now)


def test_a_table_of_other_pods_starts_nothing(world: World) -> None:
    first, second = (world.agent(node).uid for node in range(2))
    tables = {"a": (first, second), "b": (first, "another"), "c": (first, second), "d": (first,)}
    named = []
    for version, uids in tables.items():
        give(world, version, *uids)
        orders = world.core.take_orders()
        assert orders.keys() == {first, second}, "all pods are told"
        named.append({order.rank_table for order in orders.values()})
    assert named == [{"a"}, {""}, {"c"}, {""}]
