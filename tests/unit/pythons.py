"""The Pythons of this machine, for what runs in training images: these bring 3.7 to 3.14."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

MINORS = range(7, 15)


@cache
def interpreter(minor: int) -> str | None:
    """The Python of this version, on the PATH or among pyenv's; one that says another version is none."""
    versions = sorted((Path.home() / ".pyenv/versions").glob(f"3.{minor}.*/bin/python3"))
    for candidate in (*map(str, versions), shutil.which(f"python3.{minor}")):
        if candidate and _version(candidate) == f"3.{minor}":
            return candidate
    return None


def _version(python: str) -> str:
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
