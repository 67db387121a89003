"""The output of containers: plain files, one for each start, written by the container's processes themselves.

No time stamps are added: that would put this process between a container and its output.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

MESSAGE_BYTES = 2048
MESSAGE_LINES = 80
_CHUNK = 64 * 1024
_FOLLOW_SECONDS = 0.1


def last_lines(path: Path, lines: int = MESSAGE_LINES, limit: int = MESSAGE_BYTES) -> str:
    """The end of a log: at most ``lines`` lines and ``limit`` bytes; empty when there is none."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - limit))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def tail_offset(path: Path, lines: int) -> int:
    """Where the last ``lines`` lines of the file begin."""
    content = path.read_bytes()
    position = len(content)
    if content.endswith(b"\n"):
        position -= 1
    for _ in range(lines):
        position = content.rfind(b"\n", 0, position)
        if position < 0:
            return 0
    return position + 1 if lines else len(content)


async def read_log(
    path: Path, *, tail: int | None, limit: int | None, more: Callable[[], bool] | None
) -> AsyncIterator[bytes]:
    """Yield a log in pieces.

    Args:
        path: the file.
        tail: only so many last lines.
        limit: at most so many bytes.
        more: given to follow: whether the container still runs; the end of the file is looked at again while it does.
    """
    left = limit if limit is not None else 1 << 62
    with path.open("rb") as log:
        if tail is not None:
            log.seek(tail_offset(path, tail))
        while left > 0:
            running = more is not None and more()
            piece = log.read(min(_CHUNK, left))
            if piece:
                left -= len(piece)
                yield piece
            elif running:
                await asyncio.sleep(_FOLLOW_SECONDS)
            else:
                return
