"""The arithmetic of replica groups, against the examples of docs/protocols/mindio.md §4."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from mindio_ttp._replicas import Group, Replicas, make_group


def without(*lost: int) -> Callable[[int], bool]:
    return lambda rank: rank not in lost


@pytest.mark.parametrize(("lost", "chosen"), [(2, [0, 1]), (1, [0, 3]), (0, [2, 1]), (3, [0, 1])])
def test_complete_copy_of_four_ranks_and_two_copies(lost: int, chosen: list[int]) -> None:
    assert make_group([3, 1, 0, 2], 2, 0).complete_copy(without(lost)) == chosen


def test_no_copy_without_both_partners() -> None:
    assert make_group(range(4), 2, 0).complete_copy(without(0, 2)) is None


def test_partner_wraps() -> None:
    group = make_group(range(6), 2, 0)
    assert [group.partner(r, without(r)) for r in range(6)] == [3, 4, 5, 0, 1, 2]


def test_partner_of_three_copies_is_the_first_usable() -> None:
    assert make_group(range(6), 3, 0).partner(0, without(0, 2)) == 4


def test_everybody_holds_everything() -> None:
    assert make_group(range(4), 4, 0).complete_copy(without(0)) == [1]


def test_an_odd_group_is_not_refused() -> None:
    assert make_group(range(3), 2, 0).complete_copy(without(0)) == [1]


def test_shifted_layout_pairs_inside_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTP_FRAMEWORK_TYPE", "1")
    assert [Group((0, 1, 2, 3), 2, 1).partner(r, without(r)) for r in range(4)] == [1, 0, None, None]
    assert [Group((0, 1, 2, 3), 2, 2).partner(r, without(r)) for r in range(4)] == [2, 3, 0, 1]


def replicas(world: int, *kinds: list[list[int]]) -> Replicas:
    result = Replicas(world)
    for rank in range(world):
        result.by_rank[rank] = [make_group(g, 2, 0) for kind in kinds for g in kind if rank in g]
    return result


def test_dropped_takes_the_same_position_of_every_group() -> None:
    assert replicas(4, [[0, 2], [1, 3]]).dropped({3}) == {2, 3}


def test_dropped_counts_pure_data_parallel_groups() -> None:
    whole = replicas(8, [list(range(8))])
    for rank in range(8):
        whole.data_parallel[rank] = tuple(range(rank % 2, 8, 2))
    assert whole.dropped({7}) == {6, 7}


def test_consistent_wants_one_size_and_the_whole_world() -> None:
    assert replicas(4, [[0, 2], [1, 3]]).consistent()
    assert not replicas(4, [[0, 1, 2], [3]]).consistent()
    assert not replicas(5, [[0, 2], [1, 3]]).consistent()


def test_one_reporting_rank_per_group_is_enough() -> None:
    some = replicas(4, [[0, 2], [1, 3]])
    some.by_rank = {0: some.by_rank[0], 3: some.by_rank[3]}
    assert some.consistent()


def test_transfers_of_two_kinds() -> None:
    both = replicas(4, [[0, 1, 2, 3]], [[0, 1], [2, 3]])
    assert both.transfers([3], without(3)) == [(0, 1, 3), (1, 2, 3)]
    assert both.transfers([1, 3], without(1, 3)) is None
