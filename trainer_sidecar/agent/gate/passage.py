"""When bytes may pass the gate: all links wait here, and look again when order or lease change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from trainer_sidecar.agent.clock import Clock
from trainer_sidecar.agent.gate.registrations import Registrations
from trainer_sidecar.agent.gate.rules import Rules
from trainer_sidecar.agent.gate.security import LinkSecurity

log = logging.getLogger(__name__)


class Passage:
    """What the links of a gate share.

    Attributes:
        rules: of the agent.
        clock: of the agent.
        registrations: what the ranks have told MindIO.
        security: of the links to the controller; None: they are not encrypted.
        unreadable: messages that could not be read. They have passed all the same; no other controller can take over.
    """

    def __init__(
        self,
        rules: Rules,
        clock: Clock,
        registrations: Registrations | None = None,
        security: LinkSecurity | None = None,
    ) -> None:
        self.rules, self.clock, self.security = rules, clock, security
        self.registrations = registrations if registrations is not None else Registrations()
        self.unreadable = 0
        self._change = asyncio.Event()

    async def wait_until_open(self, rank: int, bound: str | None) -> None:
        """Wait until the rank's bytes may pass; at once when they may. `bound`: the controller that they go to.

        Raises:
            ConnectionAbortedError: another controller than `bound` is in service by then.
        """
        await self.wait_until(lambda: self.rules.may_pass(rank))
        if bound is not None and bound != self.rules.controller_name():
            raise ConnectionAbortedError("another controller is in service")

    async def wait_until(self, allowed: Callable[[], bool]) -> None:
        """Wait until order and lease allow it; at once when they do."""
        while not allowed():
            await self._change.wait()

    def follow_changed_order(self) -> None:
        """Let everybody who waits look at order and lease again."""
        self._change.set()
        self._change = asyncio.Event()

    async def greet_controller(self, writer: asyncio.StreamWriter, frame: bytes) -> None:
        """Send a connect frame, and begin TLS behind it where the controller speaks it. OSError: it is not taken."""
        writer.write(frame)
        if self.security is not None:
            await self.security.secure_upstream(writer)

    def count_unreadable(self, rank: int, what: str) -> None:
        """Count a message that could not be read."""
        self.unreadable += 1
        if self.unreadable.bit_count() == 1:  # the first, second, fourth …: each heartbeat may be one
            log.warning("rank %s: %s; passed on unread (number %d)", rank, what, self.unreadable)
