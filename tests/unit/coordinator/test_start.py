"""A start with a pod that was made anew while the others came up."""

from __future__ import annotations

from tests.unit.coordinator.world import World


def test_a_pod_made_anew_before_the_start_joins_it() -> None:
    """Its ranks carry its own number: an older one would tell faults of a pod that is gone."""
    world = World()
    world.listed.remove(world.agents.pop("pod-1-1").uid)
    world.new_pod(1, 2)
    world.start()
    world.step(1)
    assert world.state.step == 1
    assert sorted((rank, world.agent(1).processes[rank].incarnation) for rank in (2, 3)) == [(2, 2), (3, 2)]
    assert {process.incarnation for process in world.agent(0).processes.values()} == {1}
