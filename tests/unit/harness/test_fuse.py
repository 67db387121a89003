"""The fuse in the operator that a test kills: what it counts, and when it burns."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from e2e.harness.crashing_operator import ACKNOWLEDGEMENT, Fuse


class Killed(BaseException):
    """Stands for the death of the process."""


@pytest.fixture(autouse=True)
def _no_death(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(pid: int, number: int) -> None:
        assert (pid, number) == (os.getpid(), signal.SIGKILL)
        raise Killed

    monkeypatch.setattr(os, "kill", kill)


def lay(directory: Path, name: str, *, above: int, acts: int) -> None:
    (directory / "fuse").write_text(json.dumps({"round": name, "above": above, "acts": acts}))


def test_without_a_fuse_nothing_happens(tmp_path: Path) -> None:
    fuse = Fuse(tmp_path)
    fuse.ordered(2)
    fuse.did("create pods job-0")
    assert list(tmp_path.iterdir()) == []


def test_it_counts_from_an_incidents_first_order_and_burns_once(tmp_path: Path) -> None:
    lay(tmp_path, "first", above=1, acts=3)
    fuse = Fuse(tmp_path)
    fuse.did("patch hatrainingjobs/status job")  # of the time before the fault
    fuse.ordered(1)  # repeated on a new stream
    fuse.ordered(2)
    for _ in range(3):
        fuse.did(ACKNOWLEDGEMENT)
    with pytest.raises(Killed):
        fuse.did("create pods job-0")
    assert (tmp_path / "acts").read_text().splitlines() == [
        "first 1 order of incarnation 2",
        f"first 2 {ACKNOWLEDGEMENT}",
        "died first 3 create pods job-0",
    ]
    successor = Fuse(tmp_path)
    for incarnation in (2, 3, 4, 5):
        successor.ordered(incarnation)


def test_a_new_fuse_counts_from_the_beginning(tmp_path: Path) -> None:
    fuse = Fuse(tmp_path)
    lay(tmp_path, "first", above=1, acts=9)
    fuse.ordered(2)
    lay(tmp_path, "second", above=2, acts=1)
    fuse.did("patch hatrainingjobs/status job")
    with pytest.raises(Killed):
        fuse.ordered(3)
