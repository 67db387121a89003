"""Some of a session's real nodes for one scenario of `e2e/scenarios`, as process nodes are started for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from e2e.harness import operator
from e2e.harness.job import GROUP, Job, manifest
from e2e.harness.rig import RIG_LABEL, RigLayout
from e2e.kubelets.cluster import NAMESPACE, Cluster
from e2e.kubelets.containers import ContainerFaults
from e2e.kubelets.nodes import RealNode
from e2e.kubelets.rig import PoweredNodes, RealRig
from e2e.nodes.faults import NODE_NAMESPACE

SETTLE_SECONDS: Final = 180.0
"""What a scenario before has left may stand on nodes that are only just on again."""
OFF_TAINT: Final = "node.kubernetes.io/out-of-service"


class ScenarioNodes(PoweredNodes):
    """The nodes of a scenario.

    Attributes:
        settings: Their names and chips, as `settings.nodes`.
    """

    def __init__(self, control: ContainerFaults, nodes: list[RealNode]) -> None:
        super().__init__(control)
        self.control: ContainerFaults = control
        self.settings = SimpleNamespace(nodes=nodes)


class ScenarioRig(RealRig):
    """What scenarios use of a `Rig`, on nodes that others had before; the operators are the chart's and serve all.

    Attributes:
        name: The label of its nodes.
        directory: Below which its jobs have their volumes.
    """

    def __init__(self, cluster: Cluster, namespace: str, nodes: list[RealNode]) -> None:
        control = ContainerFaults(cluster.plane, cluster.nodes)
        super().__init__(cluster, control)
        self.nodes: ScenarioNodes = ScenarioNodes(control, nodes)
        self.namespace = namespace
        self.name = f"rig-{namespace[-6:]}"
        self.directory = cluster.plane.run.directory / self.name
        self.directory.mkdir()

    @classmethod
    def borrow(cls, cluster: Cluster, namespace: str, layout: RigLayout) -> ScenarioRig:
        """The nodes of a layout, all on and empty, healthy and open; the leader stands on the one without chips.

        Raises:
            LookupError: the session has fewer nodes.
        """
        settle(cluster)
        every = list(cluster.nodes.nodes.values())
        with_chips = [node for node in every if node.chips == layout.chips][: layout.chip_nodes]
        plain = [node for node in every if not node.chips][: layout.plain_nodes]
        if (len(with_chips), len(plain)) != (layout.chip_nodes, layout.plain_nodes):
            raise LookupError(f"this session has not {layout.chip_nodes} and {layout.plain_nodes} nodes for a scenario")
        rig = cls(cluster, namespace, [*with_chips, *plain])
        cluster.plane.kubectl("label", "node", "--all", f"{RIG_LABEL}-")
        cluster.plane.kubectl(
            "label", "node", *(node.name for node in rig.nodes.settings.nodes), f"{RIG_LABEL}={rig.name}"
        )
        cluster.lead_from(plain[0].name)
        return rig

    def submit(self, name: str = "job", **fields: Any) -> Job:  # noqa: ANN401 - the arguments of `manifest`
        """Apply a job made from `manifest`'s arguments, on its nodes."""
        volume = self.directory / "volumes" / name
        content = manifest(name, self.namespace, volume, node_selector={RIG_LABEL: self.name}, **fields)
        return self.apply(content, volume)

    def apply(self, content: Mapping[str, Any], volume: Path) -> Job:
        """`kubectl apply` a job whose checkpoint volume is the directory `volume` of this machine."""
        self.plane.apply(content)
        metadata = content["metadata"]
        return Job(self.plane, metadata["name"], metadata["namespace"], volume)

    def stop(self) -> None:
        """Remove its jobs; nodes and operators are the session's."""
        self.cluster.clear()


def settle(cluster: Cluster) -> None:
    """All nodes are on, open and empty but for the operators, which believe that many nodes break within a minute."""
    plane = cluster.plane
    cluster.clear()
    place = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NODE_NAMESPACE}}
    plane.apply(place)
    ContainerFaults(plane, cluster.nodes).repair_everything()
    cluster.power_on()
    plane.kubectl("uncordon", *cluster.nodes.nodes)
    plane.kubectl("taint", "node", "--all", f"{OFF_TAINT}-", check=False)  # refused where no node has it
    cluster.install("--set", f"faultNamespaces={{kube-system,{NODE_NAMESPACE}}}")
    plane.apply(operator.many_may_break(NAMESPACE))
    plane.kubectl("delete", "nodequarantines", "--all", check=False)

    def empty() -> bool:
        jobs = plane.api.items(f"{GROUP}/hatrainingjobs")
        pods = [pod for pod in plane.api.items("/api/v1/pods") if pod["metadata"]["namespace"] != NAMESPACE]
        return not jobs and not pods

    plane.wait("the scenario before to be gone", empty, SETTLE_SECONDS, poll=0.5)
