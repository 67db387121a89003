"""What demo and benchmarks need of a cluster, whatever its nodes are (`PROVIDER`, docs/internals/local-cluster.md)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from e2e.cluster.control_plane import ControlPlane
from e2e.harness.job import Job

Answer = dict[str, Any]


class FaultControl(Protocol):
    """Faults of processes, nodes and chips; each answers `time`, when it was done, in nanoseconds."""

    def kill(self, signal: str = "KILL", **which: object) -> Answer:
        """Send a signal to a rank: `namespace`, `rank`."""
        ...

    def power_off(self, node: str) -> Answer:
        """The machine stops dead: silent, no connection closed."""
        ...

    def power_on(self, node: str) -> Answer:
        """The machine boots."""
        ...

    def break_chip(self, node: str, chip: int, code: str = ..., level: str = ..., kind: str = ...) -> Answer:
        """A chip gets a fault, which the device plugin tells."""
        ...


class Nodes(Protocol):
    """The nodes of a cluster."""

    @property
    def control(self) -> FaultControl:
        """Makes faults on them."""
        ...


class ClusterRig(Protocol):
    """Nodes, an operator and a namespace for jobs.

    Attributes:
        plane: The control plane.
        namespace: Where its jobs live.
        operator_namespace: Where its operator runs.
    """

    plane: ControlPlane
    namespace: str
    operator_namespace: str

    @property
    def nodes(self) -> Nodes:
        """Where everything runs."""
        ...

    def submit(self, name: str = "job", **fields: Any) -> Job:  # noqa: ANN401 - the arguments of `manifest`
        """Apply a job made from `manifest`'s arguments."""
        ...

    def host_path(self, path: str) -> Path:
        """The directory of this machine that stands for a host path below HOST_PATH."""
        ...

    def lines(self, pod: str, container: str) -> Iterable[str]:
        """What a container of a pod of its namespace has logged."""
        ...

    def explain(self) -> Path:
        """Something failed: keep the logs; returns where they will be."""
        ...
