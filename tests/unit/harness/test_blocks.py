"""No two rigs of a run have the same addresses, however long one of them lasts."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.harness import blocks


def test_a_rig_that_lasts_keeps_its_blocks(tmp_path: Path) -> None:
    lasting = blocks.claim(tmp_path, 6)
    for _ in range(60):
        first = blocks.claim(tmp_path, 6)
        assert not set(range(first, first + 6)) & set(range(lasting, lasting + 6))
        assert first + 6 <= blocks.LAST + 1
        blocks.give_back(tmp_path, first)


def test_a_block_that_was_given_back_rests(tmp_path: Path) -> None:
    first = blocks.claim(tmp_path, 6)
    blocks.give_back(tmp_path, first)
    assert blocks.claim(tmp_path, 6) != first


def test_no_blocks_left_is_said(tmp_path: Path) -> None:
    blocks.claim(tmp_path, 60)
    with pytest.raises(blocks.NoBlocksError, match="no 60 blocks"):
        blocks.claim(tmp_path, 60)
