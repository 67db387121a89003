"""CANN's logs of the ranks (plogs), kept beside their output in the layout that ascend-fd reads.

CANN writes them below ASCEND_PROCESS_LOG_PATH, else below the home directory, from where they go with their pod. One
directory for each attempt and node, `worker-N/process_log`, is what `ascend-fd parse --process_log` is given.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Dict, List

VARIABLE = "ASCEND_PROCESS_LOG_PATH"
DIRECTORY = "process_log"
FILES_LIMIT = 1600
"""Files kept of one node and attempt: of 8 ranks with 10 files each, which CANN keeps of a process, 20 processes."""


def directory_of_node(directory: str, attempt: str, node: str) -> str:
    """Return where the plogs of a node's ranks are kept in an attempt."""
    return os.path.join(directory, attempt, "worker-{}".format(node), DIRECTORY)


def add_variable(environment: Dict[str, str], directory: str) -> Dict[str, str]:
    """Return the rank's environment with a place for its plogs; one that the script has chosen stays."""
    if environment.get(VARIABLE):
        return environment
    node = environment.get("HAJOB_NODE_RANK", "0")
    return dict(environment, **{VARIABLE: directory_of_node(directory, environment.get("HAJOB_ATTEMPT", "0"), node)})


def make_directory(place: str) -> None:
    """Make the place of a rank's plogs; CANN says itself where it cannot write. May hang with its volume."""
    with contextlib.suppress(OSError):
        os.makedirs(place, exist_ok=True)


def delete_attempt(directory: str, attempt: int, node: str) -> None:
    """Delete the plogs of a node of an attempt whose output is deleted."""
    shutil.rmtree(os.path.dirname(directory_of_node(directory, str(attempt), node)), ignore_errors=True)


def delete_beyond_limit(directory: str, attempt: int, node: str) -> None:
    """Delete the oldest plogs of a node: ranks that are restarted in place for months must not fill the volume."""
    found: List[str] = []
    for place, _, names in os.walk(directory_of_node(directory, str(attempt), node)):
        found += [os.path.join(place, name) for name in names]
    if len(found) <= FILES_LIMIT:
        return
    with contextlib.suppress(OSError):  # CANN turns its files over meanwhile; the next start looks again
        found.sort(key=os.path.getmtime)
    for path in found[: len(found) - FILES_LIMIT]:
        with contextlib.suppress(OSError):
            os.unlink(path)
