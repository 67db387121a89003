"""What the pods of a node share: the node's settings, connections and processes.

A plain record, so that pods need no reference to the node itself and a test can make one by hand.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from e2e.cluster.processes import MARKER
from e2e.nodes.api import ApiGate, NodeApiClient
from e2e.nodes.chips import ChipAllocator
from e2e.nodes.config import NodeSetSettings
from e2e.nodes.events import EventPoster
from e2e.nodes.processes import CONTAINER_MARKER, ProcessHost


@dataclass
class AddressPool:
    """Loopback addresses for pods.

    The one that was free the longest is given first, so that late packets and listeners of a pod that is gone do not
    meet its successor.
    """

    free: list[str]

    def take(self) -> str | None:
        """An address, or None when all are in use."""
        return self.free.pop(0) if self.free else None

    def give_back(self, address: str) -> None:
        """The address may be given out again."""
        self.free.append(address)


@dataclass
class NodeContext:
    """One node, as its pods see it. ``power`` is closed while the node is switched off."""

    name: str
    address: str
    settings: NodeSetSettings
    client: NodeApiClient
    device_client: NodeApiClient
    power: ApiGate
    processes: ProcessHost
    chips: ChipAllocator
    addresses: AddressPool
    events: EventPoster
    images: Mapping[str, Path]
    allocatable: dict[str, str] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        """Where the node keeps its pods' volumes: short, because sockets live there."""
        return self.settings.directory / self.name

    @property
    def logs(self) -> Path:
        """Where the output of containers goes; it stays when a pod is gone."""
        return self.settings.directory / "logs" / self.name

    def markers(self, container: str) -> dict[str, str]:
        """What every process of a container carries: whose it is, and the run it belongs to."""
        run = os.environ.get(MARKER)
        return {CONTAINER_MARKER: container} | ({MARKER: run} if run else {})

    @property
    def services(self) -> dict[str, str]:
        """The variables by which programs find the API server. The real address: there are no cluster addresses."""
        server = urlsplit(self.settings.server)
        return {
            "KUBERNETES_SERVICE_HOST": server.hostname or "",
            "KUBERNETES_SERVICE_PORT": str(server.port or 443),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(server.port or 443),
        }
