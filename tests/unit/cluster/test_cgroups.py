"""A run's cgroups go with the run, however it ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.cluster import cgroups, reaper


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two hierarchies; of these files only cpuset's must be filled in."""
    for hierarchy in ("cpuset", "memory"):
        (tmp_path / "cgroup" / hierarchy).mkdir(parents=True)
    for file in ("cpuset.cpus", "cpuset.mems"):
        (tmp_path / "cgroup" / "cpuset" / file).write_text("0-1")
    (tmp_path / "cgroup" / "cpu").symlink_to("cpuset")
    return tmp_path / "cgroup"


def test_everything_below_a_group_is_removed(root: Path) -> None:
    for name in ("hajob-run", "hajob-run/0", "hajob-run/0/pod"):
        (root / "memory" / name).mkdir()
    (root / "memory" / "hajob-other").mkdir()
    assert cgroups.remove("hajob-run", root) == ""
    assert [path.name for path in (root / "memory").iterdir()] == ["hajob-other"]


def test_what_cannot_be_removed_is_told(root: Path) -> None:
    (root / "memory" / "hajob-run").mkdir()
    (root / "memory" / "hajob-run" / "tasks").write_text("1")
    assert "hajob-run" in cgroups.remove("hajob-run", root)


def test_a_group_that_is_made_can_run_something(root: Path) -> None:
    (root / "cpuset" / "hajob-run").mkdir()
    (root / "cpuset" / "hajob-run" / "cpuset.cpus").write_text("")
    cgroups.make("hajob-run", root)
    assert (root / "cpuset" / "hajob-run" / "cpuset.cpus").read_text() == "0-1"
    assert (root / "memory" / "hajob-run").is_dir()


def test_a_machine_without_cgroups_has_none_to_remove(tmp_path: Path) -> None:
    assert cgroups.remove("hajob-run", tmp_path / "nothing") == ""


def test_a_runs_end_removes_its_cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the end that `make down` makes of a run whose reaper was killed."""
    asked: list[str] = []

    def remove(name: str, **_: object) -> str:
        asked.append(name)
        return ""

    monkeypatch.setattr(cgroups, "remove", remove)
    assert reaper.finish("abc-1", tmp_path / "gone", tmp_path)
    assert asked == ["hajob-abc-1"]
