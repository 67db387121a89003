"""Real nodes for a session, and Hajob on them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.cluster.control_plane import ControlPlane, ControlPlaneError
from e2e.cluster.run import Run
from e2e.kubelets import images
from e2e.kubelets.__main__ import LENIENT
from e2e.kubelets.cluster import Cluster
from e2e.kubelets.configuration import DIRECTORY
from e2e.kubelets.kind import __main__ as kind
from e2e.kubelets.nodes import KubeletsError, RealNodes, gather_programs

CHIPS = (2, 2, 2, 2, 0)
"""Of each node. A node that a fault has shown to be weak is avoided, so one more than the short half needs."""
SHORT = (2, 2, 2, 0)
ENVIRONMENTAL = (KubeletsError, ControlPlaneError, subprocess.SubprocessError, OSError)
"""What nodes that do not come up raise."""


ON_KIND: Final = (
    "test_a_training_outlives_faults_on_real_kubelets",
    "test_what_trains_outlives_the_operators_removal",
    "test_pods_of_a_deleted_job_are_gone_at_once",
    "test_a_drained_node_is_left_without_a_restart",
)
"""What asks of nodes only that ranks are killed and machines end; the others reach into kubelet, cgroup or network."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What kind's nodes cannot play is skipped by its name, so that pytest counts it."""
    if not kind.is_chosen():
        return
    skipped = pytest.mark.skip(reason="PROVIDER=kind: it reaches into nodes of PROVIDER=kubelets")
    for item in items:
        if getattr(item, "originalname", item.name) not in ON_KIND:
            item.add_marker(skipped)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster[Any]]:
    """Nodes with chips and one without; their logs are kept when a test fails."""
    before = request.session.testsfailed
    if kind.is_chosen():
        with Run.start("tests on nodes of kind's") as run:
            plane, made = kind.start(run, CHIPS)
            yield Cluster(plane, made)
            if request.session.testsfailed > before:
                print(f"logs are kept in {made.keep_logs()}")
            made.stop()
        return
    yield from _kubelets(request.getfixturevalue("control_plane"), request)


def _kubelets(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    prepared = Path(os.environ[DIRECTORY])
    programs = gather_programs(control_plane.run.directory / "programs", prepared / "runc/usr/sbin/runc")
    nodes = RealNodes(control_plane, programs)
    before, failed = request.session.testsfailed, 1
    try:
        try:
            began = time.monotonic()
            nodes.start(SHORT if LENIENT in os.environ else CHIPS, sorted((prepared / "images").glob("*.tar")))
        except ENVIRONMENTAL as error:
            if LENIENT not in os.environ:
                raise
            failed = 0
            pytest.skip(f"real kubelets are left out: {error}")
        print(f"nodes ready with their images in {time.monotonic() - began:.0f} s")
        print(f"Hajob's image imported for the first time in {nodes.imports[images.OWN]:.1f} s")
        yield Cluster(control_plane, nodes)
        failed = request.session.testsfailed - before
    finally:
        if failed:
            print(f"logs are kept in {nodes.keep_logs()}")
        try:
            nodes.stop()
        except KubeletsError as error:
            if LENIENT not in os.environ:
                raise
            print(error)


@pytest.fixture(autouse=True)
def explained(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[None]:
    """When a test fails: what the cluster looked like; what it left of its jobs is removed."""
    before = request.session.testsfailed
    yield
    if request.session.testsfailed > before:
        print(cluster.plane.kubectl("get", "nodes,pods,hajobs,events", "-A", "-o", "wide", check=False).stdout)
        cluster.clear()


@pytest.fixture
def hajob(cluster: Cluster[Any]) -> Cluster[Any]:
    """All nodes are on, and the chart is installed."""
    if kind.is_chosen():
        cluster.install()
        return cluster
    for node in cluster.nodes.nodes.values():
        if node.process is None or node.process.poll() is not None:
            cluster.nodes.power_on(node.name)
    cluster.nodes.wait_ready()
    cluster.install()
    return cluster
