"""Numbers as the demo says them: always with their unit."""

from __future__ import annotations


def seconds_in_words(milliseconds: int) -> str:
    """A time that an outage takes: 71 ms, 6.2 s."""
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"
