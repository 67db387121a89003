"""The MindIO controller of a job on process nodes: which process it is, and its death."""

from __future__ import annotations

import psutil

from e2e.harness.job import Job, Object
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
    (serving,) = (pid for pid in pids if MINDIO_PORT in _ports(pid))
    return int(rig.nodes.control.kill(pid=serving)["time"])


def _ports(pid: int) -> set[int]:
    """Where a process listens."""
    connections = psutil.Process(pid).net_connections("tcp")
    return {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}
