"""Real nodes for a session, and Hajob on them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.control_plane import ControlPlane, ControlPlaneError
from e2e.kubelets import images
from e2e.kubelets.__main__ import LENIENT
from e2e.kubelets.cluster import Cluster
from e2e.kubelets.configuration import DIRECTORY
from e2e.kubelets.nodes import KubeletsError, RealNodes, gather_programs

CHIPS = (2, 2, 2, 2, 0)
"""Of each node. A node that a fault has shown to be weak is avoided, so one more than the short half needs."""
SHORT = (2, 2, 2, 0)
ENVIRONMENTAL = (KubeletsError, ControlPlaneError, subprocess.SubprocessError, OSError)
"""What nodes that do not come up raise."""


@pytest.fixture(scope="session")
def cluster(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Nodes with chips and one without; their logs are kept when a test fails."""
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
def hajob(cluster: Cluster) -> Cluster:
    """All nodes are on, and the chart is installed."""
    for node in cluster.nodes.nodes.values():
        if node.process is None or node.process.poll() is not None:
            cluster.nodes.power_on(node)
    cluster.nodes.wait_ready()
    cluster.install()
    return cluster
