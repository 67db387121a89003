"""When the volume of the checkpoints counts as full, and what is told of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainer_sidecar.agent.report.volume import FULL_BYTES, full_volume_problems, size_in_words

BLOCK = 4096
TIB = 1 << 40


def sizes(free: int, whole: int = TIB, files: int = 1000, free_files: int = 900) -> os.statvfs_result:
    """Of a volume with so many free bytes for a user; root would have some more."""
    blocks = (whole // BLOCK, (free + (1 << 30)) // BLOCK, free // BLOCK)
    return os.statvfs_result((BLOCK, BLOCK, *blocks, files, free_files + 5, free_files, 0, 255))


def told(found: os.statvfs_result) -> list[tuple[str, str]]:
    return [(one.code, one.message) for one in full_volume_problems(Path("/ckpt"), lambda _: found)]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (sizes(0), "0 B of 1.0 TiB are free"),
        (sizes(FULL_BYTES - BLOCK), "256 MiB of 1.0 TiB are free"),
        (sizes(TIB // 2, files=4096, free_files=0), "none of its 4096 files is free"),
    ],
)
def test_a_full_volume_is_told_with_its_numbers(found: os.statvfs_result, words: str) -> None:
    assert told(found) == [("CheckpointVolumeFull", f"the volume of checkpoint.path (/ckpt) is full: {words}")]


@pytest.mark.parametrize(
    "found",
    [
        sizes(FULL_BYTES),
        sizes(TIB // 2, files=0, free_files=0),  # btrfs and many shares count no files
        sizes(0, whole=0),  # a volume without sizes, as of a user-space file system
    ],
)
def test_a_volume_with_room_or_without_sizes_is_not_full(found: os.statvfs_result) -> None:
    assert told(found) == []


def test_a_volume_that_cannot_be_asked_is_not_full() -> None:
    def refuse(directory: Path) -> os.statvfs_result:
        raise PermissionError(13, "Permission denied", str(directory))

    assert full_volume_problems(Path("/ckpt"), refuse) == []


def test_the_volume_of_this_machine_is_asked_for_real(tmp_path: Path) -> None:
    found = full_volume_problems(tmp_path)
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    assert bool(found) == (free < FULL_BYTES)


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 B"), (900, "900 B"), (1 << 20, "1.0 MiB"), (300 << 30, "300 GiB"), (7 << 60, "7168 PiB")]
)
def test_sizes_are_those_of_df(size: int, words: str) -> None:
    assert size_in_words(size) == words
