"""Faults of real nodes, by the names that process nodes have for them (e2e/nodes/control.py)."""

from __future__ import annotations

import time
from typing import Any

from e2e.cluster.control_plane import ControlPlane
from e2e.kubelets.machines import Machine, Machines
from e2e.nodes.chips import chips_asked
from e2e.nodes.faults import ChipFault, device_info
from hajob.api import constants as names

Answer = dict[str, Any]


class RealFaults:
    """Makes them; what the device plugin tells about chips is in its ConfigMap and on the kubelet's socket."""

    def __init__(self, plane: ControlPlane, nodes: Machines) -> None:
        self._plane, self._nodes = plane, nodes
        self._chips: dict[str, list[ChipFault]] = {name: [] for name in nodes.nodes}

    def kill(self, signal: str = "KILL", **which: object) -> Answer:
        """Send a signal to the oldest process of a rank: `rank`. LookupError: there is none."""
        pid, at = self._nodes.signal_rank(int(str(which["rank"])), name=signal)
        return {"pid": pid, "time": at}

    def power_off(self, node: str) -> Answer:
        """The machine stops dead: silent, no connection closed."""
        return {"time": self._nodes.nodes[node].power_off()}

    def power_on(self, node: str) -> Answer:
        """The machine boots, its images are there; it is ready then. ControlPlaneError: it is not in time."""
        at = time.time_ns()
        self._nodes.power_on(node)
        self._nodes.wait_ready(node)
        return {"time": at}

    def break_chip(
        self, node: str, chip: int, code: str = "80E18402", level: str = "RestartNPU", kind: str = "CardUnhealthy"
    ) -> Answer:
        """A chip gets a fault."""
        at = time.time_ns()
        self._chips[node].append(ChipFault(chip, code, level, at / 1e9, kind))
        self.publish(self._nodes.nodes[node])
        return {"time": at}

    def publish(self, *nodes: Machine) -> None:
        """Write the device plugin's ConfigMaps of nodes, and tell their kubelets which chips they may give away."""
        self._plane.apply(*map(self._report, nodes))

    def _report(self, node: Machine) -> Answer:
        resource, faults = names.DEFAULT_RESOURCE_NAME, self._chips[node.name]
        used = range(self._used(node))
        broken = {each.chip for each in faults if each.separates(used=each.chip in used)}
        free = [chip for chip in range(len(used), node.chips) if chip not in broken]
        if node.plugin is not None:
            node.plugin.healthy[:] = [chip not in broken for chip in range(node.chips)]
            node.plugin.changed()
        return device_info(node.name, resource, free, faults, time.time(), used=used)

    def _used(self, node: Machine) -> int:
        """How many chips its pods have."""
        pods = self._plane.api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node.name}")
        containers = [each for pod in pods for each in pod["spec"]["containers"]]
        return sum(chips_asked(each, names.DEFAULT_RESOURCE_NAME) for each in containers)
