"""Two set-ups on one cache: who needs Python only does not wait until another one has built the control plane."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from e2e.bootstrap import environment, setup


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HAJOB_CACHE", str(tmp_path))
    return tmp_path


def test_python_alone_does_not_wait_for_binaries(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(environment, "is_complete", lambda: bool(made))
    monkeypatch.setattr(environment, "make", lambda: made.append("environment"))
    with (cache / "binaries.lock").open("w") as building:
        fcntl.flock(building, fcntl.LOCK_EX)
        setup.set_up(cluster=False)
    assert made == ["environment"]


def test_what_another_set_up_has_made_is_not_made_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was made while this one waited for its turn."""
    looks = iter([False, False, True])
    monkeypatch.setattr(environment, "is_complete", lambda: next(looks))
    monkeypatch.setattr(environment, "make", lambda: pytest.fail("made twice"))
    setup.set_up(cluster=False)
