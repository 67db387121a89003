"""Machines that cannot have real nodes are told by what they lack, and cost a build server's run nothing."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest

from e2e.bootstrap.machine import Limits
from e2e.bootstrap.problems import SetupError
from e2e.cluster import cgroups
from e2e.kubelets import __main__ as kubelets
from release import image


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that lacks nothing, as far as it is not tried."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(kubelets, "_CAP_SYS_ADMIN", 0)
    monkeypatch.setattr(kubelets, "_capabilities", lambda: 1)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(kubelets, "_TOOLS", ("sh",))
    monkeypatch.setattr(kubelets, "limits", lambda: Limits(2, 64 << 30))
    monkeypatch.setattr(kubelets, "cgroup_problem", str)
    monkeypatch.setattr(kubelets, "namespace_problem", str)


@pytest.mark.usefixtures("able")
def test_a_machine_that_lacks_nothing_is_told_nothing() -> None:
    assert kubelets.missing() == ""


@pytest.mark.usefixtures("able")
def test_what_lacks_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 1000)
        assert "root" in kubelets.missing()
    with monkeypatch.context() as patched:
        patched.setattr(kubelets, "_TOOLS", ("sh", "no-such-tool"))
        assert kubelets.missing() == "no-such-tool is not there"
    with monkeypatch.context() as patched:
        patched.setattr(kubelets, "limits", lambda: Limits(2, 1 << 30))
        assert "6 GiB" in kubelets.missing()


def test_cgroups_of_another_version_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cgroups, "CGROUPS", tmp_path)
    assert "version 1" in kubelets.cgroup_problem()


def test_refused_namespaces_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kubelets, "cache_directory", lambda: tmp_path)
    monkeypatch.setattr(kubelets, "_APART", ("sh", "-c", "echo unshare: not permitted >&2; exit 1"))
    assert "unshare: not permitted" in kubelets.namespace_problem()


def test_namespaces_that_hang_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kubelets, "cache_directory", lambda: tmp_path)

    def hangs(command: list[str], **_: object) -> None:
        raise subprocess.TimeoutExpired(command, 20)

    monkeypatch.setattr(subprocess, "run", hangs)
    assert "within" in kubelets.namespace_problem()


@pytest.mark.parametrize(("words", "code"), [(["--short"], 0), ([], 1)])
def test_the_short_half_leaves_out_with_a_reason(
    words: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kubelets, "missing", lambda: "they need root with CAP_SYS_ADMIN")
    assert kubelets.main(words) == code
    assert "real kubelets are left out: they need root" in capsys.readouterr().err


@pytest.mark.usefixtures("able")
def test_what_cannot_be_built_costs_the_short_half_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_environment: object) -> Path:
        raise SetupError("the module proxy does not answer")

    monkeypatch.setattr(kubelets, "prepare", fails)
    assert kubelets.main(["--short"]) == 0
    assert "the module proxy does not answer" in capsys.readouterr().err


def test_skipped_scenarios_tell_what_the_short_half_came_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kubelets.OUTCOME, raising=False)
    assert kubelets.why_skipped() == "real nodes: make e2e PROVIDER=kubelets"
    monkeypatch.setenv(kubelets.OUTCOME, "real kubelets are left out:\nfetching the sources of cni failed\n")
    assert kubelets.why_skipped().endswith("before: real kubelets are left out: fetching the sources of cni failed")


def test_what_one_run_prepared_another_one_keeps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nodes go on using it; only what a dead process left is removed."""
    monkeypatch.setattr(image, "cache", lambda: tmp_path)
    alive, dead = tmp_path / f"kubelets-{os.getppid()}", tmp_path / "kubelets-4194305"  # no process has such a number
    for directory in (alive, dead):
        directory.mkdir()
    own = kubelets.own_directory()
    assert alive.is_dir()
    assert not dead.exists()
    assert own not in {alive, dead}
