"""What a process inherits from its parent: resource limits, umask, processors.

A rank is the launcher's child, and a script that says `ulimit -n 65535; torchrun ...` or `taskset -c 0-47 torchrun ...`
means the ranks. So the shim sends what it has inherited, and each rank gets it. docs/protocols/launcher.md
"""

from __future__ import annotations

import os
import resource
from typing import Any, Dict, List, NamedTuple, Tuple


class ProcessLimits(NamedTuple):
    """The limits of a shim; an empty one changes nothing."""

    resources: Tuple[Tuple[int, int, int], ...] = ()  # the kernel's number of a limit, soft, hard
    umask: int | None = None
    processors: Tuple[int, ...] = ()

    def adopt_limits(self) -> List[str]:
        """Set them on this process, which is about to become a rank; return messages on those the kernel refuses."""
        refused: List[str] = []
        if self.umask is not None:
            os.umask(self.umask)
        for number, soft, hard in self.resources:
            if resource.getrlimit(number) == (soft, hard):
                continue
            try:
                resource.setrlimit(number, (soft, hard))
            except (OSError, ValueError) as problem:
                refused.append("limit {} of the start script, {} {}: {}".format(number, soft, hard, problem))
        if self.processors:
            try:
                os.sched_setaffinity(0, self.processors)
            except OSError as problem:
                refused.append("processors of the start script: {}".format(problem))
        return refused


def read_limits(message: Dict[str, Any]) -> ProcessLimits:
    """Read the limits from a shim's call. KeyError, TypeError, ValueError: malformed.

    Processors count only where the script has chosen some: a mask keeps a process from those that its container gets
    later.
    """
    resources = tuple((int(number), int(soft), int(hard)) for number, soft, hard in message["resources"])
    processors = {int(number) for number in message["processors"]}
    chosen = processors if processors != os.sched_getaffinity(0) else set()
    return ProcessLimits(resources, int(message["umask"]), tuple(sorted(chosen)))
