"""Run by an interpreter with torch: two ranks make a group for one use, and one is slower than the other."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import torch.distributed as dist

from e2e.torch_trainer.groups import World
from e2e.torch_trainer.handlers import Handlers

ADDRESS = sys.argv[1]


class SlowStore(dist.Store):  # type: ignore[misc]
    """Both ranks' content; what it answers comes late."""

    def __init__(self, content: dist.Store, delay: float) -> None:
        super().__init__()
        self.content = content
        self.delay = delay

    def set(self, key: str, value: bytes) -> None:
        """Write."""
        self.content.set(key, value)

    def get(self, key: str) -> bytes:
        """Read; when the address of a peer comes late, the peer has connected already."""
        value: bytes = self.content.get(key)
        time.sleep(self.delay)
        return value

    def wait(self, *arguments: object) -> None:
        """Wait for keys."""
        self.content.wait(*arguments)

    def add(self, key: str, number: int) -> int:
        """Count."""
        return int(self.content.add(key, number))


class SlowWorld(World):
    """A rank whose store is slow."""

    def __init__(self, rank: int, content: dist.Store, delay: float) -> None:
        self._slow = SlowStore(content, delay)
        super().__init__(rank, 2, ADDRESS, 1)

    def connect(self) -> SlowStore:
        """The one store that there is."""
        return self._slow


def join(world: World) -> None:
    """Make the group in a handler's thread, and use it for nothing."""
    Handlers(cast("Any", SimpleNamespace(world=world))).group_of([0, 1])
    os.write(1, b"connected\n")
    time.sleep(1.5)


for slow in (0, 1):
    written = dist.HashStore()
    worlds = [SlowWorld(rank, written, 0.5 if rank == slow else 0.0) for rank in (0, 1)]
    both = [threading.Thread(target=join, args=(world,)) for world in worlds]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
