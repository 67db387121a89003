"""The manager: MindIO's controller, the plugins, the ways to the agents and to port 8899, in one process."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from e2e.taskd.client import Client, log
from e2e.taskd.net import Hub, Message
from e2e.taskd.plugins import RESTART_AGENT, START_AGENT, AgentMessage, MindIOCall, Plugins, Signal
from e2e.taskd.traits import has_trait

TICK_SECONDS: Final = 0.1
ADDRESS: Final = re.compile(r"[0-9A-Fa-f.:]+|[A-Za-z][A-Za-z0-9.-]*")


class Manager:
    """One manager of a job."""

    def __init__(self, job: str, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._lock = threading.Lock()
        self._plugins = Plugins(environment.get("PROCESS_RECOVER") == "on")
        self._client = Client(environment.get("MINDX_SERVER_IP", ""), job, self._take_signal)
        self._hub: Hub | None = None
        self._mindio: Any = None

    def run(self) -> None:
        """Run for ever."""
        threading.Thread(target=self._start_controller, daemon=True).start()
        address = self._environment.get("MINDX_SERVER_IP", "")
        if ADDRESS.fullmatch(address):
            self._client.start_streams()
        else:
            log("domain does not match allowed regex")  # and lives on, without a server
        if pod := self._environment.get("POD_IP"):
            self._hub = Hub(pod, self._take_agent_message)
        while True:
            time.sleep(TICK_SECONDS)
            with self._lock:
                deeds = self._plugins.tick(time.time())
            for deed in deeds:
                self._carry_out(deed)

    # -- MindIO -------------------------------------------------------------------------------------------------------

    def _start_controller(self) -> None:
        from mindio_ttp import controller_ttp

        own = self._environment
        words = own.get("HIGH_AVAILABILITY", "").split(",")
        world = int(own["WORLD_SIZE"])
        controller_ttp.tft_init_controller(
            -1, world, False, own.get("PROCESS_RECOVER") == "on", "elastic-training" in words
        )
        for name, report in (
            ("report_fault_ranks", self._report_fault),
            ("report_stop_complete", self._client.report_stop),
            ("report_strategies", self._client.report_strategies),
            ("report_result", self._client.report_result),
        ):
            controller_ttp.tft_register_mindx_callback(name, report)
        controller_ttp.tft_start_controller(own["POD_IP"], int(own["TTP_PORT"]), False, "")
        self._mindio = controller_ttp
        log(f"controller of {world} ranks at {own['POD_IP']}:{own['TTP_PORT']}")

    def _report_fault(self, ranks: Mapping[int, int], *_codes: object) -> None:
        self._client.report_fault(ranks)

    def _call_mindio(self, call: MindIOCall) -> None:
        log(f"to MindIO: {call.name}{call.arguments}")
        mindio, arguments = self._mindio, call.arguments
        if mindio is None:
            log("there is no controller")
        elif call.name == "restart":
            if os.environ.get("TTP_LOG_STDOUT") != "1" and has_trait("aborts_without_stdout"):
                os.abort()
            mindio.tft_destroy_controller()
            time.sleep(1.0)
            self._start_controller()
        elif call.name == "destroy":
            mindio.tft_destroy_controller()
        elif call.name == "dump":
            mindio.tft_notify_controller_dump()
        else:
            code = getattr(mindio, f"tft_notify_controller_{call.name}")(*arguments)
            log(f"MindIO: {call.name} {code}")

    # -- the slot, and the agents -----------------------------------------------------------------------------------

    def _take_signal(self, signal: Signal) -> None:
        log(f"signal {signal}")
        with self._lock:
            self._plugins.take_signal(signal)

    def _carry_out(self, deed: MindIOCall | AgentMessage) -> None:
        if isinstance(deed, MindIOCall):
            self._call_mindio(deed)
            return
        log(f"to agent {deed.node}: {deed.code} {deed.ranks}")
        text = "-2" if deed.code == RESTART_AGENT else list(deed.ranks)
        if self._hub is None or not self._hub.tell_agent(deed.node, {"code": deed.code, "message": text}):
            log(f"agent name is unregistered : Agent{deed.node}")

    def _take_agent_message(self, node: str, message: Message) -> None:
        log(f"agent {node}: {message}")
        if message["kind"] == "register":
            with self._lock:
                self._plugins.note_registered(node)
        if message["kind"] == "fault":
            with self._lock:
                self._plugins.note_fault(node, message.get("at", 0.0))
        if message["kind"] == "restarts" and self._hub is not None:
            self._hub.tell_agent(node, {"code": START_AGENT, "message": ""})
