"""The rank table in the pod: hccl.json and its version, where images made for MindCluster look for them.

Files appear whole. A script that waits for the table reads `"status": "completed"` in it, as with Ascend Operator.
"""

from __future__ import annotations

import json
import logging
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hajob.protocol import sidecar_pb2 as pb

log = logging.getLogger(__name__)

INITIALIZING: Final = "initializing"
_MODE: Final = 0o644
"""The training may run as another user than the agent."""


class RankTableFile:
    """Writer of the rank table.

    Args:
        path: of hccl.json.
        seconds: of the wall clock, by which Ascend Operator counts versions.
    """

    def __init__(self, path: Path, seconds: Callable[[], float] = time.time) -> None:
        self._path, self._seconds = path, seconds
        self._count = 0

    def begin_file(self) -> None:
        """Write a table that is not complete, unless there is one: another agent of this pod may have written it."""
        try:
            if not self._path.exists():
                _replace_file(self._path, json.dumps({"status": INITIALIZING}).encode())
        except OSError as problem:  # the table itself is tried again and again, and told of
            log.warning("%s cannot be written: %s", self._path, problem)

    def write_table(self, table: pb.RankTable) -> str:
        """Write a table, and after it its number; return why that failed, in words: empty for success."""
        try:
            content = zlib.decompress(table.content)
            if not self._path.exists() or self._path.read_bytes() != content:
                _replace_file(self._path, content)
                # After the table: who waits for a higher number reads the table next.
                self._count = max(int(self._seconds()), self._count + 1)
                _replace_file(self._path.with_name("version"), str(self._count).encode())
        except (OSError, zlib.error) as problem:
            return str(problem)
        return ""


def _replace_file(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(content)
    beside.chmod(_MODE)
    beside.replace(path)
