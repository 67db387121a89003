"""A line that tells of a fault is told until the rank has trained on."""

from __future__ import annotations

from dataclasses import replace

from trainer_sidecar.agent.supervise.processes import ErrorLines
from trainer_sidecar.agent.supervise.ranks import RankProcess
from trainer_sidecar.launcher import endings
from trainer_sidecar.launcher.protocol import ProcessName

LINE = "RuntimeError: UCE ERROR"


def process(line: str = "", *, start: int = 0) -> RankProcess:
    return RankProcess(3, ProcessName(1, start), 100, True, 0, False, 0, notices={endings.FAULT: line} if line else {})


def test_a_line_is_told_until_the_rank_has_trained_on() -> None:
    lines = ErrorLines()
    lines.note_process(process(), 5)
    assert lines.error_of_rank(3, 5) == ""
    lines.note_process(process(LINE), 5)
    assert [lines.error_of_rank(3, step) for step in (5, 6, 7)] == [LINE, LINE, ""]
    lines.note_process(process(LINE), 7)
    assert lines.error_of_rank(3, 7) == "", "the launcher says it with every message"
    lines.note_process(process("RuntimeError: HCCL OP RETRY FAILED"), 7)
    assert lines.error_of_rank(3, 7).endswith("FAILED")


def test_a_successor_has_printed_nothing() -> None:
    lines = ErrorLines()
    lines.note_process(process(LINE), None)
    assert lines.error_of_rank(3, None) == LINE
    lines.note_process(process(start=1), None)
    assert lines.error_of_rank(3, None) == ""


def test_the_traceback_travels_with_its_line() -> None:
    lines = ErrorLines()
    traceback = [
        "Traceback (most recent call last):",
        '  File "train.py", line 7, in step',
        "FileNotFoundError: corpus",
    ]
    told = process(traceback[-1])
    lines.note_process(
        replace(told, last_lines=("iteration 5", "Traceback (most recent call last): older", *traceback)), 5
    )
    assert lines.error_of_rank(3, 5).splitlines() == traceback


def test_a_line_without_a_traceback_travels_alone() -> None:
    lines = ErrorLines()
    lines.note_process(replace(process(LINE), last_lines=("iteration 5", LINE, "iteration 6")), 5)
    assert lines.error_of_rank(3, 5) == LINE
