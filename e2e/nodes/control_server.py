"""The other end of the control socket: finds what a command means and does it.

Commands are methods of one class, looked up in one table; a command that cannot be done is answered with the reason,
and nothing is done half.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.unix_sockets import bind_unix
from e2e.nodes.config import JsonObject
from e2e.nodes.faults import ChipFault, HardwareFault, SwitchFault
from e2e.nodes.node import Node
from e2e.nodes.node_set import NodeSet
from e2e.nodes.pod import PodWorker
from e2e.nodes.processes import ProcessEntry, read_command, read_environment, send_signal, until_stopped
from e2e.nodes.states import ContainerWaiting, Running

log = logging.getLogger(__name__)

HAJOB_SIDECARS = frozenset({"agent", "coordinator"})
_SELECTORS = ("node", "namespace", "pod", "container", "rank", "pid")


class RefusedError(Exception):
    """A command that cannot be done."""


@dataclass(frozen=True)
class Found:
    """A process and whose it is."""

    node: Node
    worker: PodWorker
    container: str
    entry: ProcessEntry
    first: bool

    @property
    def rank(self) -> int | None:
        """``RANK`` of its environment; above torchrun it is a node rank, and the process no rank."""
        environment = read_environment(self.entry.pid)
        if "LOCAL_WORLD_SIZE" in environment and "LOCAL_RANK" not in environment:
            return None
        text = environment.get("RANK", "")
        return int(text) if text.isdigit() else None


class ControlServer:
    """Serves a node set's control socket."""

    def __init__(self, nodes: NodeSet) -> None:
        self._set = nodes
        self._server: asyncio.Server | None = None

    async def start(self, path: Path) -> None:
        """Listen at ``path``."""
        self._server = await asyncio.start_unix_server(self._serve, sock=bind_unix(path))

    async def close(self) -> None:
        """Stop listening."""
        if self._server:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await self.handle(line)).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()

    async def handle(self, line: bytes) -> JsonObject:
        """Do one command and give its answer."""
        now = time.time_ns()
        try:
            request = json.loads(line)
            command = _command(request.pop("command", ""))
            return {"ok": True, "time": now, **await command(self, request)}
        except (RefusedError, KeyError, TypeError, ValueError) as error:
            reason = f"argument {error} is missing" if isinstance(error, KeyError) else str(error)
            return {"ok": False, "error": reason}
        except Exception as error:
            log.exception("a command failed: %s", line)
            return {"ok": False, "error": f"the node set failed: {error!r}, see its log"}

    async def _state(self, _: JsonObject) -> JsonObject:
        everything = list(self._find({}))
        return {"nodes": [_describe(node, everything) for node in self._set.nodes.values()]}

    async def _processes(self, request: JsonObject) -> JsonObject:
        return {"processes": [_process(found) for found in self._find(request)]}

    async def _kill(self, request: JsonObject) -> JsonObject:
        number = _signal_number(str(request.pop("signal", "KILL")))
        found = self._one(request)
        now = time.time_ns()
        send_signal(found.entry.pid, number)
        metadata = found.worker.pod["metadata"]
        return {"pid": found.entry.pid, "node": found.node.name, "pod": metadata["name"], "time": now}

    async def _freeze(self, request: JsonObject) -> JsonObject:
        return await _settled(self._signal_all(request, signal.SIGSTOP))

    async def _thaw(self, request: JsonObject) -> JsonObject:
        return self._signal_all(request, signal.SIGCONT)

    def _signal_all(self, request: JsonObject, number: int) -> JsonObject:
        """Until no new process shows up: one that was just being started must not slip through."""
        now, reached = time.time_ns(), dict[int, None]()
        while fresh := [f.entry.pid for f in self._meant(request) if f.entry.pid not in reached]:
            for pid in fresh:
                reached[pid] = None
                send_signal(pid, number)
        if not reached:
            raise RefusedError(f"no process matches {request}")
        return {"pids": list(reached), "time": now}

    async def _power_off(self, request: JsonObject) -> JsonObject:
        node = self._node(request)
        if not node.context.power.is_open:
            raise RefusedError(f"node {node.name} is off already")
        now = time.time_ns()
        return {"stopped": await node.power_off(), "time": now}

    async def _power_on(self, request: JsonObject) -> JsonObject:
        node = self._off(request)
        await node.power_on()
        return {}

    async def _thaw_node(self, request: JsonObject) -> JsonObject:
        return {"continued": self._off(request).thaw()}

    async def _cut_api(self, request: JsonObject) -> JsonObject:
        self._node(request).wire.close()
        return {}

    async def _restore_api(self, request: JsonObject) -> JsonObject:
        self._node(request).wire.open()
        return {}

    async def _cut_hajob(self, request: JsonObject) -> JsonObject:
        return await _settled(self._signal_sidecars(request, signal.SIGSTOP))

    async def _restore_hajob(self, request: JsonObject) -> JsonObject:
        return self._signal_sidecars(request, signal.SIGCONT)

    def _signal_sidecars(self, request: JsonObject, number: int) -> JsonObject:
        node, now = self._node(request), time.time_ns()
        markers = [c.marker for w in node.workers() for c in w.containers if c.record.name in HAJOB_SIDECARS]
        return {"pids": node.context.processes.signal(markers, number), "time": now}

    async def _break_chip(self, request: JsonObject) -> JsonObject:
        node, chip = self._chip(request)
        now = time.time_ns()
        fault = ChipFault(chip, str(request["code"]), str(request["level"]), now / 1e9, str(request["kind"]))
        node.reports.add_chip_fault(fault)
        await self._report(node)
        return {"time": now}

    async def _repair_chip(self, request: JsonObject) -> JsonObject:
        node, chip = self._chip(request)
        node.reports.clear_chip(chip)
        await self._report(node)
        return {}

    async def _set_node_faults(self, request: JsonObject) -> JsonObject:
        faults = [
            HardwareFault(str(f["device"]), int(f["deviceId"]), tuple(f["codes"]), str(f["level"]))
            for f in request["faults"]
        ]
        self._node(request).reports.set_hardware_faults(faults)
        return {}

    async def _set_switch_faults(self, request: JsonObject) -> JsonObject:
        now = time.time_ns()
        faults = [SwitchFault(str(one["code"]), str(one["level"]), now / 1e9) for one in request["faults"]]
        self._node(request).reports.set_switch_faults(faults)
        return {"time": now}

    async def _set_image(self, request: JsonObject) -> JsonObject:
        self._set.images[str(request["name"])] = Path(request["directory"])
        return {}

    async def _report(self, node: Node) -> None:
        """The caller is told when it is known, unless the node is off or cut off and keeps it to itself for now."""
        if node.context.power.is_open and node.wire.is_open:
            await node.write_status()
        else:
            node.write_status_later()

    def _chip(self, request: JsonObject) -> tuple[Node, int]:
        node, chip = self._node(request), int(request["chip"])
        if not 0 <= chip < node.context.chips.count:
            raise RefusedError(f"node {node.name} has no chip {chip}, it has {node.context.chips.count}")
        return node, chip

    def _node(self, request: JsonObject) -> Node:
        node = self._set.nodes.get(str(request["node"]))
        if node is None:
            raise RefusedError(f"no node {request['node']!r}; there are: {', '.join(sorted(self._set.nodes))}")
        return node

    def _off(self, request: JsonObject) -> Node:
        node = self._node(request)
        if node.context.power.is_open:
            raise RefusedError(f"node {node.name} is not off")
        return node

    def _find(self, request: JsonObject) -> Iterator[Found]:
        """Every live process of the pods and containers a request selects."""
        unknown = sorted(set(request) - set(_SELECTORS))
        if unknown:
            raise RefusedError(
                f"unknown arguments {', '.join(unknown)}; processes are selected by {', '.join(_SELECTORS)}"
            )
        nodes = [self._node(request)] if "node" in request else list(self._set.nodes.values())
        trees = self._set.members(nodes)
        for node in nodes:
            for worker in node.workers():
                if not _selects(request, worker.pod):
                    continue
                for container in worker.containers:
                    if request.get("container") not in {None, container.record.name}:
                        continue
                    first = container.process.pid if container.process else 0
                    for entry in trees.get(container.marker, []):
                        yield Found(node, worker, container.record.name, entry, entry.pid == first)

    def _meant(self, request: JsonObject) -> list[Found]:
        """The processes a request means; of a rank its topmost process and everything below."""
        found = list(self._find(request))
        if "pid" in request:
            return [one for one in found if one.entry.pid == int(request["pid"])]
        if "rank" in request:
            return [one for one in found if one.rank == int(request["rank"])]
        if not {"pod", "container"} & set(request):
            raise RefusedError("say which processes: pod, container, rank or pid")
        return found

    def _one(self, request: JsonObject) -> Found:
        meant = self._meant(request)
        if "rank" in request:
            pids = {one.entry.pid for one in meant}
            meant = [one for one in meant if one.entry.parent not in pids]
        elif "pid" not in request:
            meant = [one for one in meant if one.first]
        if len(meant) != 1:
            listed = ", ".join(f"{f.entry.pid} ({f.worker.pod['metadata']['name']}/{f.container})" for f in meant)
            raise RefusedError(f"{request} means {len(meant)} processes, not one: {listed or 'none'}")
        return meant[0]


async def _settled(answer: JsonObject) -> JsonObject:
    """An answer about stopped processes, given when they have stopped."""
    await until_stopped(answer["pids"])
    return answer


def _command(name: str) -> _Handler:
    if name not in _COMMANDS:
        raise RefusedError(f"unknown command {name!r}; there are: {', '.join(sorted(_COMMANDS))}")
    return _COMMANDS[name]


def _selects(request: JsonObject, pod: JsonObject) -> bool:
    metadata = pod["metadata"]
    return request.get("pod") in {None, metadata["name"]} and request.get("namespace") in {None, metadata["namespace"]}


def _signal_number(name: str) -> int:
    try:
        return signal.Signals["SIG" + name.removeprefix("SIG")]
    except KeyError:
        raise RefusedError(f"unknown signal {name!r}") from None


def _process(found: Found) -> JsonObject:
    return {
        "node": found.node.name,
        "namespace": found.worker.pod["metadata"]["namespace"],
        "pod": found.worker.pod["metadata"]["name"],
        "container": found.container,
        "pid": found.entry.pid,
        "parent": found.entry.parent,
        "state": found.entry.state,
        "first": found.first,
        "rank": found.rank,
        "command": read_command(found.entry.pid),
    }


def _describe(node: Node, everything: list[Found]) -> JsonObject:
    chips = node.context.chips
    pods = []
    for worker in node.workers():
        containers = [
            {
                "name": container.record.name,
                "state": _word(container.record.state),
                "log": str(container.log),
                "processes": [
                    _process(f) for f in everything if f.worker is worker and f.container == container.record.name
                ],
            }
            for container in worker.containers
        ]
        metadata = worker.pod["metadata"]
        pods.append(
            {
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": worker.uid,
                "address": worker.record.pod_address,
                "chips": [chip for chip in range(chips.count) if chips.owner(chip) == worker.uid],
                "containers": containers,
            }
        )
    return {
        "name": node.name,
        "address": node.context.address,
        "power": node.context.power.is_open,
        "api": node.wire.is_open,
        "chips": chips.count,
        "brokenChips": sorted(chips.broken),
        "pods": pods,
    }


def _word(state: object) -> str:
    if isinstance(state, ContainerWaiting):
        return f"waiting: {state.reason}"
    return "running" if isinstance(state, Running) else "terminated"


_Handler = Callable[[ControlServer, JsonObject], Awaitable[JsonObject]]
_COMMANDS: dict[str, _Handler] = {
    name.removeprefix("_").replace("_", "-"): getattr(ControlServer, name)
    for name in (
        "_state",
        "_processes",
        "_kill",
        "_freeze",
        "_thaw",
        "_power_off",
        "_power_on",
        "_thaw_node",
        "_cut_api",
        "_restore_api",
        "_cut_hajob",
        "_restore_hajob",
        "_break_chip",
        "_repair_chip",
        "_set_node_faults",
        "_set_switch_faults",
        "_set_image",
    )
}
