"""Jobs that train on a real API server, with nothing behind their pods: an operator cannot tell the difference.

Pods are placed by the real scheduler on nodes of this test and told to run by one thread that plays all their kubelets;
each coordinator is scripted (`e2e.bench.decision`) and carries out what it is ordered. So whole recoveries are cheap,
and dozens of jobs fit into one control plane with one operator's process.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from copy import deepcopy
from typing import Any

import grpc.aio

from e2e.bench.decision import serve
from e2e.bench.obedient_coordinator import ObedientCoordinator, certificates_of, token_of
from e2e.cluster.control_plane import ControlPlane
from e2e.harness import blocks
from hajob.api import constants as names
from tests.integration.operator.bare_nodes import bare_node, living_nodes
from tests.rigs.jobs_on_server import QUICKSTART, path_of_jobs

Object = dict[str, Any]
CHIPS = 2
HALL = "hall"
"""Label of the one node of all coordinators."""
LANE = "lane"
"""Label of the nodes of one job."""
PATIENCE_SECONDS = 120.0
LOOK_SECONDS = 0.5


class ScriptedJobs:
    """All jobs of a test in one namespace, and what is there, kept current by watches.

    Attributes:
        pods, jobs, quarantines: what is there, by name; quarantines of other tests are among them.
        coordinators: the newest of each job, by the job's name.
        stalling: names of jobs whose next coordinators carry out nothing.
    """

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace
        self.pods: dict[str, Object] = {}
        self.jobs: dict[str, Object] = {}
        self.quarantines: dict[str, Object] = {}
        self.coordinators: dict[str, ObedientCoordinator] = {}
        self.stalling: set[str] = set()
        self._servers: dict[str, grpc.aio.Server] = {}
        self._begun: set[str] = set()
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._block = blocks.claim(plane.run.directory, 1)
        self._numbers = itertools.count(2)
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """Pods run once they are placed, and are gone once they are deleted, for as long as this lasts."""
        stop, loop = threading.Event(), asyncio.get_running_loop()
        quarantines = f"/apis/{names.API_VERSION}/{names.QUARANTINES}"
        watched = ((self._pods, self.pods), (path_of_jobs(self.namespace), self.jobs), (quarantines, self.quarantines))
        for path, kept in watched:
            threading.Thread(target=self._follow, args=(path, kept, loop, stop), daemon=True).start()
        try:
            yield
        finally:
            stop.set()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.gather(*(server.stop(None) for server in self._servers.values()))
            blocks.give_back(self.plane.run.directory, self._block)

    def _follow(
        self, path: str, kept: dict[str, Object], loop: asyncio.AbstractEventLoop, stop: threading.Event
    ) -> None:
        version = ""
        while not stop.is_set():
            query = {"resourceVersion": version} if version else {}
            for event in self.plane.client("admin").watch(path, 600.0, **query):
                if stop.is_set():
                    return
                if event.get("type", "ERROR") == "ERROR":
                    version = ""
                    break
                version = event["object"]["metadata"]["resourceVersion"]
                loop.call_soon_threadsafe(self._seen, kept, event)

    def _seen(self, kept: dict[str, Object], event: Object) -> None:
        name = event["object"]["metadata"]["name"]
        if event["type"] == "DELETED":
            kept.pop(name, None)
        else:
            kept[name] = event["object"]
            if kept is self.pods:
                self._pod_seen(event["object"])
        self._changed.set()

    async def until(self, what: str, condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
        """Wait for it; it is asked whenever something has changed."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), LOOK_SECONDS)
        except TimeoutError:
            raise AssertionError(f"not within {seconds:.0f} s: {what}") from None

    # ------------------------------------------------------------------------------------------------ all kubelets

    def _pod_seen(self, pod: Object) -> None:
        going, placed = "deletionTimestamp" in pod["metadata"], bool(pod["spec"].get("nodeName"))
        key = f"{pod['metadata']['uid']}/{'end' if going else 'begin'}"
        if key in self._begun or not (going or placed):
            return
        self._begun.add(key)
        task = asyncio.create_task(self._end(pod) if going else self._begin(pod))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _begin(self, pod: Object) -> None:
        address = self.plane.run.address(self._block, 2 + next(self._numbers) % 250)
        metadata = pod["metadata"]
        if metadata["labels"].get(names.LABEL_ROLE) == names.ROLE_COORDINATOR:
            await self._serve(pod, address)
        await asyncio.to_thread(self.plane.api.merge, f"{self._pods}/{metadata['name']}/status", _running(pod, address))

    async def _serve(self, pod: Object, address: str) -> None:
        metadata = pod["metadata"]
        job = metadata["labels"][names.LABEL_JOB_NAME]
        coordinator = ObedientCoordinator(metadata["labels"][names.LABEL_JOB_UID], metadata["uid"])
        coordinator.num_nodes = self.jobs[job]["spec"]["numNodes"]
        coordinator.token = await asyncio.to_thread(token_of, self.plane, pod)
        files = await asyncio.to_thread(certificates_of, self.plane, pod)
        coordinator.stalls = job in self.stalling
        if (before := self.coordinators.get(job)) is not None:
            coordinator.given, coordinator.step = before.given, before.step
        self.coordinators[job] = coordinator
        self._servers[metadata["uid"]] = await serve(coordinator, address, files)

    async def _end(self, pod: Object) -> None:
        await self.hang_up(pod["metadata"]["uid"])
        path = f"{self._pods}/{pod['metadata']['name']}"
        await asyncio.to_thread(self.plane.api.delete, path, gracePeriodSeconds=0)

    async def hang_up(self, uid: str) -> None:
        """The coordinator in this pod, if there is one, answers no more."""
        server = self._servers.pop(uid, None)
        if server is not None:
            await server.stop(None)

    # ------------------------------------------------------------------------------------------------ what is there

    def apply(self, name: str, num_nodes: int, recovery: Object) -> None:
        """A job of this name, whose pods go to its own nodes, and which may be recovered as often as the test likes."""
        body = deepcopy(QUICKSTART)
        body["metadata"] = {"name": name, "namespace": self.namespace}
        actions = [
            {"name": action, "maxCount": 1000} for action in ("Retry", "InPlace", "Replace", "Checkpoint", "Restart")
        ]
        body["spec"] |= {"numNodes": num_nodes, "recovery": {"actions": actions, **recovery}}
        body["spec"]["template"]["spec"]["nodeSelector"] = {LANE: f"{self.namespace}-{name}"}
        body["spec"]["coordinator"] = {"nodeSelector": {HALL: self.namespace}}
        self.plane.api.create(path_of_jobs(self.namespace), body)

    def status(self, job: str) -> Object:
        found: Object = self.jobs.get(job, {}).get("status") or {}
        return found

    def state(self, job: str) -> str:
        """In one word."""
        return str((self.status(job).get("summary") or {}).get("state"))

    def rank_pods(self, job: str) -> dict[int, list[Object]]:
        """Rank pods that are there, by node rank."""
        found: dict[int, list[Object]] = {}
        for pod in self.pods.values():
            labels = pod["metadata"]["labels"]
            if (labels[names.LABEL_JOB_NAME], labels[names.LABEL_ROLE]) == (job, names.ROLE_RANK):
                found.setdefault(int(labels[names.LABEL_NODE_RANK]), []).append(pod)
        return found

    def kept_out(self, node: str) -> str:
        """Why no new pod is placed there; empty: it may be."""
        found = self.quarantines.get(node, {})
        return str(found["spec"]["reason"]) if (found.get("status") or {}).get("state") == "Active" else ""


def _running(pod: Object, address: str) -> Object:
    """What kubelet and device plugin say of a pod that runs."""
    chips = [f"Ascend910-{number}" for number in range(CHIPS)]
    devices = [{"device_id": str(number), "device_ip": ""} for number in range(CHIPS)]
    told = {"pod_name": pod["metadata"]["name"], "server_id": pod["metadata"]["uid"], "devices": devices}
    annotations = {
        "huawei.com/AscendReal": ",".join(chips),
        "ascend.kubectl.kubernetes.io/ascend-910-configuration": json.dumps(told),
    }
    containers = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": container["image"],
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}},
        }
        for container in pod["spec"]["containers"]
    ]
    ready = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": ready}
    is_rank = pod["metadata"]["labels"].get(names.LABEL_ROLE) == names.ROLE_RANK
    return {
        "metadata": {"annotations": annotations} if is_rank else {},
        "status": {**status, "containerStatuses": containers},
    }


@contextmanager
def lane_nodes(plane: ControlPlane, pool: str, counts: dict[str, int]) -> Iterator[None]:
    """So many nodes for each job, and one for all coordinators: ready for as long as this lasts."""
    bodies = [
        bare_node(f"{pool}-{lane}-{number}", {"pool": pool, LANE: f"{pool}-{lane}"}, CHIPS)
        for lane, count in counts.items()
        for number in range(count)
    ]
    hall = bare_node(f"{pool}-{HALL}", {"pool": pool, HALL: pool}, 0)
    with living_nodes(plane, pool, [*bodies, hall]):
        yield
