"""An API server that replays a watch of nodes: as many events a second as it is asked for.

    python -m e2e.bench.replay_server ADDRESS PORT NODES PODS

One real API server on two cores makes about 700 node events a second; this one writes lines that were made before. It
serves lists of nodes, pods and ConfigMaps, and watches; that of nodes begins to flow when /flood?rate=R&seconds=S is
asked, and /flooded tells how many lines have left.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any, Final

from aiohttp import web

from hajob.api import constants as names
from hajob.kube.client import END_OF_LIST

Object = dict[str, Any]

TURN_SECONDS: Final = 0.01
VERSION: Final = 1000


def node(number: int, change: int = 0, ready: bool = True) -> Object:
    """A node as large as a real one is without its images: some four kilobytes."""
    status = "True" if ready else "False"
    beat = "2026-11-22T00:00:00Z"
    conditions = [{"type": "Ready", "status": status, "reason": "Kubelet", "message": "m", "lastTransitionTime": beat}]
    for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"):
        conditions.append(
            {"type": kind, "status": "False", "reason": "Fine", "message": "m", "lastHeartbeatTime": beat}
        )
    name = f"node-{number}"
    labels = {"kubernetes.io/hostname": name, "change": str(change), **{f"example.com/{n}": "value" for n in range(30)}}
    metadata: Object = {
        "name": name,
        "uid": f"uid-{number}",
        "labels": labels,
        "resourceVersion": str(VERSION + change),
    }
    allocatable = {"cpu": "192", "memory": "1Ti", "huawei.com/Ascend910": "8"}
    addresses = [{"type": "InternalIP", "address": f"10.0.{number // 250}.{number % 250}"}]
    body = {"allocatable": allocatable, "capacity": allocatable, "conditions": conditions, "addresses": addresses}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": body,
    }


def pod(number: int, nodes: int) -> Object:
    """A rank pod that runs."""
    uid = f"job-{number // 100}"
    owner = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": uid, "uid": uid, "controller": True}
    labels: Object = {
        names.LABEL_JOB_UID: uid,
        names.LABEL_ROLE: names.ROLE_RANK,
        names.LABEL_NODE_RANK: str(number % 100),
    }
    metadata: Object = {"name": f"pod-{number}", "namespace": uid, "uid": f"pod-uid-{number}", "labels": labels}
    metadata |= {"ownerReferences": [owner], "resourceVersion": str(VERSION), "annotations": {"a": "b" * 500}}
    requests = {"huawei.com/Ascend910": "1"}
    containers = [{"name": "trainer", "image": "i", "resources": {"limits": requests, "requests": requests}}]
    spec = {"nodeName": f"node-{number % nodes}", "containers": containers}
    status = {"phase": "Running", "podIP": f"10.1.{number // 250 % 250}.{number % 250}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


class Replay:
    """The server's memory: what it lists, and what it has let flow."""

    def __init__(self, nodes: int, pods: int, maps: list[Object]) -> None:
        self.nodes = nodes
        self.lists = {
            "nodes": [node(number) for number in range(nodes)],
            "pods": [pod(number, nodes) for number in range(pods)],
            "configmaps": maps,
        }
        self.sent = 0
        self.done = False
        self._version = VERSION
        self._streams: list[web.StreamResponse] = []
        self._maps: list[web.StreamResponse] = []

    async def collection(self, request: web.Request) -> web.StreamResponse:
        """A list, or a watch that waits for the flood."""
        resource = request.path.rpartition("/")[2]
        if "watch" in request.query:
            return await self._watch(request, resource)
        items = self.lists.get(resource, [])
        if resource == "configmaps" and "cim" not in request.query.get("labelSelector", ""):
            items = []
        begin, size = int(request.query.get("continue", "0")), int(request.query.get("limit", "0")) or len(items)
        metadata: Object = {"resourceVersion": str(VERSION)}
        if begin + size < len(items):
            metadata["continue"] = str(begin + size)
        return web.json_response({"metadata": metadata, "items": items[begin : begin + size]})

    async def _watch(self, request: web.Request, resource: str) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        if "sendInitialEvents" in request.query:
            await self._list_in(stream, resource)
        if resource == "nodes":
            self._streams.append(stream)
        elif "cim" in request.query.get("labelSelector", ""):
            self._maps.append(stream)
        await asyncio.sleep(3600)
        return stream

    async def _list_in(self, stream: web.StreamResponse, resource: str) -> None:
        """What is there, line by line, and the bookmark behind it."""
        for body in self.lists.get(resource, []):
            await stream.write(json.dumps({"type": "ADDED", "object": body}).encode() + b"\n")
        metadata = {"resourceVersion": str(VERSION), "annotations": {END_OF_LIST: "true"}}
        await stream.write(json.dumps({"type": "BOOKMARK", "object": {"metadata": metadata}}).encode() + b"\n")

    async def write(self, body: Object) -> float:
        """A ConfigMap is written: its watchers hear it; when, in seconds since 1970."""
        self._version += 1
        body["metadata"] |= {"uid": body["metadata"]["name"], "resourceVersion": str(self._version)}
        line = json.dumps({"type": "MODIFIED", "object": body}).encode() + b"\n"
        written = time.time()
        for stream in self._maps:
            await stream.write(line)
        return written

    async def flood(self, request: web.Request) -> web.Response:
        """Begin; every event changes a label of its node, every hundredth turns a node bad or well."""
        asyncio.create_task(self._flow(int(request.query["rate"]), int(request.query["seconds"])))  # noqa: RUF006
        return web.Response()

    async def _flow(self, rate: int, seconds: int) -> None:
        total, begin = rate * seconds, time.monotonic()
        while self.sent < total:
            due = min(int((time.monotonic() - begin) * rate) + 1, total)
            lines = []
            for number in range(self.sent, due):
                turn = number // self.nodes
                made = node(number % self.nodes, number + 1, ready=number % 100 != 0 or turn % 2 == 0)
                lines.append(json.dumps({"type": "MODIFIED", "object": made}).encode())
            chunk = b"\n".join(lines) + b"\n"
            self.sent = due
            for stream in self._streams:
                await stream.write(chunk)
            await asyncio.sleep(TURN_SECONDS)
        self.done = True

    async def flooded(self, _: web.Request) -> web.Response:
        """How far it is."""
        return web.json_response({"sent": self.sent, "done": self.done, "time": time.time()})


def application(nodes: int, pods: int, maps: list[Object], replay: Replay | None = None) -> web.Application:
    """The server; `replay`: its memory, where somebody else wants to write into it."""
    replay, app = replay or Replay(nodes, pods, maps), web.Application()
    app.router.add_get("/flood", replay.flood)
    app.router.add_get("/flooded", replay.flooded)
    app.router.add_get("/{path:.*}", replay.collection)
    return app


def main() -> int:
    """Entry point."""
    address, port, nodes, pods, maps = sys.argv[1:6]
    listed = json.loads(open(maps, encoding="utf-8").read()) if maps != "-" else []  # noqa: PTH123, SIM115
    app = application(int(nodes), int(pods), listed)
    web.run_app(app, host=address, port=int(port), print=None, access_log=None)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
