"""The demo says at its start how long it takes and why, and a build that fails ends it with the set-up's words."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any, cast

import pytest

from e2e.bootstrap import build
from e2e.bootstrap.binaries import BINARIES
from e2e.bootstrap.machine import GIBIBYTE, Limits
from e2e.bootstrap.problems import SetupError
from e2e.cluster.run import Run
from e2e.demo.preparation import Building, announcement

RUN = cast("Run", SimpleNamespace(identity="test"))


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "limits", lambda: Limits(2, 8 * GIBIBYTE))


def test_a_first_demo_says_how_long_and_why() -> None:
    lines = announcement(BINARIES)
    assert "about 9 minutes this time, and 2 from then on" in lines[0]
    assert "kube-apiserver" in lines[1]
    assert "$KUBEBUILDER_ASSETS or on the PATH" in lines[2]


def test_programs_that_are_there_cost_no_time() -> None:
    (line,) = announcement([])
    assert "about 2 minutes" in line
    assert build.minutes(BINARIES[:1]) == 1


def started(program: str, monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> Building:
    real = subprocess.Popen

    def instead(_command: list[str], **options: Any) -> Any:
        return real(["sh", "-c", program], **options)

    monkeypatch.setattr(subprocess, "Popen", instead)
    return Building(RUN, lines.append)


def test_the_lines_of_a_build_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    started("echo 'set-up: building etcd' >&2", monkeypatch, lines).wait()
    assert lines == ["  building etcd"]


def test_a_failed_build_ends_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SetupError, match="no network: set GOPROXY"):
        started("echo 'no network: set GOPROXY' >&2; exit 1", monkeypatch, []).wait()
