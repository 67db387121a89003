"""The operator as a process of the simulated world: its own clock, its own way to the API server, its own channels."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final
from unittest import mock

from e2e.memory_api.client import MemoryTransport
from e2e.memory_api.server import MemoryServer
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.app import operator as app
from hajob.app.core import OperatorCore
from hajob.app.operator import Operator
from hajob.app.settings import Settings
from hajob.backoff import Backoff
from hajob.coordinator_link import channel
from hajob.coordinator_link.channel import BACKOFF_SECONDS, Channel, ChannelListener, Dialer
from hajob.kube.client import ApiError, Kube, WatchEvent
from hajob.kube.credentials import ApiCredentials
from hajob.kube.informer import Change, ChangeType, Informer, Selection
from hajob.protocol import sidecar_pb2 as pb
from hajob.protocol import versions
from tests.sim.training import SimTraining
from tests.sim.virtual_time import SimClock, SimProcess, begin_in_world, call_in_world

LATENCY_SECONDS: Final = 0.002
"""Of a message between two pods."""


class ProcessTransport:
    """The way of one process to the server: nothing leaves one that is dead."""

    def __init__(self, server: MemoryServer, identity: str, process: SimProcess) -> None:
        self._inner, self._process = MemoryTransport(server, identity), process

    async def send_request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: Json | Sequence[Json] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Send it, unless the process is dead."""
        self._require_life()
        asked = self._inner.send_request(method, path, query=query, body=body, content_type=content_type)
        task = begin_in_world(asked, f"{method} {path}")  # what is under way goes on without the process
        task.add_done_callback(_forget_error)
        return await asyncio.shield(task)

    async def watch_path(self, path: str, query: Mapping[str, str]) -> AsyncIterator[WatchEvent]:
        """Watch, unless the process is dead."""
        self._require_life()
        async for event in self._inner.watch_path(path, query):
            yield event

    def _require_life(self) -> None:
        if not self._process.alive:
            raise asyncio.CancelledError


def _forget_error(task: asyncio.Task[Json]) -> None:
    """Whoever asked may be dead."""
    if not task.cancelled():
        task.exception()


class SimFrontend:
    """Does what kopf's handlers do: finalizer, every version of every job, the release of a deleted one."""

    def __init__(self, kube: Kube, clock: SimClock) -> None:
        self._kube, self._clock = kube, clock
        self._intake: OperatorCore | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._releasing: set[str] = set()
        self.has_ended = False

    def start_serving(self, intake: OperatorCore) -> None:
        """Show a core every job."""
        self._intake = intake
        informer = Informer(self._kube, self._clock, Selection(names.PLURAL), dict, self._show)
        self._tasks.append(asyncio.create_task(informer.list_and_watch(), name="frontend"))

    async def stop_serving(self) -> None:
        """Stop; the jobs stay as they are."""
        for task in self._tasks:
            task.cancel()

    def end_kopf(self) -> None:
        """Read nothing anew: the informer lists by itself."""

    def _show(self, change: Change[Json]) -> None:
        assert self._intake is not None
        raw, metadata = change.value, change.value["metadata"]
        if change.type is ChangeType.DELETED:
            self._intake.handle_deleted_job(metadata["uid"])
            return
        self._intake.handle_job(raw)
        held = names.FINALIZER in (metadata.get("finalizers") or [])
        if metadata.get("deletionTimestamp"):
            if held and metadata["uid"] not in self._releasing:
                self._releasing.add(metadata["uid"])
                self._tasks.append(asyncio.create_task(self._release(metadata), name="release"))
        elif not held:
            self._tasks.append(asyncio.create_task(self._set_finalizers(metadata, [names.FINALIZER]), name="finalizer"))

    async def _release(self, metadata: Json) -> None:
        assert self._intake is not None
        backoff = Backoff()
        while True:
            try:
                await self._intake.release_job(metadata["uid"])
                break
            except ApiError:
                await self._clock.sleep(backoff.next_delay())
        await self._set_finalizers(metadata, [])

    async def _set_finalizers(self, metadata: Json, wanted: list[str]) -> None:
        backoff = Backoff()
        while True:
            try:
                await self._kube.patch_object(
                    names.PLURAL, metadata["namespace"], metadata["name"], {"metadata": {"finalizers": wanted}}
                )
            except ApiError as error:
                if error.status != 404:
                    await self._clock.sleep(backoff.next_delay())
                    continue
            return


class SimChannel(Channel):
    """A channel over a simulated network, in the order in which messages were sent."""

    def __init__(
        self, address: str, job_uid: str, listener: ChannelListener, dialer: Dialer, find: Callable[[str], Any]
    ) -> None:
        self.address = address
        self._job_uid, self._listener, self._dialer, self._find = job_uid, listener, dialer, find
        self._training: SimTraining | None = None
        self._task: asyncio.Task[None] | None = None
        self._assignment: pb.Assignment | None = None
        self._order: pb.Order | None = None
        self._context = contextvars.copy_context()  # of the process that dials
        self._ended, self._hurry = asyncio.Event(), asyncio.Event()
        self.up = False

    def start_dialling(self) -> None:
        """Dial until closed."""
        self._task = asyncio.create_task(self._redial_for_ever(), name=f"channel {self.address}")

    def dial_at_once(self) -> None:
        """Dial now, where it waits."""
        self._hurry.set()

    async def close_channel(self) -> None:
        """Close it for good."""
        if self._task is not None:
            self._task.cancel()
        self._leave()

    def _leave(self) -> None:
        training, self._training, self.up = self._training, None, False
        if training is not None and training.connected is self:
            training.connected = None
            training.core.job.operator.note_operator_left(training.now)

    async def _redial_for_ever(self) -> None:
        dials = 0
        while True:
            training = self._find(self.address)
            if training is not None:
                reason = await self._converse(training)
                if self.up:
                    dials = 0
                    self._leave()
                    self._listener.note_connection_change(False, reason)
                self._leave()
            self._hurry.clear()
            dials += 1
            try:
                async with asyncio.timeout(BACKOFF_SECONDS[min(dials, len(BACKOFF_SECONDS)) - 1]):
                    await self._hurry.wait()
            except TimeoutError:
                continue

    async def _converse(self, training: SimTraining) -> str:
        self._ended.clear()
        await asyncio.sleep(LATENCY_SECONDS)
        fence = self._dialer.leadership.fence
        if training.coordinator is None or fence < training.fence:
            return "a leader with a higher fence has come"
        training.fence = fence
        pod = training.coordinator["metadata"]
        hello = versions.hello(self._job_uid, pod_name=pod["name"], pod_uid=pod["uid"], token=training.token)
        if not await self._listener.check_hello(hello):
            return "its token does not prove that it is this job's coordinator"
        if training.coordinator is None or training.coordinator["metadata"]["uid"] != pod["uid"]:
            return "the coordinator's pod has ended"
        former, training.connected = training.connected, self
        if former is not None:
            former.note_end("another leader has come")
        self._training = training
        self.up = True
        training.look_at_clock()
        training.core.note_operator(fence, training.now)
        self._listener.note_connection_change(True, "")
        for level in (self._order, self._assignment):
            if level is not None:
                self._send(level)
        training.core.job.effects.urgent = True
        training.pump()
        await self._ended.wait()
        return "it hung up"

    def note_end(self, _: str) -> None:
        """End the conversation: the other side is gone."""
        self._ended.set()

    def send_assignment(self, assignment: pb.Assignment) -> None:
        """Send it, where it has changed."""
        if assignment != self._assignment:
            self._assignment = pb.Assignment()
            self._assignment.CopyFrom(assignment)
            self._send(self._assignment)

    def send_order(self, order: pb.Order) -> None:
        """Send it, where it has changed."""
        if order != self._order:
            self._order = pb.Order()
            self._order.CopyFrom(order)
            self._send(self._order)

    def acknowledge_report(self, sequence: int) -> None:
        """Acknowledge."""
        if self.up and sequence:
            self._carry(pb.OperatorMessage(acknowledge=pb.Acknowledge(sequence=sequence)))

    def _send(self, level: pb.Order | pb.Assignment) -> None:
        if not self.up:
            return
        if isinstance(level, pb.Order):
            self._carry(pb.OperatorMessage(order=level))
        else:
            self._carry(pb.OperatorMessage(assignment=level))

    def _carry(self, message: pb.OperatorMessage) -> None:
        training = self._training
        if training is not None:
            call_in_world(LATENCY_SECONDS, self._arrive, training, message)

    def _arrive(self, training: SimTraining, message: pb.OperatorMessage) -> None:
        if training.connected is self:
            training.apply_message(message)

    def send_report(self, report: pb.Report) -> None:
        """Bring a report to the operator."""
        told = pb.Report()
        told.CopyFrom(report)
        asyncio.get_running_loop().call_later(LATENCY_SECONDS, self._hear, told, context=self._context)

    def _hear(self, report: pb.Report) -> None:
        process = SimProcess.running()
        if self.up and self._training is not None and process is not None and process.alive:
            self._listener.apply_report(report)


class OperatorProcess(SimProcess):
    """One operator.

    Args:
        server: its API server.
        identity: in the Lease.
        find: returns the training whose coordinator serves at an address; None: nobody answers there.
    """

    def __init__(self, server: MemoryServer, identity: str, find: Callable[[str], SimTraining | None]) -> None:
        super().__init__()
        self.identity, self._find = identity, find
        self.clock = SimClock(self)
        self.kube = Kube(ProcessTransport(server, identity, self))
        self.frontend = SimFrontend(self.kube, self.clock)
        settings = Settings.from_environment({"HAJOB_IDENTITY": identity})
        with mock.patch.object(app, "Frontend", return_value=self.frontend):
            self.operator = Operator(settings, self.kube, ApiCredentials("https://nowhere"), self.clock)

    def start(self) -> None:
        """Run it."""
        self.spawn(self.operator.watch_and_lead(), f"operator {self.identity}")

    @staticmethod
    def dialled_by(find: Callable[[str], SimTraining | None]) -> Any:
        """Patch how every operator dials, while this is open."""

        def dial(address: str, job_uid: str, _: object, listener: ChannelListener, dialer: Dialer) -> SimChannel:
            return SimChannel(address, job_uid, listener, dialer, find)

        return mock.patch.object(channel, "Channel", dial)
