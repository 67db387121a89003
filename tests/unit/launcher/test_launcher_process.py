"""Starting, reaping and signalling processes: nothing is left behind by a start that fails, no stranger is hit."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trainer_sidecar.launcher import process


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@pytest.mark.parametrize("call", ["fork", "pipe"])
def test_a_start_that_fails_leaves_no_descriptor_open(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors()
    there_is_room_for = [os.pipe()] if call == "pipe" else []

    def fail() -> tuple[int, int]:
        if there_is_room_for:
            return there_is_room_for.pop()
        raise BlockingIOError(errno.EAGAIN, "there are too many")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(BlockingIOError):
        process.spawn(["true"], {}, "/")
    assert descriptors() == before
