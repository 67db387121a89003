"""The client of the controller host: lines of JSON over a unix socket in the pod's shared directory."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainer_sidecar import controller_protocol
from trainer_sidecar.access import describe_refusal
from trainer_sidecar.controller_protocol import SOCKET_NAME, LineBuffer, Message
from trainer_sidecar.coordinator.core import CoordinatorCore
from trainer_sidecar.coordinator.shell.clock import now
from trainer_sidecar.units import NANOSECONDS

log = logging.getLogger(__name__)

HOST_CALLS = ("start", "store", "end")
"""Calls that the host serves itself; every other call is MindIO's."""
# The socket is a path of the pod, so a try costs nothing; ranks wait for a host that has just been restarted.
REDIAL_SECONDS = 0.1
LOST_SECONDS = 1.0
"""Seconds without a hello after which the host counts as lost. It ends only with its container, and then for good."""
AFTER_ERROR_SECONDS = 1.0
"""Pause after a message that raised: it may come again at once, and each time logs a traceback."""


def call_message(number: str, call: str, arguments: Mapping[str, Any], order: int) -> Message:
    """Return the message that asks a host for a call; `order` is for its log."""
    top = dict(arguments) if call in HOST_CALLS else {"arguments": dict(arguments)}
    return {"id": number, "call": call, "order": order, **top}


class ControllerLink:
    """Client that keeps the connection to the controller host open until closed.

    What the host says goes to the core, and what the core wants then is sent at once.
    """

    def __init__(self, directory: Path, core: CoordinatorCore, send_effects: Callable[[], None]) -> None:
        self._directory = directory
        self._core = core
        self._send_effects = send_effects
        self._name = uuid.uuid4().hex[:12]  # the host's log outlives this process, so call ids must not repeat
        self._number = 0
        self._socket: socket.socket | None = None
        self._greeted = False
        self._refusal = ""
        self._task = asyncio.create_task(self._redial_for_ever(), name="controller")

    def request_call(self, call: str, arguments: Mapping[str, Any], order: int = 0) -> None:
        """Request a call; `order` is for the log. Dropped without a connection: the host's hello tells the state."""
        connection = self._socket
        if connection is None:
            log.warning("the controller host is away, %s is not sent", call)
            return
        self._number += 1
        message = call_message(f"{self._name}-{self._number}", call, arguments, order)
        try:
            connection.sendall(
                controller_protocol.encode_message(message)
            )  # a short line into an empty buffer: never waits
        except OSError as error:
            log.warning("the controller host did not take %s: %s", call, error)

    async def close_connection(self) -> None:
        """Close the connection; the host keeps running."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _redial_for_ever(self) -> None:
        away_since: float | None = now()
        while True:
            pause = REDIAL_SECONDS
            try:
                if await self._serve_connection():
                    away_since = now()
                elif away_since is not None and now() - away_since >= LOST_SECONDS:
                    away_since = None
                    self._handle_loss()
            except Exception:  # raised by the core: ending this task would end all redialling
                log.exception("what the controller host said could not be taken in; the controller counts as lost")
                away_since, pause = None, AFTER_ERROR_SECONDS
                self._report_lost()
            await asyncio.sleep(pause)

    def _handle_loss(self) -> None:
        self._core.note_lost_controller_host(now())
        self._send_effects()

    def _report_lost(self) -> None:
        """Report the controller lost: messages after the failed one are dropped, so its state is unknown."""
        try:
            self._handle_loss()
        except Exception:
            log.exception("that the controller is lost could not be taken in")

    async def _serve_connection(self) -> bool:
        """Serve one connection to its end; return whether the host said hello on it."""
        try:
            connection = controller_protocol.connect_to_socket(str(self._directory), SOCKET_NAME)
        except OSError as error:
            path = self._directory / SOCKET_NAME
            self._report_refusal(describe_refusal(path, error) if isinstance(error, PermissionError) else "")
            return False
        self._report_refusal("")
        self._greeted = False
        try:
            await self._read_messages(connection)
        finally:
            self._socket = None
            connection.close()
        return self._greeted

    def _report_refusal(self, text: str) -> None:
        if text != self._refusal:
            self._refusal = text
            self._core.note_refused_controller_host(text)
            self._send_effects()

    async def _read_messages(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        loop, buffer = asyncio.get_running_loop(), LineBuffer()
        while True:
            try:
                data = await loop.sock_recv(connection, 65536)
            except OSError:
                return
            if not data:
                return
            for message in buffer.cut_messages(data):
                self._dispatch_message(message)

    def _dispatch_message(self, message: Message) -> None:
        event = message.get("event")
        at = message.get("t", controller_protocol.now_nanoseconds()) / NANOSECONDS
        if event == "hello":
            self._greeted = True
            self._core.apply_controller_hello(message["state"], message["log"], now())
        elif event == "state":
            self._core.apply_controller_state(message["state"], now())
        elif event is not None:
            log.info("MindIO: %s %s", event, message["arguments"])
            self._core.apply_callback(event, message["arguments"], at, now())
        elif call := message.get("call"):
            code, exception = message["code"], message.get("exception", "")
            log.info("MindIO took %s: %s", call, exception or code)
            self._core.note_answered_call(call, code, exception, at, now())
        self._send_effects()
