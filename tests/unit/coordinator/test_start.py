"""A start with a pod that was made anew while the others came up."""

from __future__ import annotations

from tests.rigs.coordinator import World


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


def test_signs_of_a_start_are_told_until_all_ranks_have_stepped() -> None:
    world = World()
    world.start()
    assert world.state.sign_age_nanoseconds < 1e9, "every rank has just linked"
    world.advance(100)
    agent = world.agent(1)
    said = agent.report()
    said.sign_age_nanoseconds = 3 * 10**9
    world.core.apply_agent_report(agent.uid, said, world.now)
    world.advance(7)
    assert 9e9 < world.state.sign_age_nanoseconds < 11e9, "no older one counts"
    world.step(1)
    assert not world.state.HasField("sign_age_nanoseconds")
