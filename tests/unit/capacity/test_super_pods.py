"""A replacement goes where the rest of its block is; a block that is lost as a whole, where there is room for it."""

from __future__ import annotations

from hajob.api import constants as names
from hajob.capacity.super_pods import nodes_in_whole_blocks, super_pod_of_block, super_pods_for_start
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView
from tests.rigs.snapshots import rank


def nodes(**sizes: int) -> dict[str, NodeView]:
    found = [(f"{name}-{number}", name) for name, size in sizes.items() for number in range(size)]
    return {name: NodeView(name, labels={names.LABEL_NODE_SUPER_POD: where}) for name, where in found}


CLUSTER = nodes(a=3, b=4, c=2)


def test_the_others_of_the_block_say_where() -> None:
    members = [rank(1, node_name="b-0")]
    assert super_pod_of_block(members, CLUSTER, CLUSTER, 2) == "b"
    assert super_pod_of_block(members, CLUSTER, (), 2) == "b", "where no node is free it waits"


def test_a_pod_that_waits_or_whose_node_is_gone_says_so_itself() -> None:
    assert super_pod_of_block([rank(1, node_name="", super_pod="c")], CLUSTER, CLUSTER, 2) == "c"
    assert super_pod_of_block([rank(1, node_name="gone", super_pod="a")], CLUSTER, CLUSTER, 2) == "a"


def test_a_lost_block_takes_the_smallest_room_that_will_do() -> None:
    assert super_pod_of_block([], CLUSTER, CLUSTER, 2) == "c"
    assert super_pod_of_block([], CLUSTER, CLUSTER, 3) == "a"
    assert super_pod_of_block([], CLUSTER, {"a-0", "b-0", "b-1"}, 3) == "b", "it waits where least is missing"


def test_without_super_pods_there_is_nothing_to_say() -> None:
    assert super_pod_of_block([rank(1)], {"node-1": NodeView("node-1")}, {"node-1"}, 2) == ""


def test_each_block_of_a_start_gets_the_smallest_room() -> None:
    empty: dict[int, list[PodView]] = {0: [], 1: []}
    assert super_pods_for_start(empty, CLUSTER, CLUSTER, 2) == {0: "c", 1: "a"}
    assert super_pods_for_start({**empty, 2: [], 3: []}, CLUSTER, CLUSTER, 2) == {0: "c", 1: "a", 2: "b", 3: "b"}
    assert super_pods_for_start(empty, CLUSTER, {"a-0", "a-1", "c-0"}, 2) == {0: "a"}, "there is no room for both"
    assert super_pods_for_start(empty, {}, (), 2) == {}


def test_a_block_that_has_begun_goes_on_where_it_is() -> None:
    begun = {0: [rank(0, node_name="b-0")], 1: [rank(2, node_name="", super_pod="b")], 2: []}
    free = CLUSTER.keys() - {"b-0", "c-0"}
    assert super_pods_for_start(begun, CLUSTER, free, 2) == {0: "b", 1: "b", 2: "a"}


def test_nodes_count_in_whole_blocks() -> None:
    assert [nodes_in_whole_blocks(CLUSTER, CLUSTER, size) for size in (1, 2, 3, 5)] == [9, 8, 6, 0]
    assert nodes_in_whole_blocks({**CLUSTER, "bare": NodeView("bare")}, {"bare", "a-0"}, 1) == 1
