"""Whether the kernel has killed processes of this container for lack of memory.

Such a process looks like one that a signal of a user has killed, and the kubelet reports it only if the container ends,
too. The container's cgroup counts it (`memory.events` of version 2, `memory.oom_control` of version 1) before the
signal is sent (docs/protocols/launcher.md#ends).
"""

from __future__ import annotations

from typing import Tuple

FILES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
WORDS = "the kernel ended this process: the container's memory limit was reached (oom_kill)"
FOREIGN_KILL = (
    "killed by SIGKILL, which nobody of Hajob sent: look for the kernel's OOM killer (dmesg on the node), "
    "the memory limit of the container, or a person"
)


class Kills:
    """The kill counter of one container, read from the first of the files that exists."""

    def __init__(self, files: Tuple[str, ...] = FILES) -> None:
        self._files = files
        self._seen = self._count_kills()

    def has_risen(self) -> bool:
        """Return whether the count has risen since the last call. A file that cannot be read counts nothing."""
        before, self._seen = self._seen, self._count_kills()
        return self._seen > before

    def _count_kills(self) -> int:
        for path in self._files:
            try:
                with open(path, encoding="ascii", errors="replace") as file:
                    return _oom_kills_in(file.read())
            except OSError:
                continue
        return 0


def _oom_kills_in(text: str) -> int:
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if name == "oom_kill" and number.isdigit():
            return int(number)
    return 0
