"""Faults of single containers on real nodes, by the names that process nodes have for them (e2e/nodes/control.py)."""

from __future__ import annotations

import os
import signal as signals
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import psutil

from e2e.cluster.control_plane import ControlPlane
from e2e.kubelets.faults import Answer, RealFaults
from e2e.kubelets.nodes import RealNodes
from e2e.nodes.control import ProcessInfo
from e2e.nodes.faults import NODE_NAMESPACE, HardwareFault, node_info

Owner = tuple[str, str, str]
"""Namespace, pod and container."""
_RANK: Final = "RANK"
_STATUSES: Final = ("initContainerStatuses", "containerStatuses")


class ContainerFaults(RealFaults):
    """Faults of nodes and chips, and of whatever runs in a container.

    Processes are named by any of `namespace`, `pod`, `container`, `rank` and `pid`, as on process nodes.
    """

    def __init__(self, plane: ControlPlane, nodes: RealNodes) -> None:
        super().__init__(plane, nodes)
        self._real = nodes

    def processes(self, **which: object) -> list[ProcessInfo]:
        """The live processes of containers, the oldest first; a pod that the API server has forgotten has no name."""
        owners = self._owners()
        found = (_process(pid, node, owners.get(container)) for pid, node, container in self._real.contained())
        return [each for each in found if each is not None and _is_meant(each, which)]

    def kill(self, signal: str = "KILL", **which: object) -> Answer:
        """Send a signal to one process: `pid`, the oldest of a `rank`, or the first of a container."""
        meant = self.processes(**which)
        if "rank" not in which and "pid" not in which:
            meant = [each for each in meant if each.first]
        if not meant:
            raise LookupError(f"no process of {which}")
        at = time.time_ns()
        os.kill(meant[0].pid, signals.Signals[f"SIG{signal}"])
        return {"pid": meant[0].pid, "time": at}

    def freeze(self, **which: object) -> Answer:
        """SIGSTOP to everything meant."""
        return self._signal_all(signals.SIGSTOP, which)

    def thaw(self, **which: object) -> Answer:
        """SIGCONT to everything meant."""
        return self._signal_all(signals.SIGCONT, which)

    def set_node_faults(self, node: str, faults: Iterable[dict[str, Any]]) -> Answer:
        """NodeD finds these faults (`device`, `deviceId`, `codes`, `level`)."""
        at = time.time_ns()
        told = [HardwareFault(each["device"], each["deviceId"], tuple(each["codes"]), each["level"]) for each in faults]
        self._plane.apply(node_info(node, told, at / 1e9))
        return {"time": at}

    def repair_everything(self) -> None:
        """No chip is ill, and NodeD tells nothing."""
        for node in self._nodes.nodes.values():
            self._chips[node.name].clear()
            self._plane.api.delete(f"/api/v1/namespaces/{NODE_NAMESPACE}/configmaps/mindx-dl-nodeinfo-{node.name}")
        self.publish(*(node for node in self._nodes.nodes.values() if node.chips))

    def _signal_all(self, number: signals.Signals, which: dict[str, object]) -> Answer:
        at = time.time_ns()
        pids = [each.pid for each in self.processes(**which)]
        for pid in pids:
            os.kill(pid, number)
        return {"pids": pids, "time": at}

    def _owners(self) -> dict[str, Owner]:
        """Whose each container is, by its number."""
        found: dict[str, Owner] = {}
        for pod in self._plane.api.items("/api/v1/pods"):
            place = pod["metadata"]["namespace"], pod["metadata"]["name"]
            for status in (each for kind in _STATUSES for each in pod["status"].get(kind, [])):
                found[status.get("containerID", "").rpartition("/")[2]] = (*place, status["name"])
        return found


def _process(pid: int, node: str, owner: Owner | None) -> ProcessInfo | None:
    """None: it is gone."""
    try:
        process = psutil.Process(pid)
        environment = process.environ()
        namespace, pod, container = owner or ("", environment.get("HOSTNAME", ""), "")
        rank = environment.get(_RANK, "")
        return ProcessInfo(
            node=node,
            namespace=namespace,
            pod=pod,
            container=container,
            pid=pid,
            parent=process.ppid(),
            state=process.status(),
            first=_is_first(pid),
            rank=int(rank) if rank.isdigit() else None,
            command=process.cmdline(),
        )
    except (psutil.Error, OSError):
        return None


def _is_first(pid: int) -> bool:
    """Whether it is process 1 of its container."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return any(line.split()[0] == "NSpid:" and line.split()[-1] == "1" for line in lines if line.startswith("NSpid"))


def _is_meant(process: ProcessInfo, which: dict[str, object]) -> bool:
    return all(getattr(process, name) == value for name, value in which.items())
