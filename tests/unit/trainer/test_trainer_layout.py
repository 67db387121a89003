import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.trainer.layout import Layout, shares


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_rank_and_coordinate_are_inverse(tensor: int, half: int, pipeline: int, data_slowest: bool) -> None:
    layout = Layout(tensor, 2 * half, pipeline, 2, data_slowest)
    for rank in range(layout.world):
        assert layout.rank(*layout.coordinate(rank)) == rank


def test_default_order_counts_tensor_then_data_then_pipeline() -> None:
    layout = Layout(tensor=2, data=4, pipeline=2)
    assert [layout.coordinate(rank) for rank in (0, 1, 2, 8)] == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    assert layout.data_group(9) == [9, 11, 13, 15]


def test_other_order_counts_tensor_then_pipeline_then_data() -> None:
    layout = Layout(tensor=2, data=4, pipeline=2, tensor_pipeline_data=True)
    assert [layout.coordinate(rank) for rank in (1, 2, 4)] == [(1, 0, 0), (0, 0, 1), (0, 1, 0)]
    assert layout.data_group(3) == [3, 7, 11, 15]


def test_copies_lie_half_a_group_apart() -> None:
    layout = Layout(tensor=2, data=4, pipeline=1)
    assert [layout.shard_of(data) for data in range(4)] == [0, 1, 0, 1]
    assert layout.partner(3) == 7
    assert layout.partner(7) == 3


def test_parameters_come_from_the_own_half_while_it_is_there() -> None:
    layout = Layout(tensor=1, data=4, pipeline=1)
    assert layout.sources(3, (0, 1, 2, 3)) == [2, 3]
    assert layout.sources(3, (0, 1, 3)) == [0, 3]
    with pytest.raises(LookupError, match="shard 1"):
        layout.sources(0, (0, 2))


def test_odd_group_cannot_hold_two_copies() -> None:
    with pytest.raises(ValueError, match="3 data-parallel ranks cannot hold 2 copies"):
        Layout(tensor=1, data=3, pipeline=1)


@given(st.integers(1, 8), st.integers(1, 8))
def test_shares_cover_the_global_batch_once(active: int, per_rank: int) -> None:
    parts = shares(per_rank * 8, tuple(range(active)))
    assert [index for part in parts.values() for index in part] == list(range(per_rank * 8))
    assert max(map(len, parts.values())) - min(map(len, parts.values())) <= 1


def test_first_ranks_do_one_more_when_it_does_not_come_out_even() -> None:
    assert [len(part) for part in shares(64, (0, 1, 3)).values()] == [22, 21, 21]
