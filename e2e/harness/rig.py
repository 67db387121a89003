"""A rig: process nodes, an operator and a namespace on a control plane, for one scenario, the demo or a benchmark.

Several rigs share a control plane without meeting: each has node names, a label on its nodes, a namespace and an
operator of its own. The demo's rig is the plain one: an operator in hajob-system that serves all namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.cluster.control_plane import ControlPlane
from e2e.harness import blocks, diagnostics, operator
from e2e.harness.images import write_images
from e2e.harness.job import Job, manifest
from e2e.harness.preflight import require_free_ports
from e2e.kueue.launch import KueueStandIn, chips_of_choice, queued_in
from e2e.kueue.real import queue_of_choice
from e2e.nodes.config import NodeSettings
from e2e.nodes.launch import RunningNodes, start_nodes
from e2e.volcano.install import install_volcano, is_chosen, placed_by_volcano

RIG_LABEL = "hajob.io/rig"
HOST_PATH = "/var/lib/hajob-demo"


@dataclass(frozen=True)
class RigLayout:
    """What a rig consists of.

    Attributes:
        chip_nodes: Nodes with chips.
        chips: Chips of each of them.
        plain_nodes: Nodes without chips, where operator and coordinators go.
        operators: Replicas of the operator; 0: none is installed.
        operator_environment: More settings of the operator.
        trainer_environment: More variables of the trainer's image.
        node_settings: More fields of the node set's settings.
        images: More images, by name: the directory that stands for each.
        volcano: Jobs are placed by Volcano, or what stands in for it.
        queue_chips: Chips of the queue of Kueue's stand-in in which jobs are; 0: they are in none.
    """

    chip_nodes: int = 5
    chips: int = 2
    plain_nodes: int = 1
    operators: int = 1
    operator_environment: Mapping[str, str] = field(default_factory=dict)
    trainer_environment: Mapping[str, str] = field(default_factory=dict)
    node_settings: Mapping[str, Any] = field(default_factory=dict)
    images: Mapping[str, Path] = field(default_factory=dict)
    volcano: bool = field(default_factory=is_chosen)
    queue_chips: int = field(default_factory=chips_of_choice)

    @property
    def settings_of_operator(self) -> Mapping[str, str]:
        """Its settings, with what Volcano and Kueue need."""
        asked = {operator.SERVES_VOLCANO: self.volcano, operator.SERVES_KUEUE: self.queue_chips > 0}
        return {**{name: "true" for name, there in asked.items() if there}, **self.operator_environment}


class Rig:
    """A rig that runs.

    Attributes:
        plane: The control plane.
        name: Names its nodes and its directory.
        namespace: Where its jobs, and in a test its operator, live.
        nodes: Its process nodes; `nodes.control` makes faults.
        directory: Everything it writes.
        operator_namespace: Where its operator runs.
        volcano: Its jobs are placed by Volcano.
        queue: The stand-in for Kueue in whose queue its jobs are; None: in none.
    """

    def __init__(self, plane: ControlPlane, name: str, namespace: str, nodes: RunningNodes, directory: Path) -> None:
        self.plane = plane
        self.name = name
        self.namespace = namespace
        self.nodes = nodes
        self.directory = directory
        self.operator_namespace = namespace
        self.volcano = False
        self.queue: KueueStandIn | None = None
        self.jobs: list[Job] = []
        self.installed: list[operator.Object] = []

    @classmethod
    def start(cls, plane: ControlPlane, namespace: str, layout: RigLayout | None = None) -> Rig:
        """A rig for one test in a namespace that exists (its name ends with six characters of its own)."""
        layout = layout or RigLayout()
        name = f"rig-{namespace[-6:]}"
        rig = cls(plane, name, namespace, *_start_nodes(plane, name, layout))
        rig.install_schedulers(layout, {RIG_LABEL: name})
        if layout.operators:
            rig.install_operator(layout.operators, layout.settings_of_operator)
        return rig

    @classmethod
    def start_demo(cls, plane: ControlPlane, layout: RigLayout) -> Rig:
        """The only rig of a control plane: nodes with plain names, the operator as an admin installs it."""
        rig = cls(plane, "node", "default", *_start_nodes(plane, "node", layout))
        rig.operator_namespace = operator.NAMESPACE
        rig.install_schedulers(layout, {})
        operator.install_crd(plane)
        objects = operator.manifests(replicas=layout.operators, environment=layout.settings_of_operator)
        operator.install(plane, objects)
        return rig

    def install_schedulers(self, layout: RigLayout, node_labels: Mapping[str, str]) -> None:
        """Install what places the layout's jobs, and the queue that they are in, of the nodes with these labels."""
        self.volcano = layout.volcano
        if layout.volcano:
            install_volcano(self.plane)
        if layout.queue_chips:
            self.queue = queue_of_choice(self.plane, self.namespace)
            self.queue.install(layout.queue_chips, node_labels=node_labels)

    def install_operator(
        self, replicas: int = 1, environment: Mapping[str, str] | None = None, command: Sequence[str] = ()
    ) -> None:
        """Install an operator into the rig's namespace that serves this namespace and the rig's nodes only.

        Args:
            replicas: How many there are.
            environment: More settings.
            command: What its pods run instead of the image's entry point.
        """
        operator.install_crd(self.plane)
        self.installed = operator.manifests(
            self.namespace,
            watch_namespace=self.namespace,
            replicas=replicas,
            environment=environment,
            node_selector={RIG_LABEL: self.name},
            command=command,
        )
        operator.install(self.plane, self.installed)

    def submit(self, name: str = "job", **fields: Any) -> Job:  # noqa: ANN401 - the arguments of `manifest`
        """Apply a job made from `manifest`'s arguments, on this rig's nodes."""
        volume = self.directory / "volumes" / name
        selector = {RIG_LABEL: self.name}
        return self.apply(manifest(name, self.namespace, volume, node_selector=selector, **fields), volume)

    def apply(self, content: Mapping[str, Any], volume: Path) -> Job:
        """`kubectl apply` a job whose checkpoint volume is the directory `volume` of this machine."""
        self.plane.apply(self.fitted_job(content))
        metadata = content["metadata"]
        job = Job(self.plane, metadata["name"], metadata.get("namespace", self.namespace), volume)
        self.jobs.append(job)
        return job

    def fitted_job(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """The job as this rig's scheduler and queue take it: with `gangPolicy: Volcano`, with a queue's label."""
        wanted = placed_by_volcano(content) if self.volcano else content
        return queued_in(wanted, self.queue.queue) if self.queue is not None else wanted

    @property
    def trainer_image(self) -> Path:
        """The directory that stands for the trainer's image."""
        return self.directory / "images" / "toy-trainer"

    def host_path(self, path: str) -> Path:
        """The directory of this machine that stands for a host path below /var/lib/hajob-demo."""
        return self.directory / "host" / Path(path).relative_to(HOST_PATH)

    def lines(self, pod: str, container: str) -> Iterator[str]:
        """What a container of a pod of its namespace has logged, as it is in the nodes' files."""
        logs: Path = self.plane.run.directory / f"nodes-{self.name}" / "logs"
        for path in sorted(logs.glob(f"*/{self.namespace}_{pod}_*/{container}/*.log")):
            yield from path.read_text(errors="replace").splitlines()

    def explain(self) -> Path:
        """Something failed: write down what the cluster looks like, keep the logs; returns where they will be."""
        return diagnostics.collect(self.plane, self.namespace, self.directory, self.name)

    def stop(self) -> None:
        """Delete its jobs, end its nodes with all their containers, and remove its objects."""
        for job in self.jobs:
            self.plane.api.delete(job.path)
        if self.queue is not None:
            self.queue.uninstall()
        self.nodes.stop()
        blocks.give_back(self.plane.run.directory, self.nodes.settings.first_block)
        for node in self.nodes.settings.nodes:
            self.plane.api.delete(f"/api/v1/nodes/{node.name}")
        if self.installed:
            operator.uninstall(self.plane, self.installed, self.namespace)


def node_names(name: str, layout: RigLayout) -> list[str]:
    """Names of the nodes with chips, then of those without."""
    return [f"{name}-{number}" for number in range(layout.chip_nodes)] + _plain_names(name, layout.plain_nodes)


def _plain_names(name: str, count: int) -> list[str]:
    return [f"{name}-cpu"] if count == 1 else [f"{name}-cpu-{number}" for number in range(count)]


def _start_nodes(plane: ControlPlane, name: str, layout: RigLayout) -> tuple[RunningNodes, Path]:
    require_free_ports(plane.run)
    directory = plane.run.directory / f"rig-{name}"
    directory.mkdir()
    labels = {RIG_LABEL: name}
    chips = [layout.chips] * layout.chip_nodes + [0] * layout.plain_nodes
    names: Sequence[str] = node_names(name, layout)
    nodes = [NodeSettings(name=each, chips=count, labels=labels) for each, count in zip(names, chips, strict=True)]
    running = start_nodes(
        plane.run,
        plane,
        nodes,
        {**write_images(directory / "images", layout.trainer_environment), **layout.images},
        name=f"nodes-{name}",
        first_block=blocks.claim(plane.run.directory, len(nodes)),
        host_paths={HOST_PATH: directory / "host"},
        **layout.node_settings,
    )
    return running, directory
