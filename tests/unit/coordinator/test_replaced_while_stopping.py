"""Pods that a Replace order leaves behind while MindIO still locks the step: their ranks and gates are asked for it."""

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_peers import Agent


def stopping() -> World:
    """Rank 1 has died, MindIO takes its time to stop the others, and node 0 is to be replaced meanwhile."""
    world = World()
    world.train(3)
    world.mindio.silent = True
    world.die(1)
    world.order(pb.REPLACE, revision=1, lost_ranks=[0, 1], replaced_nodes=[0])
    return world


def stop_ends(world: World) -> None:
    world.mindio.silent, world.mindio.ask = False, "naming"
    world.callback("report_stop_complete", [0, "stop ok", [[1, 1]]])
    world.pump()


def is_over(agent: Agent) -> bool:
    return agent.order is not None and agent.order.over


def has_lease(world: World, agent: Agent) -> bool:
    return world.core.answer_heartbeat(agent.uid, 0, world.now) is not None


def test_a_replaced_pod_lives_until_mindio_has_stopped() -> None:
    world = stopping()
    old = world.agent(0)
    world.advance(1.0)
    assert old.order is not None
    assert [entry.admitted for entry in old.order.ranks] == [True, True]
    assert has_lease(world, old)
    assert old.ended == []
    stop_ends(world)
    assert is_over(old)
    assert not has_lease(world, old)


def test_its_successor_starts_meanwhile_and_is_named_after_it() -> None:
    world = stopping()
    old = world.agent(0)
    new = world.new_pod(0, 2)
    world.advance(1.0)
    assert [process.phase for process in new.processes.values()] == [pb.AT_GATE, pb.AT_GATE]
    assert not is_over(old)
    assert not world.marks(pb.REPLACEMENTS_READY)
    stop_ends(world)
    world.advance(0.2)
    assert world.called("on_global_rank") == [{"ranks": [[0, 1], [1, 1]], "time": 1}]


def test_a_silent_pod_is_told_when_it_is_heard_again() -> None:
    world = World()
    world.train(3)
    world.mindio.silent = True
    old = world.agent(0)
    old.frozen = True
    world.advance(4.0)
    world.die(2)
    world.order(pb.REPLACE, revision=1, lost_ranks=[0, 1, 2], replaced_nodes=[0], restart_ranks=[2])
    old.frozen = False
    assert not has_lease(world, old)
    world.advance(0.5)
    assert is_over(old)


@pytest.mark.parametrize("action", [pb.STOP, pb.START])
def test_an_order_for_a_restart_waits_for_no_stop(action: pb.Action) -> None:
    world = stopping()
    world.attempt += 1
    world.assign()
    world.order(action, incarnation=3)
    assert is_over(world.agent(0))


def test_controller_lost_while_it_stops_keeps_no_pod() -> None:
    world = stopping()
    world.lose_controller()
    assert is_over(world.agent(0))
