"""Hides this machine's libraries and their loader, in the mount namespace of who calls it: all at once, by itself.

`mount` could hide one directory and then not run any more.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

PLACES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")


def main() -> int:
    """An empty file system over each of them."""
    libc = ctypes.CDLL(None, use_errno=True)
    for place in {Path(place).resolve() for place in PLACES if Path(place).exists()}:
        if libc.mount(b"none", str(place).encode(), b"tmpfs", 0, None):
            print(f"{place}: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
