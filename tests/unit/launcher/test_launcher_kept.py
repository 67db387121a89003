"""Files of output: one name for one process, bounded in attempts and processes, each rank its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainer_sidecar.launcher import kept, plogs


@pytest.mark.parametrize("process", [kept.KeptProcess(3, 17, 0), kept.KeptProcess(10, 1, 2)])
def test_a_name_tells_its_process(process: kept.KeptProcess) -> None:
    assert kept.parse_file_name(kept.file_name(process)) == process


@pytest.mark.parametrize("name", ["rank-3.17.log.1", "rank-.1.log", "rank-3.log", "rank-3.1.2.3.log", "notes", ""])
def test_other_names_are_nobodys(name: str) -> None:
    assert kept.parse_file_name(name) is None


def make(directory: Path, *names: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).touch()


def test_old_attempts_of_a_rank_go_others_stay(tmp_path: Path) -> None:
    for attempt in range(1, 11):
        make(tmp_path / str(attempt), "rank-1.1.log", "rank-1.1.log.1", "rank-10.1.log")
    make(tmp_path / "notes", "rank-1.1.log")
    kept.delete_beyond_limits(str(tmp_path), rank=1, attempt=10, attempt_limit=3, node="0")
    left = {path.parent.name for path in tmp_path.glob("*/rank-1.*")}
    assert left == {"1", "8", "9", "10", "notes"}, "the first attempt shows what the others repeat"
    assert len(list(tmp_path.glob("*/rank-10.*"))) == 10
    kept.delete_beyond_limits(str(tmp_path), rank=10, attempt=10, attempt_limit=3, node="0")
    assert {path.name for path in tmp_path.iterdir()} == {"1", "8", "9", "10", "notes"}


def test_of_one_attempt_the_newest_processes_are_kept(tmp_path: Path) -> None:
    make(tmp_path / "1", *(f"rank-1.{number}.log" for number in range(1, 40)), "rank-1.2.log.1", "rank-2.1.log")
    kept.delete_beyond_limits(str(tmp_path), rank=1, attempt=1, attempt_limit=5, node="0")
    assert [process.incarnation for process in kept.kept_processes(str(tmp_path / "1"), 1)] == list(range(21, 40))
    assert not (tmp_path / "1" / "rank-1.2.log.1").exists()
    assert (tmp_path / "1" / "rank-2.1.log").exists()


def test_a_directory_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    kept.delete_beyond_limits(str(tmp_path / "none"), rank=0, attempt=1, attempt_limit=5, node="0")


def test_plogs_go_with_the_output_of_their_attempt(tmp_path: Path) -> None:
    for attempt in range(1, 11):
        for node in ("0", "1"):
            place = Path(plogs.directory_of_node(str(tmp_path), str(attempt), node)) / "debug" / "plog"
            place.mkdir(parents=True)
            (place / "plog-1_2.log").touch()
    kept.delete_beyond_limits(str(tmp_path), rank=1, attempt=10, attempt_limit=3, node="0")
    left = {number for number in range(1, 11) if (tmp_path / str(number) / "worker-0").exists()}
    assert left == {1, 8, 9, 10}
    assert all((tmp_path / str(number) / "worker-1").exists() for number in range(1, 11)), "each node deletes its own"


def test_the_oldest_plogs_of_an_attempt_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plogs, "FILES_LIMIT", 2)
    place = Path(plogs.directory_of_node(str(tmp_path), "1", "0")) / "run" / "plog"
    place.mkdir(parents=True)
    for age, name in enumerate(("new", "middle", "old")):
        (place / name).touch()
        os.utime(place / name, (1000 - age, 1000 - age))
    kept.delete_beyond_limits(str(tmp_path), rank=0, attempt=1, attempt_limit=5, node="0")
    assert sorted(one.name for one in place.iterdir()) == ["middle", "new"]


def test_a_rank_is_told_where_its_plogs_go(tmp_path: Path) -> None:
    given = {"HAJOB_ATTEMPT": "2", "HAJOB_NODE_RANK": "3"}
    made = plogs.add_variable(given, str(tmp_path))
    assert made[plogs.VARIABLE] == str(tmp_path / "2" / "worker-3" / "process_log")
    assert not list(tmp_path.iterdir()), "a start waits for no volume"
    plogs.make_directory(made[plogs.VARIABLE])
    plogs.make_directory(made[plogs.VARIABLE])
    assert Path(made[plogs.VARIABLE]).is_dir()
    assert plogs.add_variable({**given, plogs.VARIABLE: "/own"}, str(tmp_path))[plogs.VARIABLE] == "/own"
    assert plogs.add_variable(given, "/proc/none")[plogs.VARIABLE].startswith("/proc/none")
    plogs.make_directory("/proc/none")
