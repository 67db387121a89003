"""What of a scheduler's output is passed on: MindSpore's says of each dead node twice a second that it is timed out."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

from trainer_sidecar.controller_host import scheduler


def passed(lines: Iterable[tuple[float, str]]) -> list[str]:
    """The lines that are passed on of those printed at these times, in seconds."""
    at = 0.0

    def source() -> Iterator[bytes]:
        nonlocal at
        for at, line in lines:
            stamp = f"2026-11-28-05:{int(at) // 60:02}:{int(at) % 60:02}.{int(at * 1000) % 1000:03}.000"
            yield f"[ERROR] DISTRIBUTED(7,7f1c,python):{stamp} [x.cc:548] {line}\n".encode()

    printed = io.BytesIO()
    scheduler.pass_lines(source(), printed, lambda: at)
    return [line.partition("] ")[2].partition("] ")[2] for line in printed.getvalue().decode().splitlines()]


def test_repeated_lines_pass_once_a_minute() -> None:
    dead = [(second / 2, f"The node: {node} is timed out.") for second in range(260) for node in (1, 3)]
    assert sorted(passed(dead)) == ["The node: 1 is timed out."] * 3 + ["The node: 3 is timed out."] * 3


def test_tries_to_gather_the_workers_pass_once_a_minute() -> None:
    tries = [(number / 2, f"Topology build timed out., retry({number}/3600).") for number in range(1, 200)]
    assert passed(tries) == [f"Topology build timed out., retry({number}/3600)." for number in (1, 121)]


def test_every_line_of_its_own_is_passed() -> None:
    lines = [(float(number), f"line {number}") for number in range(2 * scheduler.KNOWN_LINES)]
    assert passed(lines) == [line for _, line in lines]


def test_so_many_lines_are_known() -> None:
    lines = [(0.0, f"line {number}") for number in range(scheduler.KNOWN_LINES + 1)]
    assert passed([*lines, lines[0], lines[-1]]) == [line for _, line in lines] + ["line 0"]
