"""Real nodes with Hajob's chart on them, as the demo and the benchmarks use a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from e2e.cluster.control_plane import ControlPlane
from e2e.harness.job import Job
from e2e.harness.rig import HOST_PATH, RigLayout
from e2e.kubelets.cluster import NAMESPACE, Cluster
from e2e.kubelets.faults import RealFaults
from e2e.kubelets.machines import Machines
from e2e.kubelets.nodes import RealNodes, gather_programs


def chips_of(layout: RigLayout) -> list[int]:
    """Of each node of a layout."""
    return [layout.chips] * layout.chip_nodes + [0] * layout.plain_nodes


class PoweredNodes:
    """The nodes, as whoever makes faults sees them."""

    def __init__(self, control: RealFaults) -> None:
        self.control = control


class RealRig:
    """Nodes, operators from the chart, and namespace `default`.

    Attributes:
        plane: The control plane.
        namespace: Where jobs live.
        operator_namespace: Where the operators run.
        nodes: `nodes.control` makes faults.
        cluster: Under it all.
    """

    namespace = "default"
    operator_namespace = NAMESPACE

    def __init__(self, cluster: Cluster[Machines], control: RealFaults) -> None:
        self.cluster = cluster
        self.plane = cluster.plane
        self.nodes = PoweredNodes(control)

    @classmethod
    def start(cls, plane: ControlPlane, layout: RigLayout, prepared: Path) -> RealRig:
        """Start the nodes of a layout and install the chart.

        Args:
            plane: The control plane they join.
            layout: How many nodes with and without chips; the trainer's image is as it was prepared.
            prepared: Where images and runc are.
        """
        programs = gather_programs(plane.run.directory / "programs", prepared / "runc/usr/sbin/runc")
        nodes = RealNodes(plane, programs)
        nodes.start(chips_of(layout), sorted((prepared / "images").glob("*.tar")))
        return cls.install(plane, nodes)

    @classmethod
    def install(cls, plane: ControlPlane, nodes: Machines) -> RealRig:
        """Install the chart on nodes that are ready."""
        cluster = Cluster(plane, nodes)
        cluster.install()
        control = RealFaults(plane, nodes)
        control.publish(*(node for node in nodes.nodes.values() if node.chips))
        return cls(cluster, control)

    def submit(self, name: str = "job", **fields: Any) -> Job:  # noqa: ANN401 - the arguments of `manifest`
        """Apply a job made from `manifest`'s arguments."""
        return self.cluster.apply(self.cluster.manifest(name, **{"nodes": 4, **fields}))

    def host_path(self, path: str) -> Path:
        """What every node has below HOST_PATH."""
        return self.cluster.nodes.shared / Path(path).relative_to(HOST_PATH)

    def lines(self, pod: str, container: str) -> Iterator[str]:
        """What a container of a pod of its namespace has logged."""
        yield from self.plane.kubectl("logs", pod, "--container", container).stdout.splitlines()

    def explain(self) -> Path:
        """Something failed: keep the logs; returns where they will be."""
        return self.cluster.nodes.keep_logs()

    def stop(self) -> None:
        """End the nodes and what runs on them."""
        self.cluster.nodes.stop()
