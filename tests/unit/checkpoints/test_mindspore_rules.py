"""MindSpore's layout: a file per rank, filled from whoever holds the same shard."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hajob.domain.checkpoints import RefusalReason
from hajob.domain.layout import Layout
from tests.unit.checkpoints.fake_directory import FakeDirectory
from trainer_sidecar.checkpoints.mindspore import evaluate_ranks, ranks_with_same_shard, read_restore_list, step_of_key
from trainer_sidecar.checkpoints.verdict import Copy, Look

LAYOUT = Layout(num_nodes=4, chips_per_node=2, tensor=2)  # ranks r and r + 4 hold the same shard


def path(rank: int, step: int, suffix: str = "ckpt") -> str:
    return f"checkpoint/rank_{rank}/llama_rank_{rank}-{step}_1.{suffix}"


def saved(*steps: int, ranks: range = range(8), strategies: bool = True, meta: bool = False) -> FakeDirectory:
    directory = FakeDirectory()
    for rank in ranks:
        for step in steps:
            directory.looks[path(rank, step)] = Look()
        if meta:
            content = {"last_epoch": steps[-1], "last_step": 1, "last_ckpt_file": path(rank, steps[-1])[18:]}
            directory.texts[f"checkpoint/rank_{rank}/meta.json"] = json.dumps(content)
    if strategies:
        for rank in range(8):
            directory.looks[f"strategy/ckpt_strategy_rank_{rank}.ckpt"] = Look()
    return directory


def test_the_newest_one_that_every_rank_has() -> None:
    verdict = evaluate_ranks(saved(4, 5), LAYOUT)
    assert (verdict.name, verdict.step, verdict.refused, verdict.is_tracked) == ("5_1", 5, (), True)
    bare = FakeDirectory({f"rank_{rank}/net-1_77.ckpt": Look() for rank in range(8)})
    assert (evaluate_ranks(bare, LAYOUT).name, evaluate_ranks(bare, LAYOUT).step) == ("1_77", 77)


def test_the_last_checkpoint_of_mindio_is_filled_by_partners() -> None:
    directory = saved(5, ranks=range(4))
    del directory.looks[path(1, 5)]
    directory.looks[path(5, 5)] = Look()  # rank 1 had died: its partner saved
    verdict = evaluate_ranks(directory, LAYOUT)
    assert verdict.step == 5
    assert verdict.copies == tuple(Copy(path(a, 5), path(b, 5)) for a, b in [(5, 1), (0, 4), (2, 6), (3, 7)])


def test_a_cut_off_file_is_replaced_by_the_partners() -> None:
    directory = saved(5)
    directory.looks[path(6, 5)] = Look(whole=False)
    assert evaluate_ranks(directory, LAYOUT).copies == (Copy(path(2, 5), path(6, 5)),)


def cut_both(directory: FakeDirectory) -> None:
    directory.looks[path(2, 5)] = directory.looks[path(6, 5)] = Look(whole=False)


def lose_both_for_ever(directory: FakeDirectory) -> None:
    directory.drop(*(path(rank, step) for rank in (2, 6) for step in (3, 4, 5)))
    directory.looks |= {path(rank, step): Look() for rank in (0,) for step in (4,)}


def lose_both(directory: FakeDirectory) -> None:
    directory.drop(path(2, 5), path(6, 5))


def unfinished_both(directory: FakeDirectory) -> None:
    lose_both(directory)
    directory.looks[path(2, 5, "tmp")] = Look()


@pytest.mark.parametrize(
    ("damage", "reason", "left"),
    [
        (cut_both, RefusalReason.TRUNCATED_FILE, 4),
        (lose_both, RefusalReason.MIXED_STEPS, 4),
        (unfinished_both, RefusalReason.TEMPORARY_LEFT_BEHIND, 4),
        (lose_both_for_ever, RefusalReason.MISSING_SHARD, -1),
    ],
)
def test_what_nobody_can_give_refuses_the_checkpoint(damage: object, reason: RefusalReason, left: int) -> None:
    directory = saved(3, 4, 5)
    damage(directory)  # type: ignore[operator]
    verdict = evaluate_ranks(directory, LAYOUT)
    assert (verdict.refused[0].name, verdict.refused[0].reason, verdict.step) == ("5_1", reason, left)
    if left < 0:
        assert set(verdict.aside) == {one for one in directory.looks if one.startswith("checkpoint")}


def test_the_training_is_told_of_the_older_one() -> None:
    directory = saved(4, 5, meta=True)
    assert evaluate_ranks(directory, LAYOUT).is_tracked
    lose_both(directory)
    writes = evaluate_ranks(directory, LAYOUT).writes
    assert writes is not None
    assert len(writes) == 8
    told = json.loads(writes["checkpoint/rank_2/meta.json"])
    assert told == {"last_epoch": 4, "last_step": 1, "last_ckpt_file": "llama_rank_2-4_1.ckpt"}


def test_refused_files_are_put_out_of_sight() -> None:
    """With MindIO switched on MindFormers loads what was written last, and does not ask `meta.json`."""
    directory = saved(4, 5)
    lose_both(directory)
    again = path(3, 5).replace("rank_3-", "rank_3_1-")  # the same step, saved once more by a successor
    directory.looks[again] = Look()
    verdict = evaluate_ranks(directory, LAYOUT)
    assert verdict.step == 4
    assert set(verdict.aside) == {again} | {path(rank, 5) for rank in range(8) if rank not in (2, 6)}
    assert not verdict.is_tracked


def test_of_files_saved_again_the_later_one_counts() -> None:
    directory = saved(5)
    names = [path(3, 5).replace("rank_3-", f"rank_3{number}-") for number in ("_2", "_10", "_9")]
    directory.looks |= {name: Look(whole=False) for name in names}
    assert evaluate_ranks(directory, LAYOUT).copies == (Copy(path(7, 5), names[1]),)
    directory.looks[names[1]] = Look()
    assert evaluate_ranks(directory, LAYOUT).copies == ()


def test_a_file_without_what_others_hold_stands_for_no_other() -> None:
    directory = saved(4, 5)
    directory.looks[path(2, 5)] = Look(partial=True)
    assert evaluate_ranks(directory, LAYOUT).step == 5
    directory.drop(path(6, 5))
    verdict = evaluate_ranks(directory, LAYOUT)
    assert (verdict.step, [one.name for one in verdict.refused]) == (4, ["5_1"])


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"last_ckpt_file": 3}', '{"last_ckpt_file": "llama_rank_0-9_1.ckpt"}']
)
def test_a_meta_file_that_names_nothing(text: str) -> None:
    directory = saved(5, meta=True)
    directory.texts["checkpoint/rank_0/meta.json"] = text
    verdict = evaluate_ranks(directory, LAYOUT)
    assert [(one.name, one.reason) for one in verdict.refused] == [
        ("checkpoint/rank_0/meta.json", RefusalReason.WRONG_TRACKER)
    ]
    assert (verdict.step, list(verdict.writes or {})) == (5, ["checkpoint/rank_0/meta.json"])


def test_strategy_files() -> None:
    dumped = saved(5, ranks=range(4), strategies=False)
    assert evaluate_ranks(dumped, LAYOUT).refused[0].reason == RefusalReason.MISSING_STRATEGY
    dumped.looks["strategy/ckpt_strategy.ckpt"] = Look()  # merged into one
    assert evaluate_ranks(dumped, LAYOUT).step == 5
    assert evaluate_ranks(saved(5, strategies=False), LAYOUT).step == 5
    partly = saved(5)
    partly.sizes["strategy/ckpt_strategy_rank_3.ckpt"] = 0
    refusal = evaluate_ranks(partly, LAYOUT).refused[0]
    assert (refusal.reason, refusal.detail) == (RefusalReason.MISSING_STRATEGY, "rank 3")


def group(*ranks: int, packed: bool) -> bytes:
    """A group_info.pb: one group with a name, and the ranks that hold the same shard."""
    inner = bytes([0x0A, len(ranks), *ranks]) if packed else b"".join(bytes([0x08, rank]) for rank in ranks)
    item = b"\x0a\x04abcd\x12\x02\x08\x00"
    return bytes([0x0A, len(item)]) + item + bytes([0x12, len(inner)]) + inner


@pytest.mark.parametrize("packed", [True, False])
def test_the_trainings_own_relation_counts_before_the_layout(packed: bool) -> None:
    content = group(0, 2, packed=packed)
    assert read_restore_list(content) == (0, 2)
    directory = saved(5)
    directory.drop(path(0, 5))
    directory.contents["checkpoint/rank_0/group_info.pb"] = content
    assert evaluate_ranks(directory, LAYOUT).copies == (Copy(path(2, 5), path(0, 5)),)
    directory.contents["checkpoint/rank_0/group_info.pb"] = group(3, 2, packed=packed)  # not of this rank
    assert evaluate_ranks(directory, LAYOUT).copies == (Copy(path(4, 5), path(0, 5)),)


@given(st.binary(max_size=64))
def test_any_bytes_as_a_relation_do_no_harm(content: bytes) -> None:
    read_restore_list(content)


def test_partners_share_every_kind_of_shard() -> None:
    layout = Layout(num_nodes=8, chips_per_node=1, expert=2)
    for rank in range(8):
        for other in ranks_with_same_shard(layout, rank):
            assert all(other in layout.holders_of_shard(rank, kind) for kind in layout.copy_kinds)
    assert ranks_with_same_shard(Layout(num_nodes=8, chips_per_node=1, copies=1), 3) == ()


def test_epochs_are_counted_from_one() -> None:
    assert (step_of_key((5, 1)), step_of_key((1, 77)), step_of_key((0, 3))) == (5, 77, 3)


@given(st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
def test_a_checkpoint_is_taken_only_with_every_ranks_shard(lost: set[int], cut: set[int]) -> None:
    directory = saved(5)
    directory.drop(*(path(rank, 5) for rank in lost))
    for rank in cut - lost:
        directory.looks[path(rank, 5)] = Look(whole=False)
    verdict = evaluate_ranks(directory, LAYOUT)
    gone = lost | cut
    complete = all({rank, (rank + 4) % 8} - gone for rank in range(8))
    assert (verdict.step == 5) is complete
    if complete:
        for copy in verdict.copies:
            directory.looks[copy.target] = directory.looks[copy.source]
        assert (evaluate_ranks(directory, LAYOUT).step, evaluate_ranks(directory, LAYOUT).copies) == (5, ())
