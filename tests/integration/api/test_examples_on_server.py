"""Every example is taken by a real API server as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.control_plane import ControlPlane
from tests.integration.conftest import ROOT


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: str(path.stem))
def test_an_example_is_applied(control_plane: ControlPlane, crd: dict[str, Any], namespace: str, path: Path) -> None:
    said = control_plane.kubectl("apply", "--dry-run=server", "-n", namespace, "-f", str(path)).stdout
    assert said.count("created (server dry run)") == path.read_text().count("kind: HATrainingJob")
