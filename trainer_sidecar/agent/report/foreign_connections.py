"""Connections from outside of this pod, held at its ports: their number, and a sentence that seldom changes.

docs/protocols/launcher.md#the-gate
"""

from __future__ import annotations

import logging
from collections import Counter

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent.settings import AgentSettings

log = logging.getLogger(__name__)


class ForeignConnections:
    """Counter of held connections by port; a port scan of hours costs a sentence for each doubling."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._held: Counter[int] = Counter()
        self._first: dict[int, str] = {}
        self.number = 0  # of all ports

    def count_connection(self, port: int, host: str) -> bool:
        """Count a connection from `host`; return whether the sentence has changed."""
        self._first.setdefault(port, host)
        self._held[port] += 1
        self.number += 1
        log.warning("port %d serves this pod only: a connection from %s is held (number %d)", port, host, self.number)
        return self._held[port].bit_count() == 1

    def connection_problems(self) -> list[pb.Problem]:
        """Return one problem for all ports; none while no connection came."""
        texts = [
            f"port {port} of {self._settings.pod_name} serves its own pod only: connections from {host}"
            f"{' and others' if self._held[port] > 1 else ''} are held and not read "
            f"({1 << (self._held[port].bit_length() - 1)} or more)"
            for port, host in sorted(self._first.items())
        ]
        return [pb.Problem(code="StrangersHeld", message="; ".join(texts))] if texts else []
