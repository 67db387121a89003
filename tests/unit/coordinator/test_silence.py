"""Silence, leases and replacements in virtual time."""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from trainer_sidecar.coordinator.state.leases import Contacts


@pytest.fixture
def world() -> World:
    world = World(nodes=4, per_node=2)
    world.start()
    for step in range(1, 4):
        world.step(step)
    return world


def test_silent_agent_is_named_after_three_seconds(world: World) -> None:
    world.agent(2).powered = False
    world.advance(2.4)
    assert not world.facts
    world.advance(0.8)
    (fact,) = world.facts
    assert (fact.kind, fact.node_rank, list(fact.ranks)) == (pb.AGENT_SILENT, 2, [4, 5])
    assert not world.called("stop_train"), "silence waits for the operator's decision"


def test_a_node_frozen_for_two_seconds_is_not_taken_for_dead(world: World) -> None:
    for _ in range(5):
        world.agent(2).frozen = True
        world.advance(2.0)
        world.agent(2).frozen = False
        world.advance(1.0)
    assert not world.facts


def test_nodes_that_go_silent_together_are_named_together(world: World) -> None:
    world.agent(1).powered = False
    world.advance(0.4)
    world.agent(2).powered = False
    world.advance(3.2)
    assert [fact.node_rank for fact in world.facts] == [1, 2]


def test_the_coordinators_own_standstill_is_nobodys_silence(world: World) -> None:
    world.now += 10.0
    world.core.check_time_limits(world.now, 9.9)
    world.pump()
    assert not world.facts


def test_an_agent_that_has_never_spoken_is_starting_not_silent() -> None:
    world = World()
    world.agent(1).powered = False
    world.core.apply_controller_hello(world.controller, [], world.now)
    world.assign()
    world.order(pb.START, incarnation=1)
    world.advance(20)
    assert not world.facts


def test_refused_connections_are_silence_sooner() -> None:
    silence = Contacts(0.0)
    silence.note_sign_of_life("a", 10.0)
    silence.note_refused_connection("a", 10.2)
    silence.note_refused_connection("a", 10.6)
    assert not silence.take_newly_silent(11.6, lambda _: True)
    assert set(silence.take_newly_silent(11.8, lambda _: True)) == {"a"}
    assert not silence.take_newly_silent(12.0, lambda _: True), "told once"
    assert silence.note_sign_of_life("a", 13.0), "it had been given up"
    assert not silence.take_newly_silent(15.9, lambda _: True)


def test_an_agent_that_is_started_again_in_time_is_no_fault() -> None:
    silence = Contacts(0.0)
    silence.note_sign_of_life("a", 10.0)
    silence.note_refused_connection("a", 10.2)
    silence.note_sign_of_life("a", 11.3)
    assert not silence.take_newly_silent(12.5, lambda _: True)


def test_a_lease_that_a_former_coordinator_granted_is_waited_for() -> None:
    leases = Contacts(100.0)
    assert not leases.is_lease_expired("a", 102.9)
    assert leases.is_lease_expired("a", 103.0)
    leases.note_sign_of_life("a", 104.0)
    assert leases.is_lease_expired("a", 104.0)
    leases.note_grant("a", 104.0)
    assert not leases.is_lease_expired("a", 106.9)


def test_replace_names_when_the_new_pod_is_ready(world: World) -> None:
    world.agent(2).powered = False
    world.advance(3.6)
    world.order(pb.REPLACE, incarnation=2, revision=1, lost_ranks=[4, 5], replaced_nodes=[2])
    assert world.called("stop_train") == [{"ranks": [[4, 1], [5, 1]], "incarnation": 2}]
    world.advance(20)
    assert not world.called("on_global_rank")
    world.new_pod(2, 2, start_delay=3.0)
    world.advance(2.5)
    assert not world.called("on_global_rank")
    world.advance(1.0)
    assert world.called("on_global_rank") == [{"ranks": [[4, 1], [5, 1]], "time": 1}]
    world.advance(0.2)
    assert all(process.phase == pb.LINKED for process in world.agent(2).processes.values())


def test_a_successor_waits_until_its_predecessors_lease_is_over(world: World) -> None:
    """The decision may come before the lease has run out, when something else knew of the dead node."""
    old = world.agent(2)
    world.advance(0.5)
    old.frozen = True
    world.order(pb.REPLACE, incarnation=2, revision=1, lost_ranks=[4, 5], replaced_nodes=[2])
    world.new_pod(2, 2)
    world.advance(1.0)
    assert world.agent(2).processes[4].phase == pb.AT_GATE
    assert not world.called("on_global_rank")
    world.advance(2.2)
    assert len(world.called("on_global_rank")) == 1
    assert world.now > old.lease_until


def test_a_predecessor_that_confirms_its_end_is_not_waited_for(world: World) -> None:
    old = world.agent(2)
    world.order(pb.REPLACE, incarnation=2, revision=1, lost_ranks=[4, 5], replaced_nodes=[2])
    world.new_pod(2, 2)
    world.advance(0.2)
    assert all(process.phase == pb.DEAD for process in old.processes.values())
    assert len(world.called("on_global_rank")) == 1
    assert not world.facts, "ranks ended by order are no fault"


def test_pod_that_is_over_gets_no_lease_and_ends_its_ranks(world: World) -> None:
    old = world.agent(2)
    old.frozen = True
    world.advance(3.6)
    world.order(pb.REPLACE, incarnation=2, revision=1, lost_ranks=[4, 5], replaced_nodes=[2])
    world.new_pod(2, 2)
    world.advance(1.0)
    world.step(4)
    world.mindio.result()
    lease = old.lease_until
    old.frozen = False
    world.core.note_connected_agent(old.uid, world.now)
    world.core.apply_agent_report(old.uid, old.report(), world.now)
    world.advance(2.0)
    assert old.lease_until == lease
    assert all(process.phase == pb.DEAD for process in old.processes.values())
    assert world.state.conversation == "Serving"
    assert len(world.called("stop_train")) == 1


def test_node_and_process_lost_together_need_one_naming(world: World) -> None:
    world.agent(2).powered = False
    world.advance(3.6)
    world.order(pb.REPLACE, incarnation=2, revision=1, lost_ranks=[4, 5], replaced_nodes=[2])
    world.advance(3.0)
    world.die(0)
    order = {"lost_ranks": [0, 4, 5], "replaced_nodes": [2], "restart_ranks": [0]}
    world.order(pb.REPLACE, incarnation=2, revision=2, **order)
    world.new_pod(2, 2)
    world.advance(0.5)
    assert world.called("on_global_rank") == [{"ranks": [[0, 1], [4, 1], [5, 1]], "time": 1}]
    assert len(world.called("stop_train")) == 1


def test_dead_replacement_is_replaced_again(world: World) -> None:
    world.agent(2).powered = False
    world.advance(3.6)
    world.order(pb.REPLACE, incarnation=2, revision=1, lost_ranks=[4, 5], replaced_nodes=[2])
    world.new_pod(2, 2, start_delay=30.0)
    world.advance(1.0)
    world.agent(2).powered = False
    world.advance(3.6)
    assert [fact.incarnation for fact in world.facts] == [1, 2]
    world.order(pb.REPLACE, incarnation=3, revision=1, lost_ranks=[4, 5], replaced_nodes=[2])
    world.new_pod(2, 3)
    world.advance(3.5)
    assert len(world.called("on_global_rank")) == len(world.called("stop_train")) == 1
    assert all(process.phase == pb.LINKED for process in world.agent(2).processes.values())


def test_a_pod_whose_ranks_have_finished_may_go(world: World) -> None:
    world.finish(4)
    world.finish(5)
    world.agent(2).powered = False
    world.advance(10)
    assert not world.facts


def test_replaced_node_that_stays_away_is_forgotten() -> None:
    world = World()
    world.start()
    world.step(1)
    lost = world.agent(1)
    lost.powered = False
    world.core.note_disconnected_agent(lost.uid, world.now, refused=False)
    world.advance(4)
    world.order(pb.REPLACE, incarnation=2, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    world.new_pod(1, 2)
    world.advance(4)
    world.listed.remove(lost.uid)
    world.assign()
    world.advance(100)
    assert lost.uid in world.core.job.roster.pods, "it may come back, and is told then that it is over"
    world.advance(25)
    assert list(world.core.job.roster.pods) == ["pod-0-1", "pod-1-2"]


def cut_off(world: World, nodes: list[int], *, back: bool = False) -> None:
    """These nodes' agents are not heard; everything there lives."""
    for node in nodes:
        world.agent(node).frozen = not back


def problems(world: World) -> list[str]:
    return [problem.code for problem in world.state.problems]


def test_more_than_half_silent_at_once_is_said_and_withdrawn(world: World) -> None:
    cut_off(world, [0, 1, 2])
    world.advance(4.0)
    assert (problems(world), world.facts) == (["AgentsUnreachable"], [])
    assert "3 of 4" in world.state.problems[0].message
    cut_off(world, [0, 1, 2], back=True)
    world.advance(1.0)
    assert (problems(world), world.facts) == ([], [])
    cut_off(world, [2])
    world.advance(3.6)
    assert [fact.node_rank for fact in world.facts] == [2], "one alone is named as ever"


def test_half_of_the_agents_are_no_doubt_about_oneself(world: World) -> None:
    cut_off(world, [0, 1])
    world.advance(3.6)
    assert ([fact.node_rank for fact in world.facts], problems(world)) == ([0, 1], [])


def test_who_is_silent_at_the_second_look_is_named(world: World) -> None:
    cut_off(world, [0, 1, 2])
    world.advance(8.5)
    assert not world.facts
    world.advance(2.0)
    assert [fact.node_rank for fact in world.facts] == [0, 1, 2]
    assert problems(world) == ["AgentsUnreachable"], "until they are back"
    cut_off(world, [0, 1, 2], back=True)
    world.advance(1.0)
    assert problems(world) == []


def test_who_stays_away_when_the_others_return_is_named(world: World) -> None:
    cut_off(world, [0, 1, 2])
    world.advance(5.0)
    cut_off(world, [0, 1], back=True)
    world.advance(1.0)
    assert ([fact.node_rank for fact in world.facts], problems(world)) == ([2], [])


def test_in_doubt_about_itself_it_stops_nobody(world: World) -> None:
    """The other ranks would not hear of the stop, and MindIO would give up."""
    cut_off(world, [0, 1, 2])
    world.advance(4.0)
    world.die(7)
    assert not world.called("stop_train")
    assert [fact.kind for fact in world.facts] == [pb.PROCESS_EXITED]
    cut_off(world, [0, 1, 2], back=True)
    world.advance(1.0)
    assert world.called("stop_train") == [{"ranks": [[7, 1]], "incarnation": 2}]


def test_nodes_lost_one_by_one_are_no_doubt_about_oneself(world: World) -> None:
    for node in range(3):
        cut_off(world, [node])
        world.advance(4.0)
    assert ([fact.node_rank for fact in world.facts], problems(world)) == ([0, 1, 2], [])


def test_refused_by_the_machines_of_many_pods_they_are_named(world: World) -> None:
    """Their kernels answer: it is not this coordinator that is cut off."""
    cut_off(world, [0, 1, 2])
    for node in range(3):
        world.core.note_disconnected_agent(world.agent(node).uid, world.now, refused=True)
    world.advance(2.2)
    assert ([fact.node_rank for fact in world.facts], problems(world)) == ([0, 1, 2], [])


def test_the_only_agent_that_is_silent_is_named() -> None:
    world = World(nodes=1, per_node=2)
    world.start()
    world.step(1)
    cut_off(world, [0])
    world.advance(3.6)
    assert [fact.kind for fact in world.facts] == [pb.AGENT_SILENT]


def large(silent: dict[str, float]) -> Contacts:
    """Of a job with so many agents that each speaks once a second; those in `silent` have spoken last then."""
    silence = Contacts(0.0)
    for number in range(600):
        silence.note_sign_of_life(f"pod-{number}", 12.9)
    for uid, at in silent.items():
        silence.watch_agent(uid, at)
    return silence


def test_agents_that_speak_seldom_are_named_together() -> None:
    silence = large({"a": 10.0, "b": 10.9})
    assert not silence.take_newly_silent(13.0, lambda _: True), "b may have fallen silent with it"
    assert set(silence.take_newly_silent(13.5, lambda _: True)) == {"a", "b"}


def test_one_that_speaks_again_meanwhile_is_not_named() -> None:
    silence = large({"a": 10.0, "b": 10.9})
    assert not silence.take_newly_silent(13.0, lambda _: True)
    silence.note_sign_of_life("b", 13.1)
    assert set(silence.take_newly_silent(13.2, lambda _: True)) == {"a"}


def test_one_that_nobody_misses_delays_nobodys_name() -> None:
    assert set(large({"a": 10.0, "b": 10.9}).take_newly_silent(13.0, lambda uid: uid != "b")) == {"a"}
