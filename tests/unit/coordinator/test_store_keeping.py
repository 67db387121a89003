"""The store is lost with the coordinator's pod: another one holds what was in it before anybody reaches it."""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_restart import restart_coordinator

SECOND = 1_000_000_000


def entry(key: bytes, value: bytes, age: float, **more: bool) -> pb.StoreEntry:
    return pb.StoreEntry(key=key, value=value, age_nanoseconds=int(age * SECOND), **more)


@pytest.fixture
def keeping() -> World:
    """Two nodes whose gates keep what is written into the store."""
    world = World()
    world.gates_know = True
    for agent in world.agents.values():
        agent.written = []
    world.train(2)
    return world


def lose_the_pod(world: World, seconds: float = 4.0) -> None:
    restart_coordinator(world, [], controller=False)
    world.advance(seconds)


def kept(world: World) -> bool:
    """What the operator hears with the news that another controller protects the job."""
    (mark,) = world.marks(pb.TAKEN_OVER)
    return mark.store_kept


def test_the_last_writing_of_any_pod_counts(keeping: World) -> None:
    keeping.agent(0).written = [entry(b"root", b"old", 9), entry(b"gone", b"x", 9), entry(b"mine", b"0", 9)]
    keeping.agent(1).written = [entry(b"root", b"new", 5), entry(b"gone", b"", 5, deleted=True)]
    lose_the_pod(keeping)
    assert keeping.filled == {b"root": b"new", b"mine": b"0"}
    assert kept(keeping)


def test_of_counts_at_once_the_higher_one_is_right(keeping: World) -> None:
    keeping.agent(0).written = [entry(b"n", b"10", 5.0, counted=True)]
    keeping.agent(1).written = [entry(b"n", b"9", 4.9, counted=True)]
    lose_the_pod(keeping)
    assert keeping.filled == {b"n": b"10"}


def test_a_lower_count_that_was_told_later_is_not_newer(keeping: World) -> None:
    """Ages are as wrong as messages are slow, and a process may hear of no other's count for long."""
    keeping.agent(0).written = [entry(b"n", b"10", 9.0, counted=True)]
    keeping.agent(1).written = [entry(b"n", b"9", 1.0, counted=True)]
    lose_the_pod(keeping)
    assert keeping.filled == {b"n": b"10"}


@pytest.mark.parametrize("first", [0, 1])
def test_what_was_counted_before_a_key_was_written_is_gone(keeping: World, first: int) -> None:
    keeping.agent(first).written = [entry(b"n", b"8", 9, counted=True), entry(b"m", b"8", 9, counted=True)]
    keeping.agent(first).written = [*(keeping.agent(first).written or ()), entry(b"k", b"1", 3, counted=True)]
    keeping.agent(1 - first).written = [entry(b"n", b"0", 5), entry(b"m", b"", 5, deleted=True), entry(b"k", b"0", 5)]
    lose_the_pod(keeping)
    assert keeping.filled == {b"n": b"0", b"k": b"1"}


def test_an_agent_that_is_slow_to_be_heard_is_waited_for(keeping: World) -> None:
    """Without what its processes have written, the store would lack it for good."""
    keeping.agent(0).written = [entry(b"root", b"1", 5)]
    keeping.agent(1).written = [entry(b"more", b"2", 5)]
    keeping.agent(1).powered = False
    lose_the_pod(keeping, 4.0)
    keeping.agent(1).powered = True
    keeping.advance(3.0)
    assert keeping.filled == {b"root": b"1", b"more": b"2"}
    assert kept(keeping)


def test_one_that_is_heard_too_late_is_told_that_nothing_is_kept(keeping: World) -> None:
    keeping.agent(0).written = [entry(b"root", b"1", 5)]
    keeping.agent(1).written = [entry(b"more", b"2", 5)]
    keeping.agent(1).powered = False
    lose_the_pod(keeping, 9.0)
    keeping.agent(1).powered = True
    keeping.advance(3.0)
    assert keeping.filled == {b"root": b"1"}
    orders = [agent.order for agent in keeping.agents.values()]
    assert [order.store_kept for order in orders if order is not None] == [True, False]


def test_nobody_reaches_the_store_before_it_is_filled(keeping: World) -> None:
    keeping.agent(0).written = [entry(b"root", b"1", 5)]
    keeping.fills = False
    lose_the_pod(keeping)
    assert not keeping.state.controller_ready
    orders = [agent.order for agent in keeping.agents.values()]
    assert all(order is not None and order.store_held for order in orders)
    keeping.core.note_filled_store("", keeping.now)
    keeping.pump()
    assert keeping.state.controller_ready
    orders = [agent.order for agent in keeping.agents.values()]
    assert [(order.store_held, order.store_kept) for order in orders if order is not None] == [(False, True)] * 2


def test_a_handler_may_wait_for_the_store(keeping: World) -> None:
    """No controller is opened before it has ended, and it does not end before it finds its keys."""
    keeping.agent(0).written = [entry(b"root", b"1", 5)]
    keeping.agent(1).busy = {3}
    lose_the_pod(keeping)
    assert keeping.filled == {b"root": b"1"}
    assert not keeping.state.controller_ready
    order = keeping.agent(1).order
    assert order is not None
    assert (order.store_held, order.store_kept) == (False, True)
    keeping.agent(1).busy = set()
    keeping.advance(1.0)
    assert keeping.state.controller_ready
    assert kept(keeping)


@pytest.mark.parametrize("why", ["unreadable", "older", "refused"])
def test_a_store_that_is_not_known_costs_no_takeover(keeping: World, why: str) -> None:
    keeping.agent(0).written = [entry(b"root", b"1", 5)]
    if why == "unreadable":
        keeping.agent(1).unreadable = "a client speaks in a way that is not known"
    elif why == "older":
        keeping.agent(1).written = None
    else:
        keeping.fills = False
    lose_the_pod(keeping)
    if why == "refused":
        keeping.core.note_filled_store("connection refused", keeping.now)
        keeping.pump()
    assert keeping.state.controller_ready
    assert not kept(keeping)
    orders = [agent.order for agent in keeping.agents.values()]
    assert [(order.store_held, order.store_kept) for order in orders if order is not None] == [(False, False)] * 2


def test_an_agent_that_is_lost_as_well_is_not_waited_for(keeping: World) -> None:
    keeping.agent(0).written = [entry(b"root", b"1", 5)]
    keeping.agent(1).powered = False
    lose_the_pod(keeping, 9.0)
    assert keeping.filled == {b"root": b"1"}
    assert kept(keeping)


def test_in_the_same_pod_the_store_was_never_lost(keeping: World) -> None:
    keeping.lose_controller()
    assert keeping.filled is None
    assert keeping.state.controller_ready


def test_the_next_start_of_the_job_keeps_nothing(keeping: World) -> None:
    keeping.agent(0).written = [entry(b"root", b"1", 5)]
    lose_the_pod(keeping)
    keeping.attempt = 2
    keeping.assign()
    keeping.order(pb.START, incarnation=5)
    keeping.advance(4.0)
    order = keeping.agent(0).order
    assert order is not None
    assert (order.store, order.store_kept) == ("2/0", False)
