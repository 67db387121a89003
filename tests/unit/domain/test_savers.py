"""Whose stacks show that a rank saves or evaluates."""

from __future__ import annotations

import pytest

from hajob.domain.savers import DEFAULT_SAVERS, compile_savers


@pytest.mark.parametrize(
    "line",
    [
        'File "/w/megatron/training/checkpointing.py", line 5 in save_checkpoint',
        'File "training.py", line 9 in save_checkpoint_and_time',
        'File "/w/mindformers/core/callback.py", line 3 in _save_ckpt',
        'File "/w/megatron/core/dist_checkpointing/strategies/async_utils.py", line 3 in save',
        'File "/p/torch/distributed/checkpoint/state_dict_saver.py", line 3 in save',
        'File "training.py", line 9 in maybe_finalize_async_save',
        'File "training.py", line 9 in evaluate_and_print_results',
        'File "callback.py", line 9 in _do_eval',
    ],
)
def test_a_rank_that_saves_or_evaluates_is_known_by_its_stack(line: str) -> None:
    assert compile_savers(DEFAULT_SAVERS).search(line)


@pytest.mark.parametrize(
    "line", ['File "schedules.py", line 7 in forward_step', 'File "dist.py", line 2 in all_reduce']
)
def test_a_rank_in_a_collective_does_not_save(line: str) -> None:
    assert not compile_savers(DEFAULT_SAVERS).search(line)
    assert not compile_savers("").search(line)


def test_the_list_is_the_admins() -> None:
    mine = compile_savers("flush_to_store, my_project/saving/")
    assert mine.search('File "x.py", line 2 in flush_to_store')
    assert mine.search('File "/w/my_project/saving/io.py", line 2 in go')
    assert not mine.search('File "x.py", line 2 in flush_to_store_later')
    assert not mine.search('File "x.py", line 2 in save_checkpoint')


@pytest.mark.parametrize("listed", ["a b", "(a+)+", "a*b", "-x", "*"])
def test_a_name_that_is_none_is_refused(listed: str) -> None:
    with pytest.raises(ValueError, match="is no name of a function"):
        compile_savers(listed)
