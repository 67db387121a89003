"""Real nodes for a session of tests: one set for `e2e/kubelets` and for what is played there of `e2e/scenarios`.

A plugin of pytest, loaded where such nodes are prepared (`DIRECTORY`).
"""

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

CHIPS: Final = (2, 2, 2, 2, 2, 2, 0)
"""Of each node: a job of four nodes, two that are lost at once, and where they go."""
SHORT: Final = (2, 2, 2, 0)
ENVIRONMENTAL: Final = (KubeletsError, ControlPlaneError, subprocess.SubprocessError, OSError)
"""What nodes that do not come up raise."""


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
