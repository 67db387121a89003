"""Faults of nodes at scale: how soon a job is helped, how much a watch may bring, how fast a rack is isolated.

Five measurements (docs/internals/benchmarks.md says of each what is real in it). The first counts from the API server's
audit log to the stamp of a simulated coordinator; Hajob's own clock is asked nowhere.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from e2e.bench import cold_start, replay_server
from e2e.bench.decision import FIRST_BLOCK, PER_BLOCK, ScriptedCoordinator, trained
from e2e.bench.operator_core import node_of, write_certificates
from e2e.bench.operator_scale import ScaleRig
from e2e.bench.report import Limit, Row, row
from e2e.cluster import audit
from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.kwok import KwokNodes, node
from e2e.cluster.run import Run, free_port
from hajob.api import constants as names
from hajob.cli.injection import Injection, InjectionKind, device_config_map, device_map_name

NODES: Final = 1000
JOBS: Final = 100
NODES_PER_JOB: Final = 4
PODS: Final = 10_000
RATE: Final = 2000
FLOOD_SECONDS: Final = 60
RACK_NODES: Final = 1500
RACK: Final = 150
MAPS: Final = "/api/v1/namespaces/kube-system/configmaps"
RACK_SECONDS: Final = 60.0

Object = dict[str, Any]
Say = Callable[[str], None]


@dataclass
class Found:
    """What was measured: milliseconds of each single fault, seconds, MiB, counts."""

    single: list[float] = field(default_factory=list)
    flood: Object = field(default_factory=dict)
    memory_growth: float = float("nan")
    rack_seconds: float = float("nan")
    rack_isolated: int = 0
    start_seconds: float = float("nan")
    start_mib: float = float("nan")
    cold: cold_start.ColdStart = cold_start.NOT_MEASURED


def _now_ms() -> int:
    return int(time.time() * 1000)


# ------------------------------------------------------------------------------------------------- single faults


def single_faults(count: int, say: Say, nodes: int = NODES) -> list[float]:
    """Milliseconds from a fault's being written to the order at the coordinator of the job that is hit."""
    with Run.start("single faults at scale") as run:
        plane = ControlPlane.start(run)
        uids = [f"job-{number}" for number in range(JOBS)]
        placed = [node_of(uid, rank) for uid in uids for rank in range(NODES_PER_JOB)]
        kwok = KwokNodes.start(plane, nodes - len(placed))
        kwok.add(node(name, 8) for name in placed)
        say(f"{len(kwok.names)} nodes of KWOK, {JOBS} jobs")
        return asyncio.run(_single(run, plane, uids, count))


async def _single(run: Run, plane: ControlPlane, uids: list[str], count: int) -> list[float]:
    directory = run.directory / "faults"
    addresses = _addresses(run, directory, uids)
    since, stamps = audit.now(), dict[tuple[str, int], float]()
    async with trained(run, directory, addresses, str(plane.kubeconfig)) as coordinators:
        writer = FaultWriter(plane, stamps)
        jobs = zip(uids, coordinators, strict=True)
        each = [count // JOBS + (number < count % JOBS) for number in range(JOBS)]
        turns = asyncio.Semaphore(4)
        await asyncio.gather(*(writer.of_job(*job, rounds, turns) for job, rounds in zip(jobs, each, strict=True)))
    await asyncio.sleep(1)
    written: dict[str, list[datetime.datetime]] = {}
    for one in plane.audit.writes(since, namespace="kube-system"):
        if one.resource == "configmaps" and one.status < 300 and one.name.startswith("mindx-dl-deviceinfo-"):
            written.setdefault(one.name, []).append(one.answered)
    return [
        1000 * (stamp - written[name][number].timestamp())
        for (name, number), stamp in stamps.items()
        if name in written
    ]


def replayed_faults(count: int, nodes: int = NODES) -> list[float]:
    """As `single_faults`, from a replayed watch instead of an API server: from the byte that leaves it to the order."""
    with Run.start("single faults from a replayed watch") as run:
        return asyncio.run(_replayed_faults(run, count, nodes))


async def _replayed_faults(run: Run, count: int, nodes: int) -> list[float]:
    directory, uids = run.directory / "faults", [f"job-{number}" for number in range(JOBS)]
    placed = [node_of(uid, rank) for uid in uids for rank in range(NODES_PER_JOB)]
    replay = replay_server.Replay(nodes - len(placed), 0, [])
    replay.lists["nodes"] += [_named(name) for name in placed]
    runner = web.AppRunner(replay_server.application(0, 0, [], replay), access_log=None)
    await runner.setup()
    host = run.address(0, 60)
    port = free_port(host, 8099)
    await web.TCPSite(runner, host, port).start()
    written: list[float] = []
    stamps: list[float] = []
    async with trained(run, directory, _addresses(run, directory, uids), f"http://{host}:{port}") as coordinators:
        for number in range(count):
            uid, coordinator = uids[number % JOBS], coordinators[number % JOBS]
            name, code = node_of(uid, number // JOBS % NODES_PER_JOB), f"80AA{number:04X}"
            coordinator.train()
            await asyncio.sleep(0.02)
            injection = Injection.with_usual_values(InjectionKind.CHIP, name, number % 8, code, "RestartRequest")
            written.append(await replay.write(device_config_map(None, injection, _now_ms())))
            stamps.append(await coordinator.ordered())
            await replay.write(
                device_config_map(None, Injection.with_usual_values(InjectionKind.RECOVER, name), _now_ms())
            )
    await runner.cleanup()
    return [1000 * (stamp - when) for stamp, when in zip(stamps, written, strict=True)]


def _named(name: str) -> Object:
    made = replay_server.node(0)
    made["metadata"] |= {"name": name, "uid": name}
    return made


def _addresses(run: Run, directory: Path, uids: list[str]) -> dict[str, str]:
    """Of the coordinators, by job UID; each gets its certificates."""
    for uid in uids:
        write_certificates(directory, uid)
    return {
        uid: run.address(FIRST_BLOCK + number // PER_BLOCK, 2 + number % PER_BLOCK) for number, uid in enumerate(uids)
    }


class FaultWriter:
    """Writes faults and recoveries as a device plugin would, and keeps when the coordinator was ordered."""

    def __init__(self, plane: ControlPlane, stamps: dict[tuple[str, int], float]) -> None:
        self._plane, self._stamps = plane, stamps
        self._written: dict[str, int] = {}

    async def of_job(self, uid: str, coordinator: ScriptedCoordinator, rounds: int, turns: asyncio.Semaphore) -> None:
        """Single faults of one job, one after the other; each is over before the next."""
        for number in range(rounds):
            async with turns:
                await self._round(node_of(uid, number % NODES_PER_JOB), number, coordinator)
            await asyncio.sleep(0.2)

    async def _round(self, name: str, number: int, coordinator: ScriptedCoordinator) -> None:
        coordinator.train()
        await asyncio.sleep(0.05)
        code, chip = f"80AA{number:04X}", number % 8
        injection = Injection.with_usual_values(InjectionKind.CHIP, name, chip, code, "RestartRequest")
        begun = asyncio.create_task(coordinator.ordered())
        place = await asyncio.to_thread(self._put, injection)
        self._stamps[device_map_name(name), place] = await begun
        await asyncio.sleep(0.05)
        await asyncio.to_thread(self._put, Injection.with_usual_values(InjectionKind.RECOVER, name))

    def _put(self, injection: Injection) -> int:
        """Which write of this object it was, from 0."""
        name = device_map_name(injection.node)
        body, place = device_config_map(None, injection, _now_ms()), self._written.get(name, 0)
        self._written[name] = place + 1
        if place:
            self._plane.api.request("PUT", f"{MAPS}/{name}", body)
        else:
            self._plane.api.create(MAPS, body)
        return place


# ------------------------------------------------------------------------------------------------- a replayed watch


def replayed(say: Say, seconds: int = FLOOD_SECONDS) -> tuple[Object, float]:
    """What the watch path says of a flood of node events, and when it was begun; nodes, pods and a fault are listed."""
    with Run.start("a replayed watch") as run:
        broken = device_config_map(None, Injection.with_usual_values(InjectionKind.CHIP, "node-5", 3), _now_ms())
        broken["metadata"] |= {"resourceVersion": "1", "uid": "broken"}
        maps, result = run.directory / "maps.json", run.directory / "watch.json"
        maps.write_text(json.dumps([broken]), encoding="utf-8")
        host = run.address(0, 60)
        port = free_port(host, 8099)
        server = [sys.executable, "-m", "e2e.bench.replay_server", host, str(port), str(NODES), str(PODS), str(maps)]
        run.spawn("replay-server", server, {})
        time.sleep(8)
        say(f"{RATE} node events a second for {seconds} s")
        began = time.time()
        path = [sys.executable, "-m", "e2e.bench.watch_path", f"http://{host}:{port}", str(result)]
        process = run.spawn("watch-path", [*path, "--flood", str(RATE), str(seconds)], {})
        process.wait(seconds + 240)
        found: Object = json.loads(result.read_text(encoding="utf-8"))
        return found, began


# ------------------------------------------------------------------------------------------------- a rack


def rack(say: Say, nodes: int = RACK_NODES, broken: int = RACK) -> tuple[float, int]:
    """Seconds from the last of so many faults to the last NodeQuarantine, by the audit log; how many there are."""
    with ScaleRig.start(nodes, say) as rig:
        settings = {"name": "hajob-faults", "labels": {"training.hajob.io/settings": "faults"}}
        data = {"breaker": "{sharePercent: 50}", "quarantine": "idleChips: true"}  # no job runs on the rack
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": settings, "data": data}
        rig.plane.api.create("/api/v1/namespaces/default/configmaps", body)
        operator = rig.start_operator()
        rig.plane.wait("the operator to lead", lambda: operator.metric("hajob_leader") == 1, 60)
        time.sleep(5)
        since, say_nodes = audit.now(), rig.nodes.names[:broken]
        bodies = [
            device_config_map(None, Injection.with_usual_values(InjectionKind.CHIP, name, 0), _now_ms())
            for name in say_nodes
        ]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda one: rig.plane.api.create(MAPS, one), bodies))
        path = f"/apis/{names.API_VERSION}/{names.QUARANTINES}"
        rig.plane.wait("the quarantines", lambda: len(rig.plane.api.items(path)) >= broken, RACK_SECONDS)
        time.sleep(1)
        done = rig.plane.audit.writes(since)
        faults = [one.answered for one in done if one.resource == "configmaps" and "deviceinfo" in one.name]
        made = [one.answered for one in done if one.resource == names.QUARANTINES and one.status < 300]
        say(f"the operator has {operator.memory():.0f} MiB, at most {operator.memory('VmHWM'):.0f}")
        say(f"{len(faults)} faults within {(max(faults) - min(faults)).total_seconds():.2f} s")
        return (max(made) - min(faults)).total_seconds(), len(made)


def measure(say: Say, faults: int = 1000, seconds: int = FLOOD_SECONDS) -> Found:
    """All five."""
    found = Found(single=single_faults(faults, say))
    found.flood, began = replayed(say, seconds)
    found.memory_growth = found.flood["mib_end"] - found.flood["mib_half"]
    found.start_seconds, found.start_mib = found.flood["told"][0] - began, found.flood["mib"]
    found.rack_seconds, found.rack_isolated = rack(say)
    found.cold = cold_start.measure(say)
    return found


def rows(found: Found) -> list[Row]:
    """The numbers beside their limits."""
    single, flood = sorted(found.single), found.flood
    late = [single[min(int(len(single) * 0.99), len(single) - 1)]] if single else []
    words, many = f"{NODES} nodes, {JOBS} jobs: fault written -> order", f"{RATE} node events/s"
    return [
        row(words, "ms", single, Limit("p50", 50)),
        row(f"{words}, 99th of 100", "ms", late, Limit("max", 250)),
        row(f"{many}: lost", "", [flood["expected"] - flood["taken"]], Limit("max", 0)),
        row(f"{many}: backlog gone after the end", "s", [flood["after_seconds"]], Limit("max", 5)),
        row(f"{many}: memory grown in its second half", "MiB", [found.memory_growth], Limit("max", 5)),
        row(f"{NODES} nodes, {PODS} pods: process begun -> fault told", "s", [found.start_seconds], Limit("max", 4)),
        row(f"{NODES} nodes, {PODS} pods: memory of the watch path", "MiB", [found.start_mib], Limit("max", 120)),
        row(
            f"{NODES} nodes, {PODS} pods: operator begun -> order about a fault before it",
            "s",
            [found.cold.seconds],
            Limit("max", 4),
        ),
        row(f"{NODES} nodes, {PODS} pods: memory of the operator", "MiB", [found.cold.mib], Limit("max", 120)),
        row(f"{RACK} of {RACK_NODES} nodes broken -> quarantined", "s", [found.rack_seconds], Limit("max", 3)),
        row(f"{RACK} of {RACK_NODES} nodes: quarantines", "", [found.rack_isolated]),
    ]


def main() -> int:
    """One by name: `single FAULTS [NODES]`, `replayed-single FAULTS`, `replay SECONDS`, `rack [NODES BROKEN]`."""
    which, say = sys.argv[1], print
    numbers = [int(word) for word in sys.argv[2:]]
    if which == "single":
        values = sorted(single_faults(numbers[0], say, *numbers[1:]))
        print(len(values), "p50", values[len(values) // 2], "p99", values[int(len(values) * 0.99)], "most", values[-1])
    elif which == "replayed-single":
        values = sorted(replayed_faults(numbers[0]))
        print(len(values), "p50", values[len(values) // 2], "p99", values[int(len(values) * 0.99)], "most", values[-1])
    elif which == "replay":
        print(replayed(say, numbers[0]))
    else:
        print(rack(say, *numbers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
