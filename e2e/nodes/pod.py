"""One pod on its node, from admission to the removal of its object.

The order of things is a kubelet's: admission, volumes, init containers and sidecars one after the other, the main
containers together; at the end main containers first, then sidecars in reverse. What happens is written into the
pod's record, and a writer of its own brings the record to the API server, the latest state only.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from e2e.nodes.api import MERGE, NodeApiError
from e2e.nodes.chips import ChipsUnavailableError, chips_asked, chosen_by_volcano, pod_annotations
from e2e.nodes.config import JsonObject
from e2e.nodes.container import RETRY_SECONDS, LiveContainer, PodScope
from e2e.nodes.context import NodeContext
from e2e.nodes.environment import PodFacts
from e2e.nodes.grace import GracePeriod
from e2e.nodes.pod_writer import PodWriter, is_gone, pod_path
from e2e.nodes.states import (
    ContainerRecord,
    ContainerWaiting,
    Failure,
    Kind,
    PodRecord,
    Terminated,
    has_run,
    kind_of,
    succeeded,
)
from e2e.nodes.tasks import end_tasks, start_task
from e2e.nodes.volumes import VolumeMaker, VolumeNotReadyError

log = logging.getLogger(__name__)

FORCED_GRACE_SECONDS = 1.0
LEAST_GRACE_SECONDS = 2.0
"""What a kubelet gives each container at least: sidecars may have to wait until the grace period is used up."""


class PodWorker:
    """Runs one pod. ``number`` is unique on the node and names the pod's directory."""

    def __init__(self, node: NodeContext, pod: JsonObject, number: int) -> None:
        self._node = node
        self.uid: str = pod["metadata"]["uid"]
        self.record = PodRecord(pod, _records(pod), host_address=node.address, start_time=time.time())
        self._writer = PodWriter(node.client, self.record)
        metadata = pod["metadata"]
        self._scope = PodScope(
            node=node,
            facts=PodFacts(pod, "", node.address, node.allocatable),
            directory=node.directory / str(number),
            logs=node.logs / f"{metadata['namespace']}_{metadata['name']}_{self.uid}",
            changed=self._writer.changed,
        )
        self.containers: list[LiveContainer] = []
        self._chips: list[int] = []
        self._work: asyncio.Task[None] | None = None
        self._limit: asyncio.Timeout | None = None
        self._since = 0.0
        self._ending: asyncio.Task[None] | None = None
        self._grace: GracePeriod | None = None
        self._sidecars: list[asyncio.Task[None]] = []
        self._side_tasks: set[asyncio.Task[None]] = set()

    @property
    def pod(self) -> JsonObject:
        """The pod object as it was seen last."""
        return self.record.pod

    def start(self) -> None:
        """Admit the pod and begin to run it."""
        if self._admit():
            self._work = start_task(self._run())
        self._writer.start()

    def start_after_reboot(self) -> None:
        """Take over a pod that ran here before the node was switched off: see :meth:`boot`."""
        if self._restarts():
            self.start()
        else:
            self._writer.start()
            self._fail_after_reboot()

    def update(self, pod: JsonObject) -> None:
        """The object has changed: labels, annotations and deadline are taken over, a deletion is begun."""
        self.record.pod = pod
        self._set_limit()
        self._scope.facts = replace(self._scope.facts, pod=pod)
        if pod["metadata"].get("deletionTimestamp"):
            seconds = pod["metadata"].get("deletionGracePeriodSeconds")
            self.end(self._scope.grace_seconds if seconds is None else seconds)
        elif pod["spec"].get("readinessGates"):
            self._writer.changed()

    def end(self, seconds: float) -> None:
        """Stop the pod within ``seconds`` and remove its object; a later call can only shorten the time."""
        if self._grace is None:
            self._grace = GracePeriod(seconds)
            self._ending = start_task(self._end(self._grace))
        else:
            self._grace.shorten(seconds)

    def discard(self) -> None:
        """The pod was to be removed before this node knew it: nothing of it runs, so only its object is removed."""
        self._grace = GracePeriod(0)
        self.record.finished = True
        self._ending = start_task(self._writer.remove())

    def gone(self) -> asyncio.Task[None]:
        """The object was removed by somebody else: stop what runs; the returned task ends when nothing is left."""
        self._writer.stop()
        self.end(FORCED_GRACE_SECONDS)
        assert self._ending is not None
        return self._ending

    async def lose(self) -> None:
        """The machine it runs on is about to lose everything: no more work on it, its containers' ends are unknown."""
        await end_tasks(self._work, self._ending, *self._sidecars, *self._side_tasks)
        for container in self.containers:
            container.forget()

    def boot(self) -> None:
        """The node is on again after :meth:`lose`: start the pod anew where its restart policy says so."""
        self.record.sandbox_ready = False
        self._work = self._ending = self._grace = None
        self._sidecars.clear()
        self._writer.restart()
        if self.record.finished:
            return
        if any(has_run(record) for record in self.record.containers) and not self._restarts():
            self._fail_after_reboot()
            return
        for container in self.containers:
            container.record.restart_count += has_run(container.record)
            if isinstance(container.record.state, Terminated):
                container.record.last = container.record.state
            container.record.state = _initial(self.pod)
        self._work = start_task(self._run())

    async def close(self) -> None:
        """Give up all work on the pod; its processes and its object are left as they are, its chips are free."""
        self._writer.stop()
        await self.lose()
        self._finish()

    def _restarts(self) -> bool:
        return bool(self.pod["spec"].get("restartPolicy") != "Never")

    def _fail_after_reboot(self) -> None:
        for record in self.record.containers:
            if not isinstance(record.state, Terminated):
                now = time.time()
                record.state = Terminated(255, "Unknown", now, now)
        self._finish()

    def _admit(self) -> bool:
        resource = self._node.settings.chip_resource
        specs = [*(self.pod["spec"].get("initContainers") or []), *self.pod["spec"]["containers"]]
        asked = {spec["name"]: count for spec in specs if (count := chips_asked(spec, resource))}
        chips, wanted = self._node.chips, sum(asked.values())
        try:
            told = self._node.settings.volcano_mode
            chosen = chosen_by_volcano(self.pod, wanted, chips.count, resource) if told else None
            given = chips.allocate(self.uid, asked, chosen)
        except ChipsUnavailableError as error:
            self._reject("UnexpectedAdmissionError", f"Pod was rejected: {error}")
            return False
        address = self._node.address if self.pod["spec"].get("hostNetwork") else self._node.addresses.take()
        if address is None:
            self._reject("OutOfpods", "Pod was rejected: Node didn't have enough resource: pods")
            return False
        self.record.pod_address = address
        self._scope.facts = replace(self._scope.facts, pod_address=address)
        self._scope.devices = {
            name: {"ASCEND_VISIBLE_DEVICES": ",".join(str(chip) for chip in chips)} for name, chips in given.items()
        }
        self._chips = [chip for chips in given.values() for chip in chips]
        self.containers = _live(self._scope, self.record.containers)
        return True

    def _reject(self, reason: str, message: str) -> None:
        self.record.failure = Failure(reason, message)
        self._node.events.post(self.pod, reason, message, warning=True)
        self._finish()

    async def _show_chips(self) -> None:
        """The device plugin's part: write the pod's annotations, until they are there."""
        host = self._node.address
        annotations = pod_annotations(self.pod, self._chips, self._node.settings.chip_resource, host)
        body = {"metadata": {"uid": self.uid, "annotations": annotations}}
        for pause in (*RETRY_SECONDS, None):
            try:
                await self._node.device_client.request("PATCH", pod_path(self.pod), body, content_type=MERGE)
            except NodeApiError as error:
                if is_gone(error) or pause is None:
                    log.warning("%s: annotations of pod %s: %s", self._node.name, self.pod["metadata"]["name"], error)
                    return
                await asyncio.sleep(pause)
            else:
                return

    async def _run(self) -> None:
        try:
            async with asyncio.timeout(None) as limit:
                self._limit, self._since = limit, asyncio.get_running_loop().time()
                self._set_limit()
                try:
                    await self._run_containers()
                finally:
                    self._limit = None
        except TimeoutError:
            if not limit.expired():
                raise
            self.record.failure = Failure(
                "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
            )
        await self._stop_containers(GracePeriod(self._scope.grace_seconds))
        self._finish()

    def _set_limit(self) -> None:
        """Follow the deadline, which may be set while the pod runs."""
        deadline, limit = self.pod["spec"].get("activeDeadlineSeconds"), self._limit
        if limit is not None and deadline is not None:
            limit.reschedule(self._since + deadline)

    async def _run_containers(self) -> None:
        self._scope.volumes = await self._make_volumes()
        self.record.sandbox_ready = True
        self._writer.changed()
        # In Volcano mode the device plugin notes nothing of its own: Volcano has, or nobody.
        if self._chips and not self._node.settings.volcano_mode:
            self._aside(self._show_chips())
        for container in self.containers:
            if container.record.kind is Kind.SIDECAR:
                self._sidecars.append(start_task(container.supervise()))
                await container.started.wait()
            elif container.record.kind is Kind.INIT:
                await container.supervise()
                if not succeeded(container.record):
                    return
        mains = [container for container in self.containers if container.record.kind is Kind.MAIN]
        await asyncio.gather(*(container.supervise() for container in mains))

    async def _make_volumes(self) -> dict[str, Any]:
        node = self._node
        claims = node.settings.directory / "claims"
        maker = VolumeMaker(node.client, self._scope.facts, self._scope.directory, claims, node.settings.host_paths)
        self._scope.directory.mkdir(parents=True, exist_ok=True)
        attempt = 0
        while True:
            try:
                places = await maker.make_all()
            except VolumeNotReadyError as error:
                if attempt >= len(RETRY_SECONDS) - 1:
                    node.events.post(self.pod, "FailedMount", str(error), warning=True)
                await asyncio.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
                attempt += 1
            else:
                if maker.tokens:
                    self._aside(self._renew_tokens(maker))
                self._aside(self._refresh(maker))
                return dict(places)

    async def _refresh(self, maker: VolumeMaker) -> None:
        while True:
            await asyncio.sleep(self._node.settings.sync_seconds)
            await maker.refresh()

    async def _renew_tokens(self, maker: VolumeMaker) -> None:
        while True:
            await asyncio.sleep(max(1.0, min(token.renew_at for token in maker.tokens) - time.time()))
            for token in maker.tokens:
                if token.renew_at <= time.time():
                    try:
                        await maker.renew(token)
                    except NodeApiError as error:
                        log.warning("%s: %s", self._node.name, error)
                        token.renew_at = time.time() + 10

    async def _end(self, grace: GracePeriod) -> None:
        await end_tasks(self._work)
        await self._stop_containers(grace)
        if not self.record.finished:
            self._locate()
            self._finish()
        await self._writer.flush()
        await self._writer.remove()
        await asyncio.to_thread(shutil.rmtree, self._scope.directory, ignore_errors=True)

    async def _stop_containers(self, grace: GracePeriod) -> None:
        """Main and init containers together, then sidecars in reverse, all within ``grace``."""
        await end_tasks(*self._sidecars)
        sidecars = [container for container in self.containers if container.record.kind is Kind.SIDECAR]
        others = [container for container in self.containers if container.record.kind is not Kind.SIDECAR]
        await asyncio.gather(*(container.stop(grace) for container in others))
        for container in reversed(sidecars):
            await container.stop(grace if grace.remaining > LEAST_GRACE_SECONDS else GracePeriod(LEAST_GRACE_SECONDS))

    def _locate(self) -> None:
        """A pod that is removed leaves no container waiting."""
        for record in self.record.of(Kind.SIDECAR, Kind.MAIN):
            if isinstance(record.state, ContainerWaiting):
                now = time.time()
                message = "The container could not be located when the pod was terminated"
                record.state = Terminated(137, "ContainerStatusUnknown", now, now, message=message)

    def _finish(self) -> None:
        """Nothing runs any more: chips and address are free before anybody is told."""
        if not self.record.finished:
            self._node.chips.release(self.uid)
            if self.record.pod_address not in {"", self._node.address}:
                self._node.addresses.give_back(self.record.pod_address)
        self.record.finished = True
        self._writer.changed()

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = start_task(work)
        self._side_tasks.add(task)
        task.add_done_callback(self._side_tasks.discard)


def _initial(pod: JsonObject) -> ContainerWaiting:
    return ContainerWaiting("PodInitializing" if pod["spec"].get("initContainers") else "ContainerCreating")


def _records(pod: JsonObject) -> list[ContainerRecord]:
    spec = pod["spec"]
    specs = [*(spec.get("initContainers") or []), *spec["containers"]]
    return [ContainerRecord(c["name"], c.get("image") or "", kind_of(spec, c), _initial(pod)) for c in specs]


def _live(scope: PodScope, records: list[ContainerRecord]) -> list[LiveContainer]:
    spec = scope.pod["spec"]
    specs = [*(spec.get("initContainers") or []), *spec["containers"]]
    return [LiveContainer(scope, one, record) for one, record in zip(specs, records, strict=True)]
