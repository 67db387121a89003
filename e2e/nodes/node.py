"""A simulated node: registration, Lease, pods, and everything that can happen to a machine.

The node owns two gates. ``power`` is closed while the machine is off: nothing of it acts, nothing closes a
connection. ``wire`` is closed while only its way to the API server is cut: its pods go on. Pods themselves are in
:mod:`e2e.nodes.pod`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
import time
import uuid

from e2e.nodes import machine
from e2e.nodes.api import MERGE, STRATEGIC, ApiGate, NodeApiError, follow
from e2e.nodes.config import JsonObject, NodeSettings
from e2e.nodes.context import NodeContext
from e2e.nodes.device_reports import DeviceReports
from e2e.nodes.kubelet_server import KubeletServer
from e2e.nodes.pod import PodWorker
from e2e.nodes.processes import STOPPED, send_signal, until_stopped
from e2e.nodes.tasks import end_tasks, start_task

log = logging.getLogger(__name__)

_STATUS_SECONDS = 300.0
_RETRY_SECONDS = 0.2
_ENDED = {"Succeeded", "Failed"}


class Node:
    """One node of the set."""

    def __init__(self, settings: NodeSettings, context: NodeContext, wire: ApiGate, server: KubeletServer) -> None:
        self.settings = settings
        self.context = context
        self.wire = wire
        self.reports = DeviceReports(context)
        self._server = server
        context.chips.changed = self.reports.changed
        self.pods: dict[str, PodWorker] = {}
        self._leaving: dict[asyncio.Task[None], PodWorker] = {}
        self._numbers = itertools.count(1)
        self._tasks: list[asyncio.Task[None]] = []
        self._boot_id = str(uuid.uuid4())
        self._up_since = time.time()
        self._uid = ""
        self._registered = asyncio.Event()
        self._frozen_by_power: list[int] = []

    @property
    def name(self) -> str:
        """The node's name."""
        return self.settings.name

    async def start(self) -> None:
        """Register and begin to run pods; returns when the node is registered."""
        await self._server.start(self)
        self._begin()
        await self._registered.wait()

    async def close(self) -> None:
        """End the node's own work and kill what runs on it. Objects stay as they are: the cluster ends, too."""
        markers = self.markers()
        await self._halt()
        await asyncio.gather(*(worker.close() for worker in self.workers()))
        self.context.processes.signal(markers, signal.SIGKILL)
        await self._server.close()
        await self.context.client.close()
        await self.context.device_client.close()

    def workers(self) -> list[PodWorker]:
        """All pods, those included whose object is gone while something of them still runs."""
        return [*self.pods.values(), *self._leaving.values()]

    def markers(self) -> list[str]:
        """The process markers of all containers of the node."""
        return [container.marker for worker in self.workers() for container in worker.containers]

    async def power_off(self) -> int:
        """Stop the machine dead; returns the number of processes that were stopped."""
        self.context.power.close()
        processes, markers = self.context.processes, self.markers()
        frozen = {e.pid for entries in processes.members(markers).values() for e in entries if e.state == STOPPED}
        stopped = processes.signal(markers, signal.SIGSTOP)
        self._frozen_by_power = [pid for pid in stopped if pid not in frozen]
        await until_stopped(stopped)
        return len(stopped)

    def thaw(self) -> int:
        """The machine goes on exactly where it stopped, as after a long freeze.

        What was frozen one by one before it was switched off stays frozen.
        """
        count = sum(send_signal(pid, signal.SIGCONT) for pid in self._frozen_by_power)
        self._frozen_by_power = []
        self.context.power.open()
        return count

    async def power_on(self) -> None:
        """The machine boots: what ran is dead, the node registers anew, its pods are found as after a reboot."""
        await self._halt()
        self._frozen_by_power = []
        leaving = list(self._leaving.values())
        dead = [container for worker in self.workers() for container in worker.containers]
        await asyncio.gather(*(worker.lose() for worker in self.workers()))
        self.context.processes.signal([container.marker for container in dead], signal.SIGKILL)
        await asyncio.gather(*(container.process.exited for container in dead if container.process))
        await self.context.client.close()
        await self.context.device_client.close()
        self.context.power.open()
        self._boot_id, self._up_since = str(uuid.uuid4()), time.time()
        await asyncio.gather(*(worker.close() for worker in leaving))
        for worker in self.pods.values():
            worker.boot()
        self._begin()
        if self.wire.is_open:
            await self._registered.wait()

    async def write_status(self) -> None:
        """Write the node's status as it is when the server can be reached, until it is written."""
        while True:
            await self._reachable()
            body = {"status": self._status()}
            try:
                path = f"/api/v1/nodes/{self.name}/status"
                await self.context.client.request("PATCH", path, body, content_type=STRATEGIC)
            except NodeApiError as error:
                log.warning("%s: %s", self.name, error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    async def _reachable(self) -> None:
        """Wait until the node is on and not cut off, so that what is written next is as fresh as it says."""
        await self.context.power.passed()
        await self.wire.passed()

    def write_status_later(self) -> None:
        """Write the status in the background: a node that is off or cut off does it when it is back."""
        task = start_task(self.write_status())
        self._tasks.append(task)

    def _begin(self) -> None:
        self._registered.clear()
        self._tasks = [start_task(self._live())]

    async def _live(self) -> None:
        await self._register()
        self._registered.set()
        async with asyncio.TaskGroup() as group:
            for work in (self._renew_lease(), self._renew_status(), self._follow_pods(), self.reports.publish()):
                group.create_task(work)

    async def _halt(self) -> None:
        await end_tasks(*self._tasks)
        self._tasks = []

    async def _register(self) -> None:
        """Create the node's object or take over the one that is there, until that has worked."""
        while True:
            try:
                self._uid = await self._create_or_take_over()
            except NodeApiError as error:
                log.warning("%s: cannot register: %s", self.name, error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    async def _create_or_take_over(self) -> str:
        client = self.context.client
        try:
            body = machine.node_object(self.settings, self.context.chips.resource, self._status())
            node = await client.request("POST", "/api/v1/nodes", body)
        except NodeApiError as error:
            if error.status != 409:
                raise
            metadata = {"metadata": {"labels": machine.labels(self.settings)}}
            node = await client.request("PATCH", f"/api/v1/nodes/{self.name}", metadata, content_type=STRATEGIC)
            await self.write_status()
        return str(node["metadata"]["uid"])

    def _status(self) -> JsonObject:
        context = self.context
        status = machine.node_status(
            self.settings,
            context.chips,
            address=context.address,
            port=self._server.port,
            boot_id=self._boot_id,
            ready_since=self._up_since,
        )
        context.allocatable.update(status["allocatable"])
        return status

    async def _renew_lease(self) -> None:
        settings = self.context.settings
        path = f"/apis/coordination.k8s.io/v1/namespaces/{machine.LEASE_NAMESPACE}/leases"
        while True:
            await self._reachable()
            body = machine.lease(self.name, self._uid, settings.lease_duration_seconds)
            client = self.context.client
            try:
                try:
                    await client.request("PATCH", f"{path}/{self.name}", body, content_type=MERGE)
                except NodeApiError as error:
                    if error.status != 404:
                        raise
                    await client.request("POST", path, body)
            except NodeApiError as error:
                log.warning("node %s: its lease was not renewed: %s", self.name, error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            await asyncio.sleep(settings.lease_renew_seconds)

    async def _renew_status(self) -> None:
        while True:
            await asyncio.sleep(_STATUS_SECONDS)
            await self.write_status()

    async def _follow_pods(self) -> None:
        params = {"fieldSelector": f"spec.nodeName={self.name}"}
        async for event in follow(self.context.client, "/api/v1/pods", params):
            try:
                self._take(event)
            except Exception:
                log.exception("%s: an event of a pod could not be taken: %.300s", self.name, event)

    def _take(self, event: JsonObject) -> None:
        """React to one event of :func:`e2e.nodes.api.follow`."""
        if event["type"] == "SYNC":
            there = {pod["metadata"]["uid"] for pod in event["items"]}
            for uid in self.pods.keys() - there:
                self._remove(uid)
            for pod in event["items"]:
                self._apply(pod)
        elif event["type"] == "DELETED":
            self._remove(event["object"]["metadata"]["uid"])
        else:
            self._apply(event["object"])

    def _apply(self, pod: JsonObject) -> None:
        uid = pod["metadata"]["uid"]
        worker = self.pods.get(uid)
        if worker:
            worker.update(pod)
            return
        status = pod.get("status") or {}
        if status.get("phase") in _ENDED and not pod["metadata"].get("deletionTimestamp"):
            return
        worker = self.pods[uid] = PodWorker(self.context, pod, next(self._numbers))
        if pod["metadata"].get("deletionTimestamp"):
            worker.discard()
        elif _ran_before(status):
            worker.start_after_reboot()
        else:
            worker.start()

    def _remove(self, uid: str) -> None:
        worker = self.pods.pop(uid, None)
        if worker:
            task = worker.gone()
            self._leaving[task] = worker
            task.add_done_callback(lambda ended: self._leaving.pop(ended, None))

    def find_pod(self, namespace: str, name: str) -> PodWorker | None:
        """The newest pod of that name on this node."""
        found = [w for w in self.pods.values() if w.pod["metadata"]["name"] == name]
        return next((w for w in reversed(found) if w.pod["metadata"]["namespace"] == namespace), None)


def _ran_before(status: JsonObject) -> bool:
    containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    return any("waiting" not in (container.get("state") or {"waiting": {}}) for container in containers)
