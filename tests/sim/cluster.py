"""Scheduler, kubelets and the node controller of the simulated cluster: what becomes of pods and nodes.

Written down here is what hurts, and all of it happens: pods wait for a node while none is free; binding, start and end
take time, another time for each pod; a node that is off keeps its pods as they were until somebody deletes them by
force, is marked after `GRACE_SECONDS`, loses its pods after `EVICTION_SECONDS`, and comes back with its pods failed;
a cordoned node takes nothing; containers of a pod that is deleted end within its grace.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from e2e.memory_api.history import Change
from e2e.memory_api.nodes import Nodes
from e2e.memory_api.requests import Request
from e2e.memory_api.server import MemoryServer
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.kube.client import ApiError, PatchKind, object_path
from tests.sim.virtual_time import call_in_world

GRACE_SECONDS: Final = 40.0
"""Kubernetes' node-monitor-grace-period: so long a silent node counts as ready."""
EVICTION_SECONDS: Final = 300.0
"""Kubernetes' default toleration of an unreachable node."""
BOOT_SECONDS: Final = (20.0, 500.0)
"""How long a machine is away that went off: a reboot, or a visit of somebody."""
CHIPS: Final = 2


@dataclass
class Machine:
    """One node.

    Attributes:
        on: it runs, and is heard.
        boots: how often it was started.
        marked: its silence has been noticed.
    """

    name: str
    on: bool = True
    boots: int = 1
    marked: bool = False


class PodListener:
    """Whoever is told what becomes of pods' containers."""

    def note_running_pod(self, pod: Json) -> None:
        """Handle that its containers run."""

    def note_ended_pod(self, uid: str) -> None:
        """Handle that its containers run no more."""


class SimCluster:
    """Nodes and what they do to the server's pods."""

    def __init__(self, server: MemoryServer, chance: random.Random, listener: PodListener, nodes: int) -> None:
        self._server, self._chance, self._listener = server, chance, listener
        self._nodes = Nodes(server)
        self.machines = {name: Machine(name) for name in (f"node-{number}" for number in range(nodes))}
        self._addresses = 0
        self._running: set[str] = set()
        for machine in self.machines.values():
            self._make_node(machine)
        server.history.observers.append(self._see_change)

    def ask(self, method: str, path: str, body: Json | None = None, kind: str = PatchKind.MERGE) -> Json:
        """Ask the server as an admin does."""
        return self._server.handle(Request(method, path, {}, body, kind, "admin"))

    def _make_node(self, machine: Machine) -> None:
        there = {names.DEFAULT_RESOURCE_NAME: str(CHIPS), "pods": "100", "cpu": "64", "memory": "256Gi"}
        self.ask("POST", "/api/v1/nodes", {"metadata": {"name": machine.name}})
        self._set_node(machine, "True", {"allocatable": there, "capacity": there})

    def _set_node(self, machine: Machine, ready: str, more: Json | None = None) -> None:
        told = {
            "conditions": [{"type": "Ready", "status": ready}],
            "nodeInfo": {"bootID": f"{machine.name}/{machine.boots}"},
            **(more or {}),
        }
        self.ask("PATCH", f"/api/v1/nodes/{machine.name}/status", {"status": told})

    def pods(self) -> Iterator[Json]:
        """Yield every pod as the server has it."""
        yield from self._server.history.all("pods")

    def free_machines(self) -> list[str]:
        """List the nodes on which a rank pod could run now."""
        taken = {pod["spec"].get("nodeName") for pod in self.pods() if _chips_of(pod) and _is_active(pod)}
        return [name for name, machine in self.machines.items() if self._takes_pods(machine) and name not in taken]

    def _takes_pods(self, machine: Machine) -> bool:
        node = self._server.history.find("nodes", ("", machine.name))
        return (
            machine.on and node is not None and not (node.get("spec") or {}).get("unschedulable") and not machine.marked
        )

    # ------------------------------------------------------------------------------------------------ what is done

    def power_off(self, name: str) -> None:
        """Take a machine away at once; it comes back some time."""
        machine = self.machines[name]
        if not machine.on:
            return
        machine.on = False
        for uid in [pod["metadata"]["uid"] for pod in self.pods() if pod["spec"].get("nodeName") == name]:
            self._end_containers(uid)
        boots = machine.boots
        self._later(GRACE_SECONDS, self._mark_silent, machine, boots)
        self._later(GRACE_SECONDS + EVICTION_SECONDS, self._evict_from, machine, boots)
        self._later(self._chance.uniform(*BOOT_SECONDS), self._boot, machine)

    def _mark_silent(self, machine: Machine, boots: int) -> None:
        if machine.on or machine.boots != boots:
            return
        machine.marked = True
        self._set_node(machine, "Unknown")
        for pod in list(self.pods()):
            if pod["spec"].get("nodeName") == machine.name and pod["status"].get("phase") == "Running":
                self._set_status(pod, {"conditions": [{"type": "Ready", "status": "False"}]})

    def _evict_from(self, machine: Machine, boots: int) -> None:
        if machine.on or machine.boots != boots:
            return
        for pod in list(self.pods()):
            if pod["spec"].get("nodeName") == machine.name:
                self._quietly("DELETE", _path(pod))

    def _boot(self, machine: Machine) -> None:
        machine.on, machine.marked = True, False
        machine.boots += 1
        self._set_node(machine, "True")
        for pod in list(self.pods()):
            if pod["spec"].get("nodeName") != machine.name:
                continue
            if pod["metadata"].get("deletionTimestamp"):
                self._later(self._chance.uniform(0.1, 2), self._remove, pod["metadata"]["uid"], _key(pod))
            elif _is_active(pod):
                self._later(self._chance.uniform(0.1, 5), self._fail, pod["metadata"]["uid"], _key(pod), 255)
        self._schedule_all()

    def set_cordon(self, name: str, *, cordoned: bool) -> None:
        """Cordon a node, or take that back."""
        self.ask("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": cordoned or None}})
        self._schedule_all()

    def delete_pod(self, pod: Json) -> None:
        """Delete a pod as a person does."""
        self._quietly("DELETE", _path(pod))

    def fail_pod(self, pod: Json, code: int) -> None:
        """Have a pod's containers end with this code."""
        self._fail(pod["metadata"]["uid"], _key(pod), code)

    def evict_pod(self, pod: Json) -> str:
        """Evict a pod as a drain does; return why the server refuses."""
        body = {"metadata": {"name": pod["metadata"]["name"]}}
        try:
            self.ask("POST", f"{_path(pod)}/eviction", body, "")
        except ApiError as error:
            return error.message
        return ""

    def end_pod(self, uid: str) -> None:
        """Have a pod end in order: its processes have."""
        for pod in list(self.pods()):
            if pod["metadata"]["uid"] == uid:
                self._later(self._chance.uniform(0.1, 3), self._fail, uid, _key(pod), 0)

    # ----------------------------------------------------------------------------------------------- what follows

    def _see_change(self, change: Change) -> None:
        if change.plural != "pods":
            return
        pod = change.new
        if pod is None:
            assert change.old is not None
            self._end_containers(change.old["metadata"]["uid"])
            self._later(self._chance.uniform(0.05, 0.3), self._schedule_all)
            return
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        before = change.old or {"metadata": {}, "spec": {}}
        if not node and not pod["spec"].get("schedulingGates"):
            self._later(self._chance.uniform(0.01, 0.2), self._schedule, uid, change.key)
        elif node and not before["spec"].get("nodeName"):
            self._later(self._chance.uniform(0.2, 3.0), self._run, uid, change.key)
        if pod["metadata"].get("deletionTimestamp") and not before["metadata"].get("deletionTimestamp") and node:
            self._later(self._chance.uniform(0.05, 2.0), self._remove, uid, change.key)

    def _current(self, uid: str, key: tuple[str, str]) -> Json | None:
        pod = self._server.history.find("pods", key)
        return pod if pod is not None and pod["metadata"]["uid"] == uid else None

    def _schedule_all(self) -> None:
        for pod in list(self.pods()):
            if not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates"):
                self._schedule(pod["metadata"]["uid"], _key(pod))

    def _schedule(self, uid: str, key: tuple[str, str]) -> None:
        pod = self._current(uid, key)
        if pod is None or pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            return
        if pod["spec"].get("schedulingGates"):
            return
        takes = [each for each in self.machines.values() if self._takes_pods(each)]
        if _chips_of(pod):
            free = set(self.free_machines())
            takes = [machine for machine in takes if machine.name in free]
        takes = [machine for machine in takes if _may_run_on(pod, machine.name)]
        if takes:
            self._nodes.bind(*key, self._chance.choice(takes).name)
            return
        told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0 nodes are free"}
        self._set_status(pod, {"conditions": [told]})

    def _run(self, uid: str, key: tuple[str, str]) -> None:
        pod = self._current(uid, key)
        if pod is None or not self.machines[pod["spec"]["nodeName"]].on or pod["metadata"].get("deletionTimestamp"):
            return
        self._addresses += 1
        self._nodes.run(*key, f"10.{self._addresses >> 16}.{self._addresses >> 8 & 255}.{self._addresses & 255}")
        self._running.add(uid)
        running = self._current(uid, key)
        assert running is not None
        self._listener.note_running_pod(running)

    def _remove(self, uid: str, key: tuple[str, str]) -> None:
        pod = self._current(uid, key)
        if pod is None or not self.machines[pod["spec"]["nodeName"]].on:
            return
        self._end_containers(uid)
        self._nodes.remove(*key)

    def _fail(self, uid: str, key: tuple[str, str], code: int) -> None:
        pod = self._current(uid, key)
        if pod is None or not _is_active(pod) or not pod["spec"].get("nodeName"):
            return
        self._end_containers(uid)
        self._nodes.end(*key, code)

    def _end_containers(self, uid: str) -> None:
        if uid in self._running:
            self._running.discard(uid)
            self._listener.note_ended_pod(uid)

    def _set_status(self, pod: Json, status: Json) -> None:
        self._quietly("PATCH", f"{_path(pod)}/status", {"status": status})

    def _quietly(self, method: str, path: str, body: Json | None = None) -> None:
        """Ask, where it does not matter that the object is gone by now."""
        try:
            self.ask(method, path, body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    def _later(self, seconds: float, call: Callable[..., object], *arguments: object) -> None:
        call_in_world(seconds, call, *arguments)


def _path(pod: Json) -> str:
    return object_path("pods", *_key(pod))


def _key(pod: Json) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _is_active(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _chips_of(pod: Json) -> int:
    asked = (each.get("resources", {}).get("requests", {}) for each in pod["spec"]["containers"])
    return sum(int(each.get(names.DEFAULT_RESOURCE_NAME, 0)) for each in asked)


def _may_run_on(pod: Json, node: str) -> bool:
    """Whether its node affinity, as far as it names nodes, lets it run there."""
    affinity: Any = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or []
    return not terms or any(
        all((node in one["values"]) is (one["operator"] == "In") for one in term.get("matchFields") or [])
        for term in terms
    )
