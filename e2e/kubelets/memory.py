"""Fills the memory cgroup of a rank until the kernel kills the rank for it.

python -m e2e.kubelets.memory GROUP PID MEBIBYTES
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

CHUNK = 1 << 22


def main(group: str, pid: str, mebibytes: str) -> int:
    """Join the group, and take memory as long as the rank lives; 1 where it outlives the limit."""
    Path(f"/proc/{pid}/oom_score_adj").write_text("1000")  # the kernel takes it, and not the one that eats
    Path(group, "cgroup.procs").write_text("0")
    taken: list[bytes] = []
    while _lives(Path(f"/proc/{pid}/stat")):
        if len(taken) * CHUNK > int(mebibytes) << 20:
            return 1
        taken.append(b"x" * CHUNK)
        time.sleep(0.001)
    return 0


def _lives(stat: Path) -> bool:
    """Whether a process runs; more memory after its death, before it is reaped, costs the next one."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
