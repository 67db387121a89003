"""Agents of a large job speak half as often, and a lease outlasts two lost heartbeats all the same."""

from __future__ import annotations

import pytest

from hajob.protocol.heartbeats import MANY_NODES, heartbeat_seconds
from trainer_sidecar.coordinator.state.leases import LEASE_SECONDS


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 0.5), (MANY_NODES, 0.5), (MANY_NODES + 1, 1.0), (2048, 1.0)])
def test_many_agents_speak_less_often(nodes: int, seconds: float) -> None:
    assert heartbeat_seconds(nodes) == seconds
    assert 3 * heartbeat_seconds(nodes) <= LEASE_SECONDS
