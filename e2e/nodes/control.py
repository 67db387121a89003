"""Faults on command: the client of a node set's control socket.

One JSON object per line each way, one connection per call, blocking: tests and the demo call it from wherever they
are. Every answer carries ``time``, the realtime clock in nanoseconds right before the fault was done, which is when an
outage begins to be measured. The commands are described in docs/internals/process-nodes.md.
"""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster.unix_sockets import connect_unix

JsonObject = dict[str, Any]


class ControlError(RuntimeError):
    """The node set refused a command; the message says why."""


@dataclass(frozen=True)
class ProcessInfo:
    """A process of a container as the node set lists it; ``rank`` is that of its environment."""

    node: str
    namespace: str
    pod: str
    container: str
    pid: int
    parent: int
    state: str
    first: bool
    rank: int | None
    command: list[str]


class NodeControl:
    """Commands to one node set.

    Processes are named by any of ``node``, ``namespace``, ``pod``, ``container``, ``rank`` and ``pid``. ``kill`` and
    ``freeze`` of a rank mean the topmost process with that ``RANK`` in its environment; of a container without rank or
    pid its first process (``kill``) or all its processes (``freeze``, ``thaw``); of a pod all of it.
    """

    def __init__(self, path: Path, timeout: float = 30.0) -> None:
        self._path = path
        self._timeout = timeout

    def call(self, command: str, **arguments: object) -> JsonObject:
        """Send one command.

        Raises:
            ControlError: it was refused.
            OSError: the node set does not answer.
        """
        given = {name: value for name, value in arguments.items() if value is not None}
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(self._timeout)
            connect_unix(connection, self._path)
            connection.sendall(json.dumps({"command": command, **given}).encode() + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline()
        answer: JsonObject = json.loads(line) if line else {"ok": False, "error": "the node set hung up"}
        if not answer.pop("ok"):
            raise ControlError(answer["error"])
        return answer

    def state(self) -> JsonObject:
        """Nodes → pods → containers → processes, with chips and addresses."""
        return self.call("state")

    def processes(
        self, *, node: str | None = None, pod: str | None = None, container: str | None = None
    ) -> list[ProcessInfo]:
        """The live processes of containers, parents before children."""
        answer = self.call("processes", node=node, pod=pod, container=container)
        return [ProcessInfo(**entry) for entry in answer["processes"]]

    def kill(self, signal: str = "KILL", **which: object) -> JsonObject:
        """Send a signal to one process; exactly one must be meant. Answers ``pid``, ``node``, ``pod``, ``time``."""
        return self.call("kill", signal=signal, **which)

    def freeze(self, **which: object) -> JsonObject:
        """SIGSTOP to everything meant; answers ``pids`` and ``time``."""
        return self.call("freeze", **which)

    def thaw(self, **which: object) -> JsonObject:
        """SIGCONT to everything meant."""
        return self.call("thaw", **which)

    def power_off(self, node: str) -> JsonObject:
        """The machine stops dead: silent, no connection closed."""
        return self.call("power-off", node=node)

    def power_on(self, node: str) -> JsonObject:
        """The machine boots: what ran is dead, the node registers again."""
        return self.call("power-on", node=node)

    def thaw_node(self, node: str) -> JsonObject:
        """A node that was powered off goes on as if it had only been frozen."""
        return self.call("thaw-node", node=node)

    def cut_api(self, node: str) -> JsonObject:
        """The node hears and says nothing to the API server; its pods go on."""
        return self.call("cut-api", node=node)

    def restore_api(self, node: str) -> JsonObject:
        """End of :meth:`cut_api`."""
        return self.call("restore-api", node=node)

    def cut_hajob(self, node: str) -> JsonObject:
        """Freeze Hajob's sidecars of the node's pods: no word to or from them, the training itself goes on."""
        return self.call("cut-hajob", node=node)

    def restore_hajob(self, node: str) -> JsonObject:
        """End of :meth:`cut_hajob`."""
        return self.call("restore-hajob", node=node)

    def break_chip(
        self,
        node: str,
        chip: int,
        code: str = "80E18402",
        level: str = "RestartNPU",
        kind: str = "CardUnhealthy",
    ) -> JsonObject:
        """A chip gets a fault: the device plugin's ConfigMap says so, allocatable shrinks where the level asks it."""
        return self.call("break-chip", node=node, chip=chip, code=code, level=level, kind=kind)

    def repair_chip(self, node: str, chip: int) -> JsonObject:
        """All faults of the chip are over."""
        return self.call("repair-chip", node=node, chip=chip)

    def set_node_faults(self, node: str, faults: list[JsonObject]) -> JsonObject:
        """NodeD finds these faults (``device``, ``deviceId``, ``codes``, ``level``); an empty list: none any more."""
        return self.call("set-node-faults", node=node, faults=faults)

    def set_switch_faults(self, node: str, faults: list[JsonObject]) -> JsonObject:
        """The node's switches have these faults (``code``, ``level``); an empty list: none any more."""
        return self.call("set-switch-faults", node=node, faults=faults)

    def set_image(self, name: str, directory: Path) -> JsonObject:
        """Give an image name a directory from now on."""
        return self.call("set-image", name=name, directory=str(directory))
