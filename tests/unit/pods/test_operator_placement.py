"""Where the operator's own pods may run, and what that does to the pods of jobs."""

from __future__ import annotations

import yaml

from e2e.bootstrap.paths import CHECKOUT


def test_nothing_repels_coordinators_from_nodes_without_chips() -> None:
    """A term between pods counts both ways, and as much as the coordinator's own preference of nodes without chips."""
    objects = yaml.safe_load_all((CHECKOUT / "deploy" / "hajob.yaml").read_text())
    (deployment,) = [each for each in objects if each["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["affinity"].keys() == {"nodeAffinity"}
