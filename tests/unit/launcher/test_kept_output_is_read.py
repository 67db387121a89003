"""A rank's kept output, read again: which process, which attempt, how many lines, and on and on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_sidecar import logs


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Rank 3 ran once in attempt 1, twice in attempt 2, one of them for long; rank 30 is somebody else."""
    kept = {
        "1/rank-3.1.log": "first\n",
        "2/rank-3.2.log.1": "a\nb\n",
        "2/rank-3.2.log": "c\nd\n",
        "2/rank-3.4.1.log": "e\nf\n",
        "2/rank-30.2.log": "not mine\n",
        "2/notes": "nor this\n",
    }
    for name, text in kept.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


class Show:
    """What a reader sees."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.text = ""
        self.said: list[str] = []

    def __call__(self, *words: str, wait: Callable[[], bool] = lambda: False) -> str:
        self.text, self.said = "", []
        arguments = logs.build_parser().parse_args(["--rank", "3", *words])

        def write(data: bytes) -> None:
            self.text += data.decode()

        logs.print_requested(
            arguments, self.directory, logs.Printer(self.directory, arguments.rank, write, self.said.append), wait
        )
        return self.text


@pytest.fixture
def show(directory: Path) -> Show:
    return Show(directory)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "e\nf\n"),
        (("--previous",), "a\nb\nc\nd\n"),
        (("--attempt", "1"), "first\n"),
        (("--attempt", "2"), "a\nb\nc\nd\ne\nf\n"),
        (("--attempt", "2", "--tail", "3"), "d\ne\nf\n"),
        (("--attempt", "2", "--tail", "5"), "b\nc\nd\ne\nf\n"),
        (("--previous", "--tail", "1"), "d\n"),
        (("--tail", "0"), ""),
        (("--rank", "30"), "not mine\n"),
    ],
)
def test_what_was_asked_for_is_shown(show: Show, words: tuple[str, ...], text: str) -> None:
    assert show(*words) == text


def test_a_heading_names_each_process(show: Show, directory: Path) -> None:
    show("--attempt", "2")
    assert show.said == [
        f"==> rank 3, attempt 2, incarnation 2, {directory}/2/rank-3.2.log <==",
        f"==> rank 3, attempt 2, incarnation 4, {directory}/2/rank-3.4.1.log <==",
    ]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--attempt", "7"), "kept are 1, 2"),
        (("--attempt", "1", "--previous"), "before this one: ==> rank 3, attempt 1"),
        (("--rank", "4"), "nothing is kept of rank 4"),
    ],
)
def test_what_is_not_kept_is_named(show: Show, words: tuple[str, ...], text: str) -> None:
    with pytest.raises(logs.NotKeptError, match=text):
        show(*words)


def test_it_follows_through_a_full_file_and_a_restart(show: Show, directory: Path) -> None:
    file = directory / "2/rank-3.4.1.log"

    def steps() -> Iterator[None]:
        with file.open("a") as more:
            more.write("g\n")
        yield
        with file.open("a") as more:
            more.write("h\n")
        file.rename(f"{file}.1")
        file.write_text("i\n")
        yield
        (directory / "3").mkdir()
        (directory / "3/rank-3.5.log").write_text("j\n")
        yield from (None for _ in range(5))
        (directory / "3/rank-3.5.log").write_text("j\nk\n")
        yield

    acts = steps()
    assert show("--follow", "--tail", "1", wait=lambda: next(acts, False) is None) == "f\ng\nh\ni\nj\nk\n"
    assert len(show.said) == 2


def test_the_last_lines_before_a_file_was_full_are_shown(
    show: Show, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = directory / "2/rank-3.4.1.log"
    look = logs.Printer.rotated_file
    looks: list[Path] = []

    def printed_at_the_last_moment(path: Path, opened: BinaryIO) -> BinaryIO | None:
        looks.append(path)
        if len(looks) == 2:  # the reader has seen the end of the file, and looks for the next one
            with file.open("a") as more:
                more.write("g\n")
            file.rename(f"{file}.1")
            file.write_text("h\n")
        return look(path, opened)

    monkeypatch.setattr(logs.Printer, "rotated_file", staticmethod(printed_at_the_last_moment))
    assert show("--follow", wait=lambda: len(looks) < 3) == "e\nf\ng\nh\n"


def test_it_waits_for_the_first_line(show: Show, directory: Path) -> None:
    waits = iter([True, True, False])

    def wait() -> bool:
        (directory / "2/rank-5.2.log").write_text("at last\n")
        return next(waits)

    assert show("--rank", "5", "--follow", wait=wait) == "at last\n"


LINES = st.lists(st.text("ab", max_size=3), max_size=6)


@given(lines=LINES, tail=st.integers(0, 8), whole=st.booleans())
def test_the_last_lines_are_those_of_the_text(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], tail: int, whole: bool
) -> None:
    path = tmp_path_factory.mktemp("tail") / "file"
    text = "\n".join(lines) + ("\n" if whole and lines else "")
    path.write_text(text)
    offset, count = logs.offset_of_last_lines(path, tail)
    wanted = text.splitlines(keepends=True)[-tail:] if tail else []
    assert (text[offset:], count) == ("".join(wanted), len(wanted))


def test_as_a_program(directory: Path) -> None:
    environment = {**os.environ, "HAJOB_OUTPUT_DIR": str(directory)}

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "trainer_sidecar.logs", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    shown = call("--rank", "3", "--follow")  # standard input has ended: nobody follows
    assert (shown.returncode, shown.stdout) == (0, "e\nf\n")
    missing = call("--rank", "3", "--attempt", "9")
    assert missing.returncode == logs.NOT_KEPT
    assert "kept are 1, 2" in missing.stderr
    assert str(directory) in missing.stderr


STEP = " iteration        5/     100 | consumed samples: 5\n"


@pytest.mark.parametrize(
    ("files", "rank"),
    [
        ({"1/rank-7.1.log": STEP, "1/rank-0.1.log": STEP}, 7),
        ({"1/rank-7.1.log": "quiet\n", "1/rank-0.1.log": STEP, "1/rank-5.1.log": STEP}, 0),
        ({"1/rank-7.1.log": "quiet\n", "1/rank-2.1.log": STEP, "1/rank-5.1.log": STEP}, 5),
        ({"1/rank-7.1.log": "new\n", "1/rank-7.1.log.1": STEP, "1/rank-0.1.log": STEP}, 7),
        ({"1/rank-0.1.log": STEP, "2/rank-3.2.log": "starts\n"}, 7),
        ({"1/rank-0.1.log": STEP, "1/rank-0.1.1.log": "started again\n"}, 7),
        ({}, 7),
    ],
)
def test_who_prints_steps_is_found(tmp_path: Path, files: dict[str, str], rank: int) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert logs.rank_that_prints(tmp_path, 7) == rank
    assert logs.rank_that_prints(tmp_path / "absent", 7) == 7


def test_a_guess_is_left_for_who_prints(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "rank-0.1.log").write_text(STEP)
    done = subprocess.run(
        [sys.executable, "-m", "trainer_sidecar.logs", "--rank=7"],
        env={**os.environ, "HAJOB_OUTPUT_DIR": str(tmp_path), logs.PRINTING_VARIABLE: "yes"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, "rank 0" in done.stderr) == (STEP, True)
