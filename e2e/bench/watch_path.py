"""The operator's way of a fact, from the bytes of a watch to the jobs, in a process of its own.

    python -m e2e.bench.watch_path URL FILE [--flood RATE SECONDS]

Informers, parsers, fault store, breaker, capacity and core are the operator's, the server is a replayed one
(e2e.bench.replay_server), and no job is there. Written to FILE as JSON: when everything was listed and the first fault
was told, the memory then, and for a flood how many events were taken in, how long after its end, and the memory after.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any, cast

import aiohttp

from hajob.api.base import Json
from hajob.app.core import OperatorCore
from hajob.capacity.caches import Caches
from hajob.clock import SystemClock
from hajob.faults.watch import FaultListener, FaultWatch, ReadObject
from hajob.job.ports import Ports
from hajob.kube.credentials import ApiCredentials
from hajob.kube.http import HttpKube
from hajob.kube.informer import Change, ChangeType, Informer, Selection
from hajob.sources import node as node_source
from hajob.sources import pod as pod_source
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView


def resident_mib() -> float:
    """Memory of this process now."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


class WatchPath(FaultListener):
    """What the operator wires (hajob.app.operator), as far as facts go."""

    def __init__(self, kube: HttpKube) -> None:
        clock = SystemClock()
        self.caches, self.events, self.told, self.held = Caches(), 0, list[float](), list[str]()
        self.newest: dict[str, int] = {}
        self.core = OperatorCore(cast("Ports", _NoPorts()), self.caches)
        namespaces = ("kube-system",)
        self.faults = FaultWatch(kube, clock, self.caches, namespaces)
        self.faults.listeners.append(self)
        self.nodes = Informer(kube, clock, Selection("nodes", large=True), self._read, self._node_changed)
        self.pods = Informer(kube, clock, Selection("pods", large=True), pod_source.pod_view_of, self._pod_changed)

    def _read(self, raw: Json) -> tuple[NodeView, ReadObject]:
        return node_source.node_view_of(raw), self.faults.read_node_faults(raw)

    def _node_changed(self, change: Change[tuple[NodeView, ReadObject]]) -> None:
        node, found = change.value
        self.events += 1
        self.newest[node.name] = int(node.labels["change"])
        self.core.handle_changed_node(node, deleted=change.type is ChangeType.DELETED)
        self.faults.apply_node(node.name, found)

    def _pod_changed(self, change: Change[PodView]) -> None:
        self.core.handle_changed_pod(change.value, deleted=change.type is ChangeType.DELETED)

    def handle_changed_faults(self, nodes: frozenset[str]) -> None:
        """First what saves a training."""
        self.told.append(time.time())
        self.core.handle_changed_faults(nodes)

    def handle_breaker_change(self, held: str) -> None:
        """The breaker opened, or closed."""
        self.held.append(held)


class _NoPorts:
    """No job is there that would ask for any."""

    capacity_watchers: frozenset[str] = frozenset()


async def measure(url: str, flood: tuple[int, int] | None) -> dict[str, Any]:
    """The numbers."""
    async with HttpKube(ApiCredentials(url)) as kube:
        path = WatchPath(kube)
        all_: list[Informer[Any]] = [path.pods, path.nodes, *path.faults.informers]
        tasks = [asyncio.create_task(informer.list_and_watch()) for informer in all_]
        await asyncio.gather(*(informer.synced.wait() for informer in all_))
        gc.freeze()
        listed = time.time()
        found: dict[str, Any] = {
            "listed": listed,
            "told": path.told[:1],
            "mib": resident_mib(),
            "pods": len(path.caches.pods),
        }
        if flood is not None:
            await asyncio.sleep(1)
            found |= await _flood(path, url, *flood)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return found


async def _flood(path: WatchPath, url: str, rate: int, seconds: int) -> dict[str, Any]:
    begin, expected, half = path.events, rate * seconds, 0.0
    async with aiohttp.ClientSession() as session:
        await session.get(f"{url}/flood?rate={rate}&seconds={seconds}")
        while True:
            await asyncio.sleep(0.05)
            taken = path.events - begin
            if not half and taken >= expected // 2:
                half = resident_mib()
            async with session.get(f"{url}/flooded") as answer:
                told = await answer.json()
            if told["done"]:
                break
        ended = time.time()
        while path.events - begin < expected and time.time() - ended < 60:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    return {
        "expected": expected,
        "taken": path.events - begin,
        "newest": max(path.newest.values()),
        "after_seconds": time.time() - ended,
        "mib_half": half,
        "mib_end": resident_mib(),
    }


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("file", type=Path)
    parser.add_argument("--flood", type=int, nargs=2, metavar=("RATE", "SECONDS"))
    options = parser.parse_args()
    flood = tuple(options.flood) if options.flood else None
    found = asyncio.run(measure(options.url, cast("tuple[int, int] | None", flood)))
    options.file.write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
