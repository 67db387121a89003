"""Start the manager, as a start script of node rank 0 does in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping

from e2e.taskd.manager import Manager

_given: dict[str, object] = {}


def init_taskd_manager(config: Mapping[str, object]) -> bool:
    """Take `job_id`, `node_nums` and `proc_per_node`."""
    _given.update(config)
    return True


def start_taskd_manager() -> bool:
    """Run the manager; does not return."""
    Manager(str(_given.get("job_id", "")), os.environ).run()
    return True
