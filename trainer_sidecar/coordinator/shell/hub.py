"""The shell: connections on one side, the core on the other, nothing decided in between.

Every input is handed to the core with the time; what the core wants sent is sent before the next input is looked at,
so that a process exit becomes a call to MindIO within one turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from hajob.protocol import sidecar_pb2 as pb
from hajob.protocol import versions
from hajob.protocol.addresses import host_port
from trainer_sidecar.coordinator.core import CoordinatorCore
from trainer_sidecar.coordinator.shell.agents import AgentLink, Dials
from trainer_sidecar.coordinator.shell.clock import now
from trainer_sidecar.coordinator.shell.controller import HOST_CALLS, ControllerLink
from trainer_sidecar.coordinator.shell.server import OperatorServer
from trainer_sidecar.coordinator.shell.settings import CoordinatorSettings
from trainer_sidecar.coordinator.shell.store_filling import fill_store
from trainer_sidecar.coordinator.state.job import Setup
from trainer_sidecar.coordinator.state.store_keeping import Fill

log = logging.getLogger(__name__)

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
        self.core = CoordinatorCore(Setup(settings.endpoint, settings.limits, settings.incarnation), now())
        self._server = OperatorServer(settings, self)
        self._agents: dict[str, AgentLink] = {}
        self._dials = Dials()
        self._controller: ControllerLink | None = None
        self._filling: asyncio.Task[None] | None = None
        self._fence = 0
        self._orders_wait = False
        self._dialled = 0  # version of the roster that the links were made for
        # By the wall clock, so that agents take the word of a later coordinator for the later one.
        self._revision = time.time_ns() // 1000

    async def serve_until(self, ending: asyncio.Event) -> None:
        """Serve until `ending` is set, and the operator has heard how the attempt ended."""
        self._controller = ControllerLink(self._settings.directory, self)
        await self._server.start_listening()
        log.info("serving on %s:%d", self._settings.endpoint.address, self._settings.port)
        try:
            await self._tick_while(lambda: not ending.is_set())
            end = now() + LAST_WORD_SECONDS
            await self._tick_while(lambda: self.core.has_news and self._server.is_leader_connected and now() < end)
        finally:
            await self._server.stop_listening()
            await self._controller.close()
            for link in self._agents.values():
                await link.close()

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

    # -- the operator ---------------------------------------------------------------------------------------------

    def handle_operator_connected(self, hello: pb.Hello) -> int:
        """Take in a new leader: its stream gets everything unacknowledged."""
        self._fence = max(self._fence, hello.fence)
        self.core.note_operator(now())
        return self.core.job.incidents.incarnation

    def handle_operator_left(self) -> None:
        """Take in that the leader's stream is over."""
        self.core.job.operator.note_operator_left(now())

    def handle_operator_message(self, message: pb.OperatorMessage) -> None:
        """Take in an assignment, order or acknowledgement."""
        body = message.WhichOneof("body")
        if body == "assignment":
            self.core.apply_assignment(message.assignment, now())
        elif body == "order":
            self.core.apply_order(message.order, now())
        elif body == "acknowledge":
            self.core.job.effects.outbox.acknowledge_reports(message.acknowledge.sequence)
        self._send_effects()

    def next_report(self) -> pb.Report:
        """Return the report that is due."""
        return self.core.next_report(now())

    # -- agents ---------------------------------------------------------------------------------------------------

    def own_hello(self) -> pb.Hello:
        """Build the coordinator's hello to an agent."""
        own, fence = self._settings, self._fence
        return versions.hello(
            own.job_uid, fence=fence, incarnation=own.incarnation, pod_name=own.pod_name, pod_uid=own.pod_uid
        )

    def handle_agent_connected(self, uid: str) -> None:
        """Tell the core that an agent is there."""
        self.core.note_connected_agent(uid, now())
        self._send_effects()

    def handle_agent_message(self, uid: str, message: pb.AgentToCoordinator) -> None:
        """Handle a heartbeat, or a report, which may be a heartbeat as well."""
        body = message.WhichOneof("body")
        if body == "heartbeat":
            self._answer_heartbeat(uid, message.heartbeat.number)
        elif body == "report":
            report = message.report
            self.core.apply_agent_report(uid, report, now())
            if not (report.heartbeat and self._answer_heartbeat(uid, report.heartbeat, report.sequence)):
                self._send_to_agent(uid, pb.CoordinatorToAgent(acknowledge=pb.Acknowledge(sequence=report.sequence)))
            self._send_effects()
        elif body == "store":
            self.core.apply_store_content(uid, message.store, now())
            self._send_effects()

    def _answer_heartbeat(self, uid: str, heartbeat: int, acknowledged: int = 0) -> bool:
        """Grant a lease, and with it acknowledge the report that the heartbeat came with; False: no lease for it."""
        grant = self.core.answer_heartbeat(uid, heartbeat, now())
        if grant is None:
            return False
        grant.acknowledged = acknowledged
        self._send_to_agent(uid, pb.CoordinatorToAgent(lease_grant=grant))
        return True

    def handle_agent_disconnected(self, uid: str, *, refused: bool) -> None:
        """Tell the core that an agent's stream is gone."""
        self.core.note_disconnected_agent(uid, now(), refused=refused)
        self._send_effects()

    # -- the controller host --------------------------------------------------------------------------------------

    def handle_controller_hello(self, state: Mapping[str, Any], log_entries: list[Mapping[str, Any]]) -> None:
        """Tell the core that the controller host is there."""
        self.core.apply_controller_hello(state, log_entries, now())
        self._send_effects()

    def handle_controller_state(self, state: Mapping[str, Any]) -> None:
        """Tell the core that controller or store have changed."""
        self.core.apply_controller_state(state, now())
        self._send_effects()

    def handle_controller_callback(self, name: str, arguments: list[Any], at: float) -> None:
        """Tell the core that MindIO called back."""
        log.info("MindIO: %s %s", name, arguments)
        self.core.apply_callback(name, arguments, at, now())
        self._send_effects()

    def handle_controller_answer(self, call: str, code: int, exception: str, at: float) -> None:
        """Tell the core that MindIO has taken or refused a call."""
        log.info("MindIO took %s: %s", call, exception or code)
        self.core.note_answered_call(call, code, exception, at, now())
        self._send_effects()

    def handle_controller_loss(self) -> None:
        """Tell the core that the controller host is gone."""
        self.core.note_lost_controller_host(now())
        self._send_effects()

    def handle_controller_refusal(self, text: str) -> None:
        """Tell the core that the host's socket may not be opened, or (empty) that it may again."""
        self.core.note_refused_controller_host(text)
        self._send_effects()

    # -- what the core wants --------------------------------------------------------------------------------------

    def _send_effects(self) -> None:
        for request in self.core.job.effects.take_requests():
            log.info("to MindIO: %s %s", request.call, "" if request.call in HOST_CALLS else request.arguments)
            if self._controller is not None:
                self._controller.request_call(request.call, request.arguments, request.order)
        self._send_orders()
        job = self.core.job
        if (fill := job.keeping.take_fill()) is not None:
            self._filling = asyncio.create_task(
                self._fill_store(job.setup.endpoint.store_address, fill), name="fill-store"
            )
        if job.roster.version != self._dialled:
            self._dialled = job.roster.version
            self._dial_agents()
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
            self._send_to_agent(uid, pb.CoordinatorToAgent(node_order=order_now))
        if self.core.job.effects.dirty and not self._orders_wait:
            self._orders_wait = True
            asyncio.get_running_loop().call_soon(self._send_waiting_orders)

    def _send_waiting_orders(self) -> None:
        self._orders_wait = False
        self._send_orders()

    def _send_to_agent(self, uid: str, message: pb.CoordinatorToAgent) -> None:
        link = self._agents.get(uid)
        if link is not None:
            link.send_message(message)

    def _dial_agents(self) -> None:
        """A link to every pod that has an address, none to a pod that is forgotten."""
        pods = self.core.job.roster.pods
        for uid in [uid for uid in self._agents if uid not in pods]:
            link = self._agents.pop(uid)
            closing = asyncio.create_task(link.close())
            closing.add_done_callback(lambda _: None)
        for pod in pods.values():
            if pod.uid in self._agents or not pod.address:
                continue
            address = host_port(pod.address, self._settings.agent_port)
            mine = self._settings
            link = AgentLink(pod.uid, address, mine.job_uid, mine.tls_directory, self, dials=self._dials)
            self._agents[pod.uid] = link
