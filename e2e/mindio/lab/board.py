"""A board of steps in shared memory that stands in for the collective: who waits for a dead peer waits for ever."""

from __future__ import annotations

import mmap
import struct
import threading
import time
from pathlib import Path

CELL = struct.Struct("<q")
PAUSE_SECONDS = 0.005


class Board:
    """One cell per rank: the last step that it has reached."""

    def __init__(self, path: Path, world_size: int) -> None:
        if not path.exists():
            path.write_bytes(bytes(CELL.size * world_size))
        with path.open("r+b") as file:
            self._cells = mmap.mmap(file.fileno(), CELL.size * world_size)

    def put(self, rank: int, step: int) -> None:
        """Say that `rank` is at `step`."""
        CELL.pack_into(self._cells, rank * CELL.size, step)

    def clear(self, step: int) -> None:
        """Nobody is beyond `step`, whatever one who has died since had reached; called while everybody is held."""
        for rank in range(len(self._cells) // CELL.size):
            self.put(rank, min(self.get(rank), step))

    def get(self, rank: int) -> int:
        """Where `rank` is."""
        return int(CELL.unpack_from(self._cells, rank * CELL.size)[0])

    def meet(self, rank: int, step: int, members: list[int], stop: threading.Event) -> None:
        """Wait until all members are at `step`; a stopped one raises "FORCE STOP"."""
        self.put(rank, step)
        while any(self.get(m) < step for m in members):
            if stop.is_set():
                raise RuntimeError("FORCE STOP: the collective was broken")
            time.sleep(PAUSE_SECONDS)
