"""The rig that measures one coordinator with thousands of agents works: here with a few."""

from __future__ import annotations

from e2e.bench.coordinator_live import measure
from e2e.cluster.run import Run

NODES = 24
LOST_OF_FEW = NODES - 1


def test_a_lost_light_agent_stops_the_training() -> None:
    with Run.start("light agents") as run:
        found = measure(run, lambda _: None, NODES, steady_seconds=1.0)
    assert found.answers > NODES
    assert LOST_OF_FEW in found.given_up
    assert all(turns["turns"] > NODES for turns in found.turns.values())
