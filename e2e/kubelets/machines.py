"""What demo, benchmarks and the short half need of nodes with real kubelets, whoever runs these."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from e2e.kubelets.device_plugin import DevicePlugin


class Machine(Protocol):
    """One node.

    Attributes:
        chips: How many it has.
        plugin: Offers them to its kubelet.
    """

    chips: int
    plugin: DevicePlugin | None

    @property
    def name(self) -> str:
        """Of the node."""
        ...

    def power_off(self) -> int:
        """It stops dead, silently; returns when, in nanoseconds."""
        ...

    def cut(self) -> int:
        """Cut its network, and nothing else; returns when, in nanoseconds."""
        ...

    def heal(self) -> None:
        """Its network is back."""
        ...


class Machines(Protocol):
    """All nodes of a run.

    Attributes:
        shared: What all of them have as /var/lib/hajob-demo.
    """

    shared: Path

    @property
    def nodes(self) -> Mapping[str, Machine]:
        """By name."""
        ...

    def signal_rank(self, rank: int, job: str = "", name: str = "KILL") -> tuple[int, int]:
        """Send a rank a signal; its process number, and when, in nanoseconds. LookupError: there is none."""
        ...

    def power_on(self, name: str) -> None:
        """Start a node again that was powered off."""
        ...

    def wait_ready(self, *names_of_nodes: str) -> None:
        """Wait until nodes, or all, are ready and offer their chips. ControlPlaneError: they are not in time."""
        ...

    def keep_logs(self) -> Path:
        """Keep what the nodes have said; returns where."""
        ...

    def stop(self) -> None:
        """End everything."""
        ...
