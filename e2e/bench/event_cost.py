"""What one event costs the operator's core, and what a full cluster takes of its memory: no API server, no network.

    python -m e2e.bench.event_cost NODES JOBS PODS_PER_JOB

Objects come as the bytes of a watch and go through the informers' projections; job controllers, planner and caches are
the real ones, writes are taken by a server that forgets them, and no coordinator is dialled. A process of its own, so
that its memory is that of an operator with nothing else in it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import orjson

from e2e.bench.operator_core import MemoryApi
from e2e.cluster.kwok import CHIPS, node
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.app import memory_tuning
from hajob.app import operator as app
from hajob.app.core import OperatorCore
from hajob.capacity.caches import Caches
from hajob.clock import SystemClock
from hajob.coordinator_link.channel import Channel, ChannelListener, CoordinatorCredentials, Dialer
from hajob.job.cluster import Cluster
from hajob.job.ports import Ports
from hajob.kube.events import Announcer
from hajob.leader.leadership import Leadership
from hajob.pki.authority_store import AuthorityStore
from hajob.pods.rank_pod import build_rank_pod
from hajob.pods.settings import PodSettings
from hajob.sources import node as node_source
from hajob.sources import pod as pod_source

EVENTS: Final = 5000
SETTLE_SECONDS: Final = 8.0
NAMESPACE: Final = "default"


@dataclass(frozen=True)
class Cost:
    """Of one size of cluster.

    Attributes:
        pod_milliseconds: of processor time for each event of a pod, from the bytes on.
        node_milliseconds: the same of a node.
        memory: MiB of the process when everything is known and quiet.
    """

    pod_milliseconds: float
    node_milliseconds: float
    memory: float


class NoLink(Channel):
    """Nobody is dialled."""

    def __init__(self, address: str) -> None:
        self.address = address

    def start_dialling(self) -> None:
        """Nothing."""

    def dial_at_once(self) -> None:
        """Nothing."""

    async def close_channel(self) -> None:
        """Nothing."""

    def send_assignment(self, assignment: object) -> None:
        """Nothing."""

    def send_order(self, order: object) -> None:
        """Nothing."""

    def acknowledge_report(self, sequence: int) -> None:
        """Nothing."""


class ForgetfulApi(MemoryApi):
    """Takes everything; a pod that is made runs at once, and is not kept.

    Attributes:
        made: how many pods were made.
        nodes: over how many they are spread.
        tell: called with the bytes of each, as a watch would bring it.
    """

    def __init__(self) -> None:
        super().__init__(Path("/nonexistent"), {})
        self.made, self.nodes = 0, 1
        self.tell: Callable[[bytes], None] = lambda _: None
        self._awaited = 0
        self._all = asyncio.Event()

    async def complete(self, count: int) -> None:
        """Wait until so many pods are made."""
        self._awaited = count
        if self.made < count:
            await self._all.wait()

    async def create_object(self, resource: str, namespace: str, body: Json, *, dry_run: bool = False) -> Json:
        """Nothing is kept."""
        del namespace
        if resource == "pods" and not dry_run:
            asyncio.get_running_loop().call_soon(self.tell, running(body, self.made % self.nodes))
            self.made += 1
            if self.made == self._awaited:
                self._all.set()
        return body


def _job(number: int, pods: int) -> Json:
    container: Json = {"name": "trainer", "image": "example/trainer:1", "command": ["bash", "train.sh"]}
    container["volumeMounts"] = [{"name": "shared", "mountPath": "/ckpt"}]
    volume = {"name": "shared", "hostPath": {"path": "/shared"}}
    container |= {"env": [{"name": f"VARIABLE_{n}", "value": "x" * 60} for n in range(30)]}  # as long as real ones
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": f"job-{number}", "namespace": NAMESPACE, "uid": f"uid-{number}", "generation": 1},
        "spec": {
            "accelerator": {"product": "A2"},
            "numNodes": pods,
            "parallelism": {"tensor": CHIPS},
            "checkpoint": {"path": "/ckpt"},
            "template": {"spec": {"containers": [container], "volumes": [volume]}},
        },
    }


def running(pod: Json, number: int, message: str = "") -> bytes:
    """A pod as the watch brings it once it runs; `number`: of its node."""
    metadata = {**pod["metadata"], "uid": f"uid-of-{pod['metadata']['name']}"}
    kinds = ("Initialized", "PodScheduled", "Ready")
    conditions = [{"type": kind, "status": "True", "message": message} for kind in kinds]
    status = {
        "phase": "Running",
        "podIP": f"10.{len(message)}.{number // 250}.{number % 250}",
        "conditions": conditions,
    }
    return orjson.dumps(
        {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": f"node-{number}"}, "status": status}
    )


class NoDialer(Dialer):
    """Makes channels that lead nowhere."""

    def dial(
        self, address: str, job_uid: str, credentials: CoordinatorCredentials, listener: ChannelListener
    ) -> NoLink:
        """Make one."""
        del job_uid, credentials, listener
        return NoLink(address)


class Bench:
    """One core and its cluster."""

    def __init__(self, nodes: int, jobs: int, pods: int) -> None:
        self.size = (nodes, jobs, pods)
        self.api, self.clock, self.caches = ForgetfulApi(), SystemClock(), Caches()
        self.core = OperatorCore(self._ports(), self.caches)
        self.core.note_complete_pods()
        self.api.tell = self.pod

    def _ports(self) -> Ports:
        return Ports(
            kube=self.api,
            clock=self.clock,
            dialer=NoDialer(Leadership(), self.clock),
            announcer=Announcer(self.api, self.clock, "bench"),
            pod_settings=PodSettings(sidecar_image="hajob/sidecar:dev"),
            authorities=AuthorityStore(self.api, self.clock, NAMESPACE, timedelta(days=365)),
            leadership=Leadership(),
            cluster=Cluster(self.clock, self.caches.capacity),
        )

    def node(self, number: int, label: str = "") -> None:
        """An event of a node, as its bytes."""
        chips = CHIPS * max(1, self.size[1] * self.size[2] // self.size[0])
        body = node(f"node-{number}", chips, {"version": label})
        body["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        self._node(orjson.dumps(body))

    def _node(self, raw: bytes) -> None:
        self.core.handle_changed_node(node_source.node_view_of(orjson.loads(raw)), deleted=False)

    def pod(self, raw: bytes) -> None:
        """An event of a pod, as its bytes."""
        self.core.handle_changed_pod(pod_source.pod_view_of(orjson.loads(raw)), deleted=False)

    async def run(self) -> Cost:
        """Fill the cluster, let it become quiet, then time events."""
        nodes, jobs, pods = self.size
        self.api.nodes = nodes
        for number in range(nodes):
            self.node(number)
        for number in range(jobs):
            self.core.handle_job(_job(number, pods))
        await self.api.complete(jobs * (pods + 1))
        await asyncio.sleep(SETTLE_SECONDS)
        gc.collect()
        memory_tuning.trim_memory()  # as an operator does each minute
        memory = _resident()
        pod_cost = await self._time(self.pod, self._sample())
        chips = CHIPS * max(1, jobs * pods // nodes)
        bodies = [node(f"node-{number % nodes}", chips, {"version": f"b{number}"}) for number in range(EVENTS)]
        for body in bodies:
            body["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        node_cost = await self._time(self._node, [orjson.dumps(body) for body in bodies])
        await self.core.close_controllers()
        return Cost(pod_cost, node_cost, memory)

    def _sample(self) -> list[bytes]:
        """An event of each of so many pods: it has another address."""
        settings, found = PodSettings(sidecar_image="hajob/sidecar:dev"), list[bytes]()
        nodes, jobs, pods = self.size
        for number in range(min(EVENTS, jobs * pods)):
            job = HATrainingJob.from_object(_job(number // pods, pods))
            found.append(running(build_rank_pod(job, number % pods, 1, settings), number % nodes, "again"))
        return found

    async def _time(self, tell: Callable[[bytes], None], events: Sequence[bytes]) -> float:
        """Milliseconds of this thread for each event, with what the tasks behind it do."""
        begin = time.thread_time()
        for number, raw in enumerate(events):
            tell(raw)
            if number % 32 == 0:
                await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        return 1000 * (time.thread_time() - begin) / len(events)


def _resident() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def measure(nodes: int, jobs: int, pods: int) -> Cost:
    """The cost in a cluster of this size, in a process of its own."""
    command = [sys.executable, "-m", "e2e.bench.event_cost", str(nodes), str(jobs), str(pods)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def main(arguments: Sequence[str]) -> int:
    """Entry point."""
    assert app  # its imports are part of an operator's memory
    nodes, jobs, pods = map(int, arguments)
    print(json.dumps(asdict(asyncio.run(_run(nodes, jobs, pods)))))
    return 0


async def _run(nodes: int, jobs: int, pods: int) -> Cost:
    return await Bench(nodes, jobs, pods).run()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
