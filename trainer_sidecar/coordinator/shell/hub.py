"""The shell: connections on one side, the core on the other, nothing decided in between.

Every input is handed to the core with the time; what the core wants sent is sent before the next input is looked at,
so that a process exit becomes a call to MindIO within one turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.core import CoordinatorCore
from trainer_sidecar.coordinator.shell.agents import Agents
from trainer_sidecar.coordinator.shell.clock import now
from trainer_sidecar.coordinator.shell.controller import HOST_CALLS, ControllerLink
from trainer_sidecar.coordinator.shell.server import OperatorServer
from trainer_sidecar.coordinator.shell.settings import CoordinatorSettings
from trainer_sidecar.coordinator.shell.store_filling import fill_store
from trainer_sidecar.coordinator.shell.taskd import TaskdLink
from trainer_sidecar.coordinator.state.job import Setup
from trainer_sidecar.coordinator.state.store_keeping import Fill

log = logging.getLogger(__name__)

# The shortest time limit that it checks is 0.2 s, from the order that ends an attempt to the word of its last step.
TICK_SECONDS = 0.1
LAST_WORD_SECONDS = 1.0
"""A restart of the job ends this pod at once; when the training last went on is told 0.2 s after the order."""
ORDERS_PER_TURN = 64
"""Orders for agents that one turn of the loop makes: of thousands the others wait for their turn, and leases do not."""


class Hub:
    """Shell of one coordinator, with all its connections.

    Attributes:
        core: decides everything; the shell only carries what it says and hears.
    """

    def __init__(self, settings: CoordinatorSettings) -> None:
        self._settings = settings
        setup = Setup(settings.endpoint, settings.limits, settings.incarnation, settings.is_followed)
        self.core = CoordinatorCore(setup, now())
        self._server = OperatorServer(settings, self.core, self._send_effects)
        self._agents = Agents(settings, self.core, self._send_effects)
        self._controller: ControllerLink | TaskdLink | None = None
        self._filling: asyncio.Task[None] | None = None
        self._orders_wait = False
        # By the wall clock, so that agents take the word of a later coordinator for the later one.
        self._revision = time.time_ns() // 1000

    async def serve_until(self, ending: asyncio.Event) -> None:
        """Serve until `ending` is set, and the operator has heard how the attempt ended."""
        if self._settings.is_followed:
            self._controller = self._agents.controller = TaskdLink(self.core, self._agents.send_message)
        else:
            self._controller = ControllerLink(self._settings.directory, self.core, self._send_effects)
        await self._server.start_listening()
        log.info("serving on %s:%d", self._settings.endpoint.address, self._settings.port)
        try:
            await self._tick_while(lambda: not ending.is_set())
            end = now() + LAST_WORD_SECONDS
            await self._tick_while(lambda: self.core.has_news and self._server.is_leader_connected and now() < end)
        finally:
            await self._server.stop_listening()
            await self._controller.close_connection()
            await self._agents.close_streams()

    async def _tick_while(self, goes_on: Callable[[], bool]) -> None:
        before = now()
        while goes_on():
            await asyncio.sleep(TICK_SECONDS)
            # Let what waits in the sockets be read before silence is measured.
            await asyncio.sleep(0)
            at = now()
            self.core.check_time_limits(at, at - before - TICK_SECONDS)
            before = at
            self._send_effects()

    def _send_effects(self) -> None:
        for request in self.core.job.effects.take_requests():
            log.info("to MindIO: %s %s", request.call, "" if request.call in HOST_CALLS else request.arguments)
            if self._controller is not None:
                self._controller.request_call(request.call, request.arguments, request.order)
        self._agents.send_new_rank_table()
        self._send_orders()
        job = self.core.job
        if (fill := job.keeping.take_fill()) is not None:
            self._filling = asyncio.create_task(
                self._fill_store(job.setup.endpoint.store_address, fill), name="fill-store"
            )
        self._agents.dial_new_pods()
        if job.effects.urgent or job.effects.changed:
            self._server.wake_stream(urgent=job.effects.urgent)

    async def _fill_store(self, address: str, fill: Fill) -> None:
        self.core.note_filled_store(await fill_store(address, fill), now())
        self._send_effects()

    def _send_orders(self) -> None:
        """The first ones now, the others when the loop has looked at what else has come."""
        for uid, order in self.core.take_orders(ORDERS_PER_TURN).items():
            self._revision += 1
            order_now = pb.NodeOrder()
            order_now.CopyFrom(order)
            order_now.revision = self._revision
            self._agents.send_message(uid, pb.CoordinatorToAgent(node_order=order_now))
        if self.core.job.effects.dirty and not self._orders_wait:
            self._orders_wait = True
            asyncio.get_running_loop().call_soon(self._send_waiting_orders)

    def _send_waiting_orders(self) -> None:
        self._orders_wait = False
        self._send_orders()
