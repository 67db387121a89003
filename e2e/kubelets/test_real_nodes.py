"""Hajob on real kubelets: installed by the chart, from the images that are released."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.bootstrap.binaries import locate
from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.control_plane import ControlPlane
from e2e.harness.job import Job, manifest
from e2e.harness.undisturbed import undisturbed
from e2e.kubelets.__main__ import DIRECTORY
from e2e.kubelets.nodes import RealNodes, gather_programs
from e2e.trainer import proof

pytestmark = [
    pytest.mark.skipif(DIRECTORY not in os.environ, reason="real nodes: make e2e PROVIDER=kubelets"),
    pytest.mark.timeout(600),
]
CHIPS = (2, 2, 2, 0)
ITERATIONS = 400
NAMESPACE = "hajob-system"


@dataclass(frozen=True)
class Cluster:
    """A control plane with real nodes."""

    plane: ControlPlane
    nodes: RealNodes

    def helm(self, *arguments: str) -> str:
        command = [
            str(locate("helm")),
            *arguments,
            "--namespace",
            NAMESPACE,
            "--kubeconfig",
            str(self.plane.kubeconfig),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=120, env=self.plane.run.environment({})
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    prepared = Path(os.environ[DIRECTORY])
    programs = gather_programs(control_plane.run.directory / "programs", prepared / "runc/usr/sbin/runc")
    nodes = RealNodes(control_plane, programs)
    before, failed = request.session.testsfailed, 1
    try:
        nodes.start(CHIPS, sorted((prepared / "images").glob("*.tar")))
        yield Cluster(control_plane, nodes)
        failed = request.session.testsfailed - before
    finally:
        if failed:
            print(control_plane.kubectl("get", "pods,events", "-A", "-o", "wide", check=False).stdout)
            print(f"logs are kept in {nodes.keep_logs()}")
        nodes.stop()


def wait_trains(cluster: Cluster, job: Job, incarnation: int, fault_ns: int) -> proof.Outage:
    """Until the incident is over and every rank has finished a step after the fault; the outage."""
    job.wait_incident(incarnation, seconds=120)

    def outage() -> proof.Outage | None:
        found = (each for each in proof.outages(job.events(), job.world()) if each.end_ns > fault_ns)
        return next(found, None)

    return cluster.plane.wait("the first step of all ranks", outage)


def test_a_training_outlives_faults_on_real_kubelets(cluster: Cluster) -> None:
    """Install by the chart, one InPlace, one Replace, the weights, uninstall."""
    began = time.monotonic()
    cluster.helm("install", "hajob", str(CHECKOUT / "charts/hajob"), "--create-namespace", "--wait", "--timeout", "90s")
    installed = time.monotonic() - began

    volume = cluster.plane.run.directory / "checkpoints"
    content = manifest("real", "default", volume, nodes=2, iterations=ITERATIONS)
    cluster.plane.apply(content)
    job = Job(cluster.plane, "real", "default", volume)
    job.wait_step(10, seconds=120)

    in_place = wait_trains(cluster, job, 2, cluster.nodes.kill(rank=1))
    (incident,) = job.incidents()
    assert (incident["action"], incident["lostSteps"]) == ("InPlace", 0)

    lost = job.node_of(0)
    replace = wait_trains(cluster, job, 3, cluster.nodes.nodes[lost].power_off())
    assert (job.incidents()[0]["action"], job.incidents()[0]["lostSteps"]) == ("Replace", 0)
    assert job.node_of(0) != lost

    job.hurry()
    job.wait_condition("Complete", seconds=120)
    assert job.weights_differ(undisturbed(cluster.plane.run, tensor=2, pipeline=1, data=2, iterations=ITERATIONS)) == []
    cluster.helm("uninstall", "hajob")
    assert cluster.plane.api.find(job.path) is not None, "the CRD stays, and so does the job"
    print(f"installed {installed:.1f} s, InPlace {in_place.seconds:.2f} s, Replace {replace.seconds:.2f} s")
