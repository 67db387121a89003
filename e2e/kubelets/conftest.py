"""Hajob on the session's real nodes, as the scenarios of this directory use it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from e2e.kubelets.cluster import Cluster
from e2e.kubelets.kind import __main__ as kind

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
    """All nodes are on and may be used, and the chart is installed."""
    if kind.is_chosen():
        cluster.install()
        return cluster
    cluster.power_on()
    cluster.install()
    cluster.plane.kubectl("delete", "nodequarantines", "--all")  # of chips that were sick in a scenario before
    return cluster
