"""What counts as ours on a shared machine, and what is said where nothing can be done."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from e2e.bootstrap import machine
from e2e.bootstrap.machine import GIBIBYTE, Limits, limits, require_disk, require_supported
from e2e.bootstrap.paths import cache_directory
from e2e.bootstrap.problems import SetupError, explain

PROCESSORS = 64
MEMORY = 256 * GIBIBYTE


@pytest.fixture(autouse=True)
def large_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(PROCESSORS)))
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": MEMORY // 4096}.__getitem__)


def in_cgroup(root: Path, membership: str, files: Mapping[str, str]) -> Limits:
    for name, content in files.items():
        file = root / "fs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    own = root / "cgroup"
    own.write_text(membership)
    return limits(root / "fs", own)


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/\n", {}, Limits(PROCESSORS, MEMORY)),
        ("0::/a\n", {"a/cpu.max": "200000 100000", "a/memory.max": "4294967296"}, Limits(2, 4 * GIBIBYTE)),
        ("0::/a\n", {"a/cpu.max": "max 100000", "a/memory.max": "max"}, Limits(PROCESSORS, MEMORY)),
        ("0::/a/b\n", {"a/memory.max": "1073741824", "a/b/memory.max": "max"}, Limits(PROCESSORS, GIBIBYTE)),
        ("0::/a\n", {"a/cpu.max": "50000 100000"}, Limits(1, MEMORY)),
        ("0::/\n", {"memory.max": "2147483648"}, Limits(PROCESSORS, 2 * GIBIBYTE)),  # a container sees its own as root
        (
            "4:memory:/a\n3:cpu,cpuacct:/a\n",
            {
                "memory/a/memory.limit_in_bytes": "4294967296",
                "cpu/a/cpu.cfs_quota_us": "150000",
                "cpu/a/cpu.cfs_period_us": "100000",
            },
            Limits(1, 4 * GIBIBYTE),
        ),
        (
            "4:memory:/\n3:cpu:/a\n",
            {"memory/memory.limit_in_bytes": "9223372036854771712", "cpu/a/cpu.cfs_quota_us": "-1"},
            Limits(PROCESSORS, MEMORY),
        ),
        # version 1 for what it controls, version 2 beside it
        ("4:memory:/a\n0::/a\n", {"memory/a/memory.limit_in_bytes": "1073741824"}, Limits(PROCESSORS, GIBIBYTE)),
    ],
)
def test_the_smallest_limit_above_us_counts(
    tmp_path: Path, membership: str, files: Mapping[str, str], expected: Limits
) -> None:
    assert in_cgroup(tmp_path, membership, files) == expected


def test_no_cgroups_at_all(tmp_path: Path) -> None:
    assert limits(tmp_path, tmp_path / "missing") == Limits(PROCESSORS, MEMORY)


@pytest.mark.parametrize(
    ("system", "architecture", "library", "named"),
    [
        ("Darwin", "arm64", "unknown", "this is Darwin arm64"),
        ("Linux", "x86_64", "musl", "this is Linux x86_64 with musl"),
        ("Linux", "riscv64", "glibc", "this is Linux riscv64"),
    ],
)
def test_another_system_is_told_what_to_do_instead(system: str, architecture: str, library: str, named: str) -> None:
    with pytest.raises(SetupError, match="docker run") as caught:
        require_supported(system, architecture, library)
    assert named in str(caught.value)


def test_supported_systems_pass() -> None:
    require_supported("Linux", "x86_64", "glibc")
    require_supported("Linux", "aarch64", "glibc")


def test_too_little_disk_is_said_before_the_work(tmp_path: Path) -> None:
    require_disk(tmp_path / "new", 0, "Nothing")
    with pytest.raises(SetupError, match=r"A palace needs 1000000\.0 GiB in .* are free there"):
        require_disk(tmp_path, 1e6, "A palace")


def test_a_cache_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="set HAJOB_CACHE to a directory that can"):
        require_disk(tmp_path / "file" / "cache", 0, "Nothing")


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("write /x: no space left on device", "The disk is full"),
        ("dial tcp: lookup proxy: no such host", "set GOPROXY"),
        ("dial tcp 127.0.0.1:9: connect: connection refused", "set GOPROXY"),
        ("link: signal: killed", "want of memory"),
        ("pip: NewConnectionError(...)", "set GOPROXY"),
        ("syntax error", "say why"),
    ],
)
def test_a_failure_says_what_to_do_and_that_it_goes_on(tmp_path: Path, output: str, advice: str) -> None:
    error = str(explain("building x", f"first\n{output}", tmp_path / "x.log", "GOPROXY"))
    assert error.startswith("building x failed:\n    first\n")
    assert advice in error
    assert str(tmp_path / "x.log") in error
    assert error.endswith("it goes on.")


def test_the_cache_is_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAJOB_CACHE", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"


def test_without_a_word_it_is_the_xdg_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HAJOB_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg/hajob"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache/hajob"


def test_without_a_home_it_is_in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HAJOB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != Path("/"))
    for home in ("/nonexistent", ""):
        monkeypatch.setenv("HOME", home)
        assert cache_directory() == machine_checkout() / ".cache"


def machine_checkout() -> Path:
    return Path(machine.__file__).resolve().parents[2]
