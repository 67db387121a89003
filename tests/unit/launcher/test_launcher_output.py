"""Output is cut into lines, kept in bounded files, never waited for."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from trainer_sidecar.launcher import output, progress


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_lines_are_the_same_however_the_bytes_arrive(pieces: list[bytes]) -> None:
    assert cut(pieces) == cut([b"".join(pieces)])


@given(st.lists(st.sampled_from([b"a", b"bc", b"\r", b"\n", b"\r\n"]), max_size=30))
def test_ends_of_all_kinds_may_be_torn_apart(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    assert cut(pieces) == cut([whole]) == cut([whole[place : place + 1] for place in range(len(whole))])


def cut(pieces: list[bytes]) -> list[bytes]:
    cutter = output.Lines()
    return [line for piece in pieces if piece for line in cutter.cut_lines(piece)] + cutter.take_rest()


def test_a_carriage_return_ends_a_line_at_once() -> None:
    """A progress bar writes no line feed for hours, and a rule may look for what stands in it."""
    cutter = output.Lines()
    assert cutter.cut_lines(b" 10% loss: nan\r") == [b" 10% loss: nan"]
    assert cutter.cut_lines(b"\r 20%|##") == []
    assert cutter.cut_lines(b"\r 30%|###\nnext\r\n\r\nlast\n") == [b" 20%|##", b" 30%|###", b"next", b"", b"last"]


def test_a_line_without_end_is_cut() -> None:
    cutter = output.Lines()
    (line,) = cutter.cut_lines(b"x" * (output.MAXIMUM_LINE_BYTES + 10))
    assert len(line) == output.MAXIMUM_LINE_BYTES
    assert cutter.take_rest() == [b"x" * 10]


def test_only_the_last_lines_are_kept() -> None:
    kept = output.LastLines()
    for number in range(100):
        kept.add_line(b"line %d" % number)
    kept.add_line(b"   ")
    assert len(kept.as_texts()) == output.KEPT_LINES
    assert kept.as_texts()[-1] == "line 99"


def test_a_file_is_bounded_and_nothing_is_overwritten(tmp_path: Path) -> None:
    complaints: list[str] = []
    path = tmp_path / "3" / "rank-0.1.log"
    for _ in range(2):  # two launchers, one after the other
        log = output.LogFile(str(path), 100, complaints.append)
        log.append_output(b"a" * 40 + b"\n")
        log.close_file()
    assert path.stat().st_size == 82
    log = output.LogFile(str(path), 100, complaints.append)
    log.append_output(b"b" * 60 + b"\n")
    log.close_file()
    assert path.read_bytes() == b"b" * 60 + b"\n"
    assert path.with_name("rank-0.1.log.1").stat().st_size == 82
    assert complaints == []


def test_a_directory_that_cannot_be_written_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "3").write_text("a file where the directory should be")
    complaints: list[str] = []
    log = output.LogFile(str(tmp_path / "3" / "rank-0.1.log"), 100, complaints.append)
    log.append_output(b"x")
    log.append_output(b"y")
    assert len(complaints) == 1
    assert "rank-0.1.log" in complaints[0]


def test_a_full_disk_is_named_once(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.1.log"
    path.symlink_to("/dev/full")
    complaints: list[str] = []
    log = output.LogFile(str(path), 100, complaints.append)
    for _ in range(3):
        log.append_output(b"x")
    assert len(complaints) == 1
    assert "No space left" in complaints[0]


def test_a_slow_reader_costs_output_never_time() -> None:
    gate = threading.Event()
    written: list[bytes] = []

    def slow(data: bytes) -> None:
        gate.wait()
        written.append(data)

    writer = output.Writer("test", maximum_bytes=100)
    for _ in range(50):
        writer.queue_output(slow, b"0123456789")
    assert not writer.wait_until_written(0.01)
    gate.set()
    assert writer.wait_until_written(10)
    writer.queue_output(slow, b"end")
    assert writer.wait_until_written(10)
    everything = b"".join(written)
    assert everything.startswith(b"0123456789" * 10 + b"hajob: 400 bytes of output dropped")
    assert everything.endswith(b"end")


def test_a_call_is_never_dropped() -> None:
    gate, closed = threading.Event(), threading.Event()

    def slow(_: bytes) -> None:
        gate.wait()

    writer = output.Writer("test", maximum_bytes=100)
    writer.queue_output(slow, b"0" * 90)
    writer.queue_output(slow, b"1" * 20)  # dropped, which is noted with the next line: more than fits
    writer.queue_output(slow, b"2" * 9)
    writer.call_in_order(closed.set)
    gate.set()
    assert writer.wait_until_written(10)
    assert closed.is_set()


def test_when_the_reader_is_gone_output_goes_to_the_container() -> None:
    read, write = os.pipe()
    container_read, container_write = os.pipe()
    os.close(read)
    target = output.Descriptor(write, output.Descriptor(container_write))
    target.write_all(b"hello")
    assert os.read(container_read, 100) == b"hello"
    target.close()
    target.write_all(b"again")
    assert os.read(container_read, 100) == b"again"
    os.close(container_read)
    os.close(container_write)


def test_the_line_of_a_step() -> None:
    line = b" iteration        5/     100 | consumed samples: 80 | lm loss: 1.234E+00 |"
    assert progress.parse_step_line(line) == (5, 100)
    assert progress.parse_step_line(b"saving checkpoint at iteration 5") is None
