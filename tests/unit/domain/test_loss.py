"""What a loss takes along: the published layout classes, and properties against the slow second implementation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hajob.domain.errors import RankError
from hajob.domain.incidents import RestoredFrom
from hajob.domain.layout import CopyKind, Layout, RankOrder
from hajob.domain.loss import copy_survives, isolate_loss, plan_repairs, tolerance_of_layout
from tests.rigs.layouts import layouts_with_slow_twins
from tests.rigs.slow_layout import Slow

# (tensor, data, pipeline, chips per node), lost pod, dropped data-parallel ranks, pods that leave
CLASSES = [
    pytest.param((8, 4, 1, 8), 3, (3,), (3,), id="tp = c, pp 1: one pod is one data-parallel rank"),
    pytest.param((8, 4, 2, 8), 5, (1,), (1, 5), id="tp = c, pp 2: the peer of the other stage stops, too"),
    pytest.param((4, 4, 2, 8), 1, (2, 3), (1, 3), id="tp < c: half of the data-parallel ranks are lost"),
    pytest.param((8, 8, 1, 16), 1, (2, 3), (1,), id="tp < c, 16 chips"),
    pytest.param((16, 4, 1, 16), 2, (2,), (2,), id="tp = c, 16 chips"),
    pytest.param((8, 4, 2, 16), 1, (2, 3), (1, 3), id="16 chips, pp 2"),
    pytest.param((16, 4, 2, 8), 3, (1,), (2, 3, 10, 11), id="tp > c"),
    pytest.param((8, 2, 2, 16), 0, (0, 1), (0, 1), id="a pod spans both halves"),
    pytest.param((8, 6, 2, 16), 1, (2, 3), (1, 4), id="16 chips, data 6"),
    pytest.param((8, 4, 2, 8), 4, (0,), (0, 4), id="fault on data-parallel rank 0 of the other stage"),
]


def layout_of(sizes: tuple[int, int, int, int]) -> Layout:
    tensor, data, pipeline, chips = sizes
    return Layout(tensor * data * pipeline // chips, chips, tensor, pipeline)


@pytest.mark.parametrize(("sizes", "pod", "dropped", "nodes"), CLASSES)
def test_layout_classes(
    sizes: tuple[int, int, int, int], pod: int, dropped: tuple[int, ...], nodes: tuple[int, ...]
) -> None:
    layout = layout_of(sizes)
    found = isolate_loss(layout, layout.ranks_of_node(pod))
    assert (found.dropped, found.nodes) == (dropped, nodes)
    assert len(found.ranks) == len(dropped) * layout.tensor * layout.pipeline
    assert found.agrees_with_mindio
    assert found.holds_rank_zero == (0 in dropped)


def test_isolated_ranks_of_half_a_world() -> None:
    # layout class: tp < c, 4 x 4 x 2 on 8 chips, pod 1 lost -> ranks 8-15 and 24-31
    found = isolate_loss(Layout(4, 8, 4, 2), [9])
    assert found.ranks == (*range(8, 16), *range(24, 32))


def test_misaligned_layout_takes_everything_and_disagrees() -> None:
    # layout class: misaligned, tensor 2, data 6, pipeline 4 on 8 chips: any loss takes every pod
    layout = Layout(6, 8, 2, 4)
    for pod in range(6):
        found = isolate_loss(layout, layout.ranks_of_node(pod))
        assert found.nodes == tuple(range(6))
        assert not found.agrees_with_mindio
    assert not tolerance_of_layout(layout).aligned


def test_context_parallel_ranks_go_together() -> None:
    # observed: 8 ranks as one data x context group, pure data-parallel groups of 4: rank 7 lost -> 6 and 7 dropped
    assert isolate_loss(Layout(8, 1, context=2), [7]).ranks == (6, 7)


def test_experts_take_equal_positions_along() -> None:
    # positions of two expert groups over data 8: (0, 2, 4, 6) and (1, 3, 5, 7); rank 5 is third in its group, so is 4
    assert isolate_loss(Layout(8, 1, expert=2), [5]).ranks == (4, 5)
    assert isolate_loss(Layout(8, 1, expert=4), [5]).ranks == (4, 5, 6, 7)
    assert isolate_loss(Layout(8, 1), [5]).ranks == (5,)


def test_experts_that_their_copies_do_not_divide() -> None:
    # six experts' positions of 3 with 2 copies: offset 1, every position shares a shard with the next
    layout = Layout(6, 1, expert=2)
    assert not copy_survives(layout, [1, 3])
    assert copy_survives(layout, [0, 1])
    # the dense parameters of the same six ranks have offset 3
    assert not copy_survives(layout, [0, 3])


def test_a_loss_of_nothing_takes_nothing() -> None:
    found = isolate_loss(Layout(4, 2, tensor=2), [])
    assert (found.dropped, found.ranks, found.nodes, found.agrees_with_mindio, found.holds_rank_zero) == (
        (),
        (),
        (),
        True,
        False,
    )


@st.composite
def losses(draw: st.DrawFn) -> tuple[Layout, Slow, set[int]]:
    fast, slow = draw(layouts_with_slow_twins())
    lost = draw(st.sets(st.integers(0, fast.world_size - 1), max_size=6))
    return fast, slow, lost


@given(losses())
@settings(max_examples=250, deadline=None)
def test_isolation_agrees(case: tuple[Layout, Slow, set[int]]) -> None:
    fast, slow, lost = case
    found = isolate_loss(fast, lost)
    dropped, ranks, nodes, first = slow.isolate(lost)
    assert (set(found.dropped), set(found.ranks), set(found.nodes)) == (dropped, ranks, nodes)
    assert set(found.mindio_ranks) == first
    assert list(found.ranks) == sorted(found.ranks)
    assert list(found.dropped) == sorted(found.dropped)


@given(losses())
@settings(max_examples=250, deadline=None)
def test_isolation_is_whole_and_closed(case: tuple[Layout, Slow, set[int]]) -> None:
    """Whole data-parallel ranks, whole pods, every lost rank among them, and nothing more when asked again."""
    fast, slow, lost = case
    found = isolate_loss(fast, lost)
    assert lost <= set(found.ranks)
    assert {rank for d in found.dropped for rank in fast.ranks_of_data(d)} == set(found.ranks)
    assert {rank for node in found.nodes for rank in fast.ranks_of_node(node)} >= set(found.ranks)
    assert isolate_loss(fast, found.ranks).ranks == found.ranks
    assert slow.dp - len(found.dropped) >= 0


@given(losses())
@settings(max_examples=250, deadline=None)
def test_copies_agree(case: tuple[Layout, Slow, set[int]]) -> None:
    fast, slow, lost = case
    assert copy_survives(fast, lost) == slow.copy_survives(lost)


@given(losses())
@settings(max_examples=150, deadline=None)
def test_every_repair_has_a_living_giver_or_the_checkpoint(case: tuple[Layout, Slow, set[int]]) -> None:
    fast, slow, lost = case
    plan = plan_repairs(fast, lost)
    assert {(one.rank, one.kind) for one in plan} == {(rank, kind) for rank in lost for kind in fast.copy_kinds}
    for one in plan:
        if slow.copy_survives(lost):
            assert one.giver is not None
            assert one.giver not in lost
            assert one.giver in fast.holders_of_shard(one.rank, one.kind)
            assert one.restored_from is RestoredFrom.OPTIMIZER_COPY
        else:
            assert one.giver is None
            assert one.restored_from is RestoredFrom.PERIODIC_CHECKPOINT


def test_which_ranks_save_after_a_loss() -> None:
    # observed: world 4, count 2: rank 2 dead -> 0 and 1 hold a copy; 1 dead -> 0 and 3; 0 dead -> 2 and 1
    layout = Layout(4, 1)
    for lost, givers in ((2, 0), (1, 3), (0, 2)):
        assert plan_repairs(layout, [lost])[0].giver == givers
        assert copy_survives(layout, [lost])


def test_both_holders_lost_leaves_the_checkpoint_or_nothing() -> None:
    layout = Layout(4, 1)
    assert not copy_survives(layout, [1, 3])
    assert [one.restored_from for one in plan_repairs(layout, [1, 3])] == [RestoredFrom.PERIODIC_CHECKPOINT] * 2


def test_one_copy_by_choice_survives_no_loss() -> None:
    layout = Layout(4, 2, tensor=2, copies=1)
    assert not copy_survives(layout, [0])
    assert copy_survives(layout, [])


@pytest.mark.parametrize(
    ("sizes", "aligned", "keeps", "lost"),
    [
        ((8, 4, 1, 8), True, True, 1),
        ((8, 4, 2, 8), True, True, 1),
        ((4, 4, 2, 8), True, True, 2),
        ((8, 2, 2, 16), True, False, 2),
        ((8, 6, 2, 16), True, True, 2),
        ((2, 6, 4, 8), False, False, 6),
        ((16, 4, 2, 8), True, True, 1),
        ((6, 4, 1, 4), False, True, 2),
    ],
)
def test_tolerance_of_layout_classes(sizes: tuple[int, int, int, int], aligned: bool, keeps: bool, lost: int) -> None:
    found = tolerance_of_layout(layout_of(sizes))
    assert (found.aligned, found.keeps_copy, found.lost_per_node) == (aligned, keeps, lost)


@given(layouts_with_slow_twins())
@settings(max_examples=150, deadline=None)
def test_tolerance_is_what_every_single_node_says(pair: tuple[Layout, Slow]) -> None:
    fast, slow = pair
    found = tolerance_of_layout(fast)
    pods = [slow.whole_pods({node * fast.chips_per_node}) for node in range(fast.num_nodes)]
    assert found.aligned == slow.aligned()
    assert found.keeps_copy == all(slow.copy_survives(pod) for pod in pods)
    if found.aligned and fast.expert == 1:
        assert all(isolate_loss(fast, pod).agrees_with_mindio for pod in pods)


@pytest.mark.parametrize(
    ("layout", "aligned"),
    [
        (Layout(4, 6, tensor=2, context=2), False),
        (Layout(2, 6, tensor=3, context=2), True),
        (Layout(6, 2, tensor=2, context=2, pipeline=3), True),
        (Layout(3, 4, tensor=2, pipeline=2), False),
        (Layout(3, 4, tensor=2, pipeline=2, rank_order=RankOrder.TENSOR_PIPELINE_DATA), True),
        (Layout(6, 2, tensor=2, pipeline=3, rank_order=RankOrder.TENSOR_PIPELINE_DATA), True),
        (Layout(2, 12, tensor=2, pipeline=3, rank_order=RankOrder.TENSOR_PIPELINE_DATA), True),
        (Layout(3, 4, tensor=2, pipeline=3, rank_order=RankOrder.TENSOR_PIPELINE_DATA), False),
        (Layout(9, 2, tensor=3, pipeline=2, rank_order=RankOrder.TENSOR_PIPELINE_DATA), True),
    ],
)
def test_pods_and_data_parallel_ranks_are_cut_at_the_same_places(layout: Layout, aligned: bool) -> None:
    assert tolerance_of_layout(layout).aligned is aligned


def test_a_rank_outside_the_world_is_named() -> None:
    with pytest.raises(RankError, match="rank 99"):
        isolate_loss(Layout(4, 2, tensor=2), [99])


def test_an_expert_shard_comes_from_a_holder_of_its_own_kind() -> None:
    """Three copies of the dense shards, two of the experts': their holders are other ranks."""
    layout = Layout(num_nodes=4, chips_per_node=1, context=2, expert=2, copies=3)
    assert {one.kind: one.giver for one in plan_repairs(layout, [0])} == {CopyKind.DENSE: 1, CopyKind.EXPERT: 2}
