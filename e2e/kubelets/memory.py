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
    while Path(f"/proc/{pid}").exists():
        if len(taken) * CHUNK > int(mebibytes) << 20:
            return 1
        taken.append(b"x" * CHUNK)
        time.sleep(0.001)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
