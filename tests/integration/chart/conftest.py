"""Fixtures of the chart's tests on a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.control_plane import ControlPlane
from tests.integration.chart.chart_release import Release


@pytest.fixture
def release(control_plane: ControlPlane, namespace: str) -> Iterator[Release]:
    made = Release(control_plane, namespace)
    yield made
    if "hajob" in made.helm("list", "--short"):
        made.helm("uninstall", "hajob")
    # what Helm applied it owns: kubectl has to take it back
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CHECKOUT / "crds"))
