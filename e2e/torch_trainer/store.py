"""torch's TCPStore in a process of its own, for trainings without Kubernetes: HOST and PORT are its arguments.

In a job the coordinator's pod hosts it.
"""

from __future__ import annotations

import sys
import threading

from torch.distributed import TCPStore


def main() -> None:
    """Serve until killed; says `listening` when it does."""
    store = TCPStore(sys.argv[1], int(sys.argv[2]), is_master=True, wait_for_workers=False)
    print("listening", flush=True)
    threading.Event().wait()
    del store


if __name__ == "__main__":
    main()
