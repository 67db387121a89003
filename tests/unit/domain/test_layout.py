"""Layout arithmetic: worked examples, and every question against the slow second implementation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from hajob.domain.errors import LayoutError, RankError
from hajob.domain.layout import Coordinates, CopyKind, Layout, RankOrder, Sharding
from tests.rigs.layouts import PUBLISHED_LAYOUTS, layouts_with_slow_twins
from tests.rigs.slow_layout import Slow

# Eight ranks, optimizer shards over half of the data-parallel group: the list the library prints as report group list.
EIGHT_RANKS = [[0, 4], [1, 5], [2, 6], [3, 7]]


@given(layouts_with_slow_twins())
@settings(max_examples=150, deadline=None)
def test_coordinates_agree_with_counting(pair: tuple[Layout, Slow]) -> None:
    fast, slow = pair
    for rank in range(fast.world_size):
        at = fast.coordinates(rank)
        assert at == slow.at[rank]
        assert fast.rank_at_coordinates(at) == rank
        assert fast.data_rank(rank) == at.data
        assert fast.node_of_rank(rank) == slow.pod(rank)
        assert rank in fast.ranks_of_node(slow.pod(rank))


@given(layouts_with_slow_twins())
@settings(max_examples=150, deadline=None)
def test_data_parallel_ranks_agree(pair: tuple[Layout, Slow]) -> None:
    fast, slow = pair
    for data in range(fast.data):
        assert list(fast.ranks_of_data(data)) == [r for r, at in enumerate(slow.at) if at[2] == data]


@given(layouts_with_slow_twins())
@settings(max_examples=150, deadline=None)
def test_groups_and_holders_agree(pair: tuple[Layout, Slow]) -> None:
    fast, slow = pair
    kinds = {CopyKind.DENSE: slow.dense_groups(), CopyKind.EXPERT: slow.expert_groups()}
    for kind in fast.copy_kinds:
        for group in kinds[kind]:
            for place, rank in enumerate(group):
                assert list(fast.ranks_of_group(fast.position_in_group(rank, kind)[0], kind)) == group
                assert fast.position_in_group(rank, kind)[1] == place
                assert set(fast.holders_of_shard(rank, kind)) == slow.holders(group, rank)
                assert fast.holders_of_shard(rank, kind)[0] == rank
                partner = fast.first_other_holder(rank, kind)
                assert partner in slow.holders(group, rank) or partner is None
                assert (partner is None) == (fast.effective_copies(kind) == 1)


@given(layouts_with_slow_twins())
@settings(max_examples=100, deadline=None)
def test_report_group_list_names_every_shard_once(pair: tuple[Layout, Slow]) -> None:
    fast, slow = pair
    for kind in fast.copy_kinds:
        rows = [list(row.holders) for row in fast.report_group_list() if row.kind is kind]
        size, copies = fast.group_size(kind), fast.effective_copies(kind)
        assert len(rows) == fast.world_size // size * (size // copies)
        assert all(len(row) == copies for row in rows)
        assert len({rank for row in rows for rank in row}) == len(rows) * copies
        for row in rows:
            group = next(g for g in slow.groups() if set(row) <= set(g) and len(g) == size)
            assert all(
                b - a == size // copies for a, b in zip(map(group.index, row), map(group.index, row[1:]), strict=False)
            )


def test_report_group_list_of_eight_ranks() -> None:
    # worked example: 8 chips, data 4 over tensor 2, shards in two places; and plain data 8
    assert [list(row.holders) for row in Layout(1, 8).report_group_list()] == EIGHT_RANKS
    # worked example: data parallel 8, shard size 4 -> 8 / 4 = 2 copies
    assert Layout(1, 8).effective_copies(CopyKind.DENSE) == 2
    # worked example: data parallel 2 with both in one shard group has no second copy; 4 has
    assert Layout(1, 8, tensor=4, copies=1).first_other_holder(0) is None
    assert Layout(1, 8, tensor=2).first_other_holder(0) == 4


def test_experts_that_only_one_rank_holds_have_no_copy() -> None:
    layout = Layout(4, 1, expert=4)
    assert (layout.effective_copies(CopyKind.DENSE), layout.effective_copies(CopyKind.EXPERT)) == (2, 1)
    assert (layout.first_other_holder(1), layout.first_other_holder(1, CopyKind.EXPERT)) == (3, None)
    assert layout.holders_of_shard(1, CopyKind.EXPERT) == (1,)


def test_without_sharding_everybody_holds_everything() -> None:
    layout = Layout(1, 8, tensor=2, sharding=Sharding.NONE)
    assert layout.holders_of_shard(2) == (2, 4, 6, 0)
    assert layout.effective_copies(CopyKind.DENSE) == 4


def test_three_ranks_with_two_copies_leave_one_over() -> None:
    # observed: group of 3, count 2 -> offset 1; positions 0 and 1 hold the shard, position 2 is not listed
    layout = Layout(1, 3)
    assert [list(row.holders) for row in layout.report_group_list()] == [[0, 1]]


def test_a_hundred_thousand_ranks_are_eight_numbers() -> None:
    layout = Layout(12_500, 8, tensor=8, pipeline=5)
    assert (layout.world_size, layout.data) == (100_000, 2500)
    assert layout.first_other_holder(99_999) == 99_999 - 8 * 1250
    assert layout.coordinates(99_999) == Coordinates(7, 0, 2499, 4)
    assert isinstance(layout.ranks_of_group(layout.position_in_group(77_777)[0]), range)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (
            {"num_nodes": 3, "chips_per_node": 8, "tensor": 5},
            "24 ranks (3 nodes x 8 chips): no multiple of tensor 5",
        ),
        ({"num_nodes": 0, "chips_per_node": 8}, "num_nodes is 0"),
        ({"num_nodes": 1, "chips_per_node": 8, "tensor": 16}, "8 ranks"),
        (
            {"num_nodes": 1, "chips_per_node": 8, "expert": 3},
            "8 ranks: no multiple of expert tensor 1 x expert 3 x pipeline 1",
        ),
        ({"num_nodes": 1, "chips_per_node": 8, "copies": 0}, "copies is 0"),
        ({"num_nodes": 1, "chips_per_node": -8}, "chips_per_node is -8; it must be at least 1"),
    ],
)
def test_sizes_that_make_no_layout_are_named(sizes: dict[str, Any], words: str) -> None:
    with pytest.raises(LayoutError) as error:
        Layout(**sizes)
    assert words in str(error.value)


@pytest.mark.parametrize("rank", [-1, 8, 10**9])
def test_ranks_outside_the_world_are_named(rank: int) -> None:
    layout = Layout(4, 2, tensor=2)
    for question in (
        layout.coordinates,
        layout.data_rank,
        layout.node_of_rank,
        layout.first_other_holder,
        layout.holders_of_shard,
    ):
        with pytest.raises(RankError, match=f"rank {rank} is outside the world of 8 ranks \\(0 to 7\\)"):
            question(rank)


@pytest.mark.parametrize("node", [-1, 4])
def test_nodes_outside_the_job_are_named(node: int) -> None:
    with pytest.raises(RankError, match=f"node rank {node} is outside the job of 4 nodes"):
        Layout(4, 2, tensor=2).ranks_of_node(node)


def test_the_edges_of_the_world_are_inside() -> None:
    layout = Layout(4, 2, tensor=2)
    assert (layout.node_of_rank(0), layout.node_of_rank(7)) == (0, 3)
    assert (list(layout.ranks_of_node(0)), list(layout.ranks_of_node(3))) == ([0, 1], [6, 7])
    assert layout.nodes_of_ranks([7, 0, 1]) == (0, 3)


@pytest.mark.parametrize("name", PUBLISHED_LAYOUTS)
def test_a_published_layout_has_its_authors_sizes(name: str) -> None:
    (nodes, chips, tp, pp, cp, ep, etp), data, expert_data = PUBLISHED_LAYOUTS[name]
    fast = Layout(nodes, chips, tp, pp, cp, ep, expert_tensor=etp)
    assert (fast.data, fast.expert_data) == (data, expert_data)
    slow = Slow(nodes, chips, tp, pp, cp, ep, etp=etp)
    rows = {(row.kind, tuple(row.holders)) for row in fast.report_group_list()}
    wanted = {(CopyKind.DENSE, tuple(sorted(slow.holders(g, r)))) for g in slow.dense_groups() for r in g}
    if ep > 1:
        wanted |= {(CopyKind.EXPERT, tuple(sorted(slow.holders(g, r)))) for g in slow.expert_groups() for r in g}
    assert rows == wanted


@given(layouts_with_slow_twins())
@settings(max_examples=100, deadline=None)
def test_both_grids_name_one_partner_where_both_halve(pair: tuple[Layout, Slow]) -> None:
    fast, _ = pair
    if any(fast.group_size(kind) % 2 or fast.effective_copies(kind) != 2 for kind in fast.copy_kinds):
        return
    for rank in range(fast.world_size):
        assert len({fast.first_other_holder(rank, kind) for kind in fast.copy_kinds}) == 1


def test_experts_without_a_second_holder_have_no_partner() -> None:
    layout = Layout(1, 16, tensor=2, expert=16, expert_tensor=1)
    assert layout.first_other_holder(0) == 8
    assert layout.first_other_holder(0, CopyKind.EXPERT) is None


def test_pipelines_of_both_grids_must_be_the_same_ranks() -> None:
    with pytest.raises(LayoutError, match="expert tensor 1 x expert 8 must equal tensor 2 x context 1"):
        Layout(4, 8, tensor=2, pipeline=2, expert=8, expert_tensor=1, rank_order=RankOrder.TENSOR_PIPELINE_DATA)
