"""`python3 -m trainer_sidecar.agent`: the agent of one rank pod, until it is told to end."""

from __future__ import annotations

from trainer_sidecar import signals

if __name__ == "__main__":
    signals.block_signals()  # all other imports take their time

import asyncio
import logging
import os
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import grpc

from hajob import log_format, version
from hajob.protocol import descriptors
from trainer_sidecar.agent.clock import BootClock, Clock
from trainer_sidecar.agent.gate.gate import Gate
from trainer_sidecar.agent.gate.passage import Passage
from trainer_sidecar.agent.gate.registrations import Registrations
from trainer_sidecar.agent.gate.security import LinkSecurity
from trainer_sidecar.agent.node import Node
from trainer_sidecar.agent.report.checkpoints import Checkpoints
from trainer_sidecar.agent.server import AgentService, make_server
from trainer_sidecar.agent.settings import AgentSettings, read_settings
from trainer_sidecar.agent.store.gate import StoreGate
from trainer_sidecar.agent.store.journal import StoreJournal
from trainer_sidecar.agent.supervise.launcher_client import LauncherClient
from trainer_sidecar.agent.supervise.rank_table import RankTableFile
from trainer_sidecar.agent.supervise.user_files import FileOrders
from trainer_sidecar.agent.taskd.server import TaskdServer
from trainer_sidecar.environment import SettingsError

# Half of the shortest wait that a tick ends: held facts are due after 2 s (supervise/unexplained_exits.py).
TICK_SECONDS = 1.0
# The port is another process's, usually of the container before this one, which frees it by ending.
BIND_RETRY_SECONDS = 1.0
# Five seconds: an agent that is still ending has freed its port by then. After that the pod should say why it fails.
BIND_TRIES = 5
# As long as makes an agent count as silent: a coordinator that has not acknowledged by then has given it up.
LAST_WORDS_SECONDS = 3.0
RESTARTED_TEXT = "the agent was restarted while its processes ran, and with it their connections to the store ended"

log = logging.getLogger("trainer_sidecar.agent")


class CannotServeError(Exception):
    """The coordinator cannot reach this agent; the text says why."""


class Agent:
    """All parts of the agent, connected."""

    def __init__(self, settings: AgentSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.node = Node(settings, clock)
        registrations = Registrations(settings.directory)
        self._runs_already = bool(registrations.registered_ranks)
        files = settings.mindio_tls_directory
        security = LinkSecurity(files) if files is not None else None
        passage = Passage(self.node, clock, registrations, security)
        self.gate = Gate(settings.gate_address, settings.mindio_port, passage)
        journal = StoreJournal(RESTARTED_TEXT if registrations.registered_ranks else "")
        self.store_gate = StoreGate(settings.pod_address, settings.rendezvous_port, self.node, clock, journal)
        self.service = AgentService(settings, self.node, clock)
        hello = {"output_directory": settings.output_directory, "attempt_limit": settings.output_attempt_limit}
        self.launcher = LauncherClient(
            settings.directory, hello, self._route_launcher_message, self._handle_lost_launcher
        )
        self.files = FileOrders(self.launcher.send_message)
        self.node.ports.send_launcher = self.launcher.send_message
        self.node.ports.wake_report = self.service.wake_stream
        self.node.ports.wake_gate = self._wake_gates
        self.node.ports.end_links = self.gate.end_links
        self.node.ports.link_phase = self.gate.furthest_link_phase
        self.node.ports.gate_state = self.gate.gate_state
        self.node.ports.store_content = self.store_gate.take_content
        directory = Path(settings.checkpoint_directory) if settings.checkpoint_directory else None
        self.checkpoints = Checkpoints(directory, self.node.report_checkpoints, self.files.carry_out_verdict)
        self.node.ports.look_at_checkpoints = self.checkpoints.apply_order
        if settings.rank_table is not None:
            table = RankTableFile(settings.rank_table)
            table.begin_file()
            self.node.ports.write_rank_table = table.write_table
        self.taskd: TaskdServer | None = None
        if settings.is_followed and settings.node_rank == 0:
            self.taskd = self._make_taskd_server()

    def _make_taskd_server(self) -> TaskdServer:
        ports, taken = self.node.ports, self.node.report_taken_port
        taskd = TaskdServer(self._settings, self._clock, self.service.wake_stream, taken)
        ports.begin_controller_lines = taskd.begin_coordinator_stream
        ports.apply_controller_line = taskd.apply_line
        ports.take_controller_lines = taskd.take_lines
        return taskd

    async def serve_until(self, stop: asyncio.Event) -> None:
        """Serve until `stop`, then wait a moment for the acknowledgement of the last reports."""
        parts: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(part)
            for part in (
                self.launcher.connect_for_ever(),
                self.gate.listen_at_port(),
                *self._listen_for_launcher(),
                self._tick_every_second(),
                self._serve_coordinator(),
                self.checkpoints.look_for_ever(),
            )
        ]
        stopped = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                waited: set[asyncio.Future[Any]] = {*parts, stopped}
                done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                for part in done & set(parts):
                    part.result()  # an error ends the agent; the kubelet starts it again
                    parts.remove(part)
            await self.send_last_reports()
        finally:
            for part in (*parts, stopped):
                part.cancel()
            # Last: a rank whose link is closed connects again at once, and must not meet a gate that goes away.
            await self.gate.close_port()
            await self.store_gate.close_port()

    def _listen_for_launcher(self) -> list[Coroutine[Any, Any, None]]:
        """What else is listened at: the store of the ranks, which torchrun opens itself beside TaskD."""
        if not self._settings.is_followed:
            return [self.store_gate.listen_at_port()]
        return [self.taskd.serve_for_ever()] if self.taskd is not None else []

    def _route_launcher_message(self, message: Mapping[str, Any]) -> None:
        if message["kind"] == "files":
            self.files.apply_answer(message)
        else:
            self.node.apply_launcher_message(message)

    def _handle_lost_launcher(self) -> None:
        self.files.fail_waiting_order()
        self.node.handle_lost_launcher()

    def _wake_gates(self) -> None:
        self.gate.follow_changed_order()
        self.store_gate.follow_changed_order()

    async def _serve_coordinator(self) -> None:
        server = await self.bind_server()
        await server.start()
        log.info("serving at %s:%d", self._settings.pod_address, self._settings.agent_port)
        try:
            await server.wait_for_termination()
        finally:
            await server.stop(grace=0)

    async def bind_server(self) -> grpc.aio.Server:
        """Return a server at the agent's port, which is tried every second.

        Gives up soon if no rank has its gate here, because a pod tells why a container ended.

        Raises:
            CannotServeError: the port is taken.
        """
        tries = 0
        while True:
            try:
                return make_server(self.service, self._settings)
            except OSError as problem:
                text = f"the coordinator cannot reach this agent: {problem}"
                if tries == 0:
                    log.warning("%s; tried again every second", text)
                tries += 1
                if tries >= BIND_TRIES and not self._runs_already:
                    raise CannotServeError(text) from problem
            await asyncio.sleep(BIND_RETRY_SECONDS)

    async def _tick_every_second(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.node.tick_every_second()
            self.gate.check_silence()

    async def send_last_reports(self) -> None:
        """Send the last reports only while a coordinator is connected: without one this pod must not hold chips."""
        ends = [
            asyncio.ensure_future(end) for end in (self.node.outbox.wait_until_empty(), self.service.is_alone.wait())
        ]
        await asyncio.wait(ends, timeout=LAST_WORDS_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()


async def _run_agent(settings: AgentSettings) -> None:
    stop = asyncio.Event()
    for number in signals.ENDING:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    signals.unblock_signals()
    await Agent(settings, BootClock()).serve_until(stop)


def main() -> int:
    """Run the agent; return 64 when its settings are wrong, 1 when its port is taken."""
    if version.print_if_asked("agent", sys.argv[1:]):
        return 0
    log_format.begin_logging(
        os.environ.get(log_format.VARIABLE, ""), "%(asctime)s %(levelname).1s %(name)s: %(message)s"
    )
    try:
        settings = read_settings(os.environ)
    except SettingsError as problem:
        print(f"hajob: the agent cannot start: {problem}", file=sys.stderr)
        return 64
    descriptors.raise_limit()
    try:
        asyncio.run(_run_agent(settings))
    except CannotServeError as problem:
        print(f"hajob: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
