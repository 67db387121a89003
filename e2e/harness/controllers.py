"""The MindIO controller of a job: which process it is, and its death."""

from __future__ import annotations

from pathlib import Path

import psutil

from e2e.harness.job import Job, Object
from e2e.harness.preflight import LISTENING
from e2e.harness.rig import Rig

MINDIO_PORT = 8000


def coordinator(job: Job) -> str:
    """Name of the newest pod that is one."""
    return str(_newest(job)["metadata"]["name"])


def coordinator_node(job: Job) -> str:
    """Name of the node of the newest one; empty: it has none yet."""
    return str(_newest(job)["spec"].get("nodeName", ""))


def _newest(job: Job) -> Object:
    return max(job.pods("coordinator"), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))


def kill_mindio(rig: Rig, job: Job) -> int:
    """End the process that serves the ranks; host, store and coordinator beside it live on. When it was."""
    pids = [process.pid for process in rig.nodes.control.processes(pod=coordinator(job), container="controller")]
    listening = [pid for pid in pids if MINDIO_PORT in _ports(pid)]
    # A child of the simulated controller plays the backlog of one that dies: it listens, and serves nobody.
    (serving,) = (pid for pid in listening if psutil.Process(pid).ppid() not in listening)
    return int(rig.nodes.control.kill(pid=serving)["time"])


def _ports(pid: int) -> set[int]:
    """Where a process listens, over IPv4 in its own network namespace."""
    held = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    table = map(str.split, Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:])
    listening = (fields for fields in table if fields[3] == LISTENING and f"socket:[{fields[9]}]" in held)
    return {int(fields[1].rpartition(":")[2], 16) for fields in listening}
