"""Marks of the optimizer update; can a memory error be repaired (docs/protocols/mindio.md §8.2)."""

from __future__ import annotations

import time as clock

_marks: dict[str, int | None] = {"start": None, "end": None}


def _now() -> int:
    return clock.time_ns() // 1000


def tft_set_update_start_time(time: int | None = None) -> None:
    """Remember when the last optimizer update began, in microseconds; now, unless it is said."""
    _marks["start"] = _now() if time is None else time


def tft_set_update_end_time(time: int | None = None) -> None:
    """Remember when the last optimizer update ended, in microseconds; now, unless it is said."""
    _marks["end"] = _now() if time is None else time


def tft_can_do_uce_repair(hbm_error_time: int, start_time: int | None = None, end_time: int | None = None) -> bool:
    """Whether the error lies after both marks, or strictly between start and end; False when one is missing or 0."""
    start = _marks["start"] if start_time is None else start_time
    end = _marks["end"] if end_time is None else end_time
    if not (hbm_error_time and start and end):
        return False
    return hbm_error_time > max(start, end) or start < hbm_error_time < end
