"""A control plane with real nodes, Hajob's chart on it, and jobs."""

from __future__ import annotations

import datetime
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic

from typing_extensions import TypeVar

from e2e.bootstrap.binaries import locate
from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.control_plane import ControlPlane
from e2e.harness.job import GROUP, Job, Object, manifest
from e2e.harness.operator import NAME
from e2e.harness.undisturbed import undisturbed
from e2e.kubelets.machines import Machines
from e2e.kubelets.nodes import RealNodes
from e2e.trainer import proof
from hajob.api import constants as names

NAMESPACE: Final = "hajob-system"
OPERATOR: Final = f"system:serviceaccount:{NAMESPACE}:{NAME}"
"""The user that it is to the API server."""
CHART: Final = CHECKOUT / "charts/hajob"
CRDS: Final = ("hatrainingjobs.training.hajob.io", "nodequarantines.training.hajob.io")
ITERATIONS: Final = 400
SIZES: Final[Mapping[str, int]] = {"nodes": 2, "tensor": 2, "iterations": ITERATIONS}
WAIT_SECONDS: Final = 240.0
END_SECONDS: Final = 300.0


N_co = TypeVar("N_co", bound=Machines, default=RealNodes, covariant=True)


@dataclass(frozen=True)
class Cluster(Generic[N_co]):
    """What the scenarios on real nodes use."""

    plane: ControlPlane
    nodes: N_co

    def helm(self, *arguments: str) -> str:
        """Run Helm in the operator's namespace; returns what it prints."""
        where = ["--namespace", NAMESPACE, "--kubeconfig", str(self.plane.kubeconfig)]
        command = [str(locate("helm")), *arguments, *where]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=300, env=self.plane.run.environment({})
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def install(self, *arguments: str, chart: Path = CHART) -> None:
        """Install a chart and wait until the operators are ready."""
        self.helm(
            "upgrade", "--install", "hajob", str(chart), "--create-namespace", "--wait", "--timeout=240s", *arguments
        )

    def uninstall(self) -> None:
        """Remove the jobs, the chart and its CRDs, if they are there."""
        self.clear()
        self.helm("uninstall", "hajob", "--ignore-not-found", "--wait", "--timeout=60s")
        self.plane.wait("the operators to be gone", lambda: not self.operators(), 60)
        self.plane.kubectl("delete", "crd", "--ignore-not-found", *CRDS)

    def volume(self, name: str) -> Path:
        """The directory that is the checkpoint volume of a job."""
        return self.plane.run.directory / "volumes" / name

    def manifest(self, name: str, namespace: str = "default", **fields: Any) -> Object:  # noqa: ANN401 - of `manifest`
        """A job of two nodes."""
        return manifest(name, namespace, self.volume(name), **{**SIZES, **fields})

    def apply(self, content: Object) -> Job:
        """`kubectl apply` a job."""
        self.plane.apply(content)
        metadata = content["metadata"]
        return Job(self.plane, metadata["name"], metadata["namespace"], self.volume(metadata["name"]))

    def train(self, name: str, **fields: Any) -> Job:  # noqa: ANN401 - of `manifest`
        """Apply a job, and wait until it trains."""
        job = self.apply(self.manifest(name, **fields))
        job.wait_step(10, seconds=WAIT_SECONDS)
        return job

    def wait_trains(self, job: Job, incarnation: int, fault_ns: int) -> proof.Outage:
        """Until the incident is over and every rank has finished a step after the fault; the outage."""
        job.wait_incident(incarnation, seconds=WAIT_SECONDS)

        def outage() -> proof.Outage | None:
            found = (each for each in proof.outages(job.events(), job.world()) if each.end_ns > fault_ns)
            return next(found, None)

        return self.plane.wait("the first step of all ranks", outage)

    def weights_differ(self, job: Job, iterations: int = ITERATIONS) -> list[str]:
        """Let it end; how its weights differ from those of a training that nothing happened to."""
        job.hurry()
        job.wait_condition("Complete", seconds=END_SECONDS)
        return job.weights_differ(undisturbed(self.plane.run, tensor=2, pipeline=1, data=2, iterations=iterations))

    def operators(self) -> list[Object]:
        """The operator's pods."""
        selector = "app.kubernetes.io/name=hajob-operator"
        return self.plane.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=selector)

    def power_on(self: Cluster[RealNodes]) -> None:
        """All nodes are on, and ready."""
        for node in self.nodes.nodes.values():
            if node.process is None or node.process.poll() is not None:
                self.nodes.power_on(node.name)
        self.nodes.wait_ready()

    def leader(self) -> Object | None:
        """The operator's pod that holds the Lease; None while none does."""
        lease = self.plane.api.find(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}")
        holder = str((lease or {"spec": {}})["spec"].get("holderIdentity") or "").rpartition("_")[0]
        return next((pod for pod in self.operators() if pod["metadata"]["name"] == holder), None)

    def lead_from(self, node: str) -> None:
        """Make an operator on a node without chips, which operators prefer, lead; the standby is ready then, too."""

        def leads() -> bool:
            """Whoever leads from elsewhere is deleted: a standby that is on the node leads then, or a new one is."""
            holder = self.leader()
            if holder is None:
                return False
            if holder["spec"]["nodeName"] == node:
                return True
            self.plane.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{holder['metadata']['name']}")
            self.wait_operators()
            return False

        self.plane.wait(f"an operator on {node} to lead", leads, WAIT_SECONDS)
        self.wait_operators()

    def wait_operators(self) -> None:
        """Wait until as many as there should be are ready."""
        self.plane.kubectl(
            "rollout", "status", f"deployment/{NAME}", f"--namespace={NAMESPACE}", "--timeout=60s", timeout=90
        )

    def clear(self) -> None:
        """Remove all jobs, such as a failed scenario has left, whatever became of their nodes and of the operators."""
        for left in (self.plane.api.find(f"{GROUP}/hatrainingjobs") or {}).get("items", []):
            metadata = left["metadata"]
            job = ("hajob", metadata["name"], f"--namespace={metadata['namespace']}")
            self.plane.kubectl("delete", *job, "--wait=false", check=False)
            self.plane.kubectl("patch", *job, "--type=merge", "-p", '{"metadata":{"finalizers":null}}', check=False)
        pods = ("pods", "--all-namespaces", f"--selector={names.LABEL_JOB_NAME}")
        self.plane.kubectl("delete", *pods, "--force", "--grace-period=0", "--wait=false", check=False)

    def refused_requests(self, since: datetime.datetime) -> list[str]:
        """What the API server refused the operator for want of a right, once each; uninstalled, it is refused much."""
        refused = (each for each in self.plane.audit.requests(since, user=OPERATOR) if each.status == 403)
        return sorted({f"{each.verb} {each.resource}" for each in refused})
