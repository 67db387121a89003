"""On real nodes (`PROVIDER=kubelets`) scenarios borrow the session's; what is not played is skipped and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e import providers
from e2e.harness.fixtures import RIGS
from e2e.harness.rig import Rig, RigLayout
from e2e.kubelets.played import SCENARIOS, why_left_out
from e2e.kubelets.scenario_rig import ScenarioRig
from e2e.kueue.launch import KueueStandIn


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each that is left out there is skipped by its name, so that pytest counts it."""
    if not providers.are_real():
        return
    for item in items:
        reason = why_left_out(item.path.stem, getattr(item, "originalname", item.name))
        if item.path.parent == SCENARIOS and reason:
            item.add_marker(pytest.mark.skip(reason=f"PROVIDER={providers.name()}: {reason}"))


@pytest.fixture
def start_rig(
    start_rig: Callable[[RigLayout], Rig], request: pytest.FixtureRequest
) -> Iterator[Callable[[RigLayout], Any]]:
    """Starts the rig of a test with the layout it wants: nodes of its own, or some of the session's real ones."""
    if not providers.are_real():
        yield start_rig
        return
    cluster, namespace = request.getfixturevalue("cluster"), request.getfixturevalue("namespace")
    borrowed: list[Any] = request.node.stash[RIGS]  # those that the fixture above stops in the end

    def start(layout: RigLayout) -> ScenarioRig:
        rig = ScenarioRig.borrow(cluster, namespace, layout)
        borrowed.append(rig)
        return rig

    yield start


@pytest.fixture
def queue(rig: Rig) -> KueueStandIn:
    """The Kueue in whose queue the rig's jobs wait."""
    assert rig.queue is not None
    return rig.queue
