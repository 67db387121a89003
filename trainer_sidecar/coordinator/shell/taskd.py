"""The link to a MindIO controller in TaskD's manager: the lines of a controller host, through the agent of node rank 0.

A call stays in hand until it is answered, and goes out again with the agent's next stream; the agent carries out each
one once.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.controller_protocol import Message
from trainer_sidecar.coordinator.core import CoordinatorCore
from trainer_sidecar.coordinator.shell.clock import now
from trainer_sidecar.coordinator.shell.controller import HOST_CALLS, call_message
from trainer_sidecar.units import NANOSECONDS

log = logging.getLogger(__name__)


class TaskdLink:
    """Client of the agent that is ClusterD to TaskD's manager."""

    def __init__(self, core: CoordinatorCore, send: Callable[[str, pb.CoordinatorToAgent], None]) -> None:
        self._core = core
        self._send = send
        self._name = uuid.uuid4().hex[:12]  # the agent's log outlives this process, so call ids must not repeat
        self._number = 0
        self._unanswered: dict[str, Message] = {}
        self._agent = ""  # UID of the pod whose agent has said hello last

    def request_call(self, call: str, arguments: Mapping[str, Any], order: int = 0) -> None:
        """Request a call; `order` is for the log."""
        self._number += 1
        number = f"{self._name}-{self._number}"
        message = call_message(number, call, arguments, order)
        if call not in HOST_CALLS:  # of those the state tells whether they are to be asked for again
            self._unanswered[number] = message
        self._send_line_to_agent(message)

    async def close_connection(self) -> None:
        """Leave the agent as it is; its streams are closed by others."""

    def _send_line_to_agent(self, message: Message) -> None:
        if self._agent:
            line = json.dumps(message, separators=(",", ":"))
            self._send(self._agent, pb.CoordinatorToAgent(controller=line))

    def apply_line(self, uid: str, line: str) -> None:
        """Take a line of an agent's; one of an agent that is over is left out."""
        pod = self._core.job.roster.pods.get(uid)
        try:
            message = json.loads(line)
        except ValueError:
            log.exception("a line about TaskD is not understood: %.200s", line)
            return
        if pod is None or pod.over:
            return
        if message.get("event") == "hello":
            self._agent = uid
        if uid == self._agent:
            self._dispatch_message(message)

    def _dispatch_message(self, message: Message) -> None:
        """Take a message at the time of its arrival: the agent's clock is another machine's."""
        event, at = message.get("event"), now()
        if event == "hello":
            self._core.apply_controller_hello(message["state"], _log_by_own_clock(message, at), at)
            for waiting in list(self._unanswered.values()):
                self._send_line_to_agent(waiting)
        elif event == "state":
            self._core.apply_controller_state(message["state"], at)
        elif event == "work":
            log.info("TaskD's work: %s", message["result"])
            self._core.apply_pause_result(message["result"], at)
        elif event is not None:
            log.info("MindIO by TaskD: %s %s", event, message["arguments"])
            self._core.apply_callback(event, message["arguments"], at, at)
        elif call := message.get("call"):
            self._unanswered.pop(str(message.get("answer")), None)
            code, exception = message["code"], message.get("exception", "")
            log.info("TaskD was told %s: %s", call, exception or code)
            self._core.note_answered_call(call, code, exception, at, at)


def _log_by_own_clock(hello: Message, at: float) -> list[Mapping[str, Any]]:
    """Return the log of a hello with its times moved from the agent's clock, as it was when it said so, to this one."""
    ahead = int(at * NANOSECONDS) - int(hello["now"])
    return [{**entry, "t": entry["t"] + ahead} if "t" in entry else entry for entry in hello["log"]]
