"""No step for many times the usual one."""

from __future__ import annotations

import pytest

from hajob.domain.facts import Fact, FactKind
from hajob.domain.incidents import Cause
from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_restart import restart_coordinator


def trained(multiple: int, minimum: int) -> World:
    world = World()
    world.hang_rule = pb.HangRule(step_time_multiple=multiple, minimum_seconds=minimum)
    world.start()
    for step in range(1, 12):
        world.advance(1.0)
        world.step(step)
    return world


def test_standstill_is_told_once_with_the_ranks_behind() -> None:
    world = trained(5, 2)
    world.advance(0.5)
    world.step(12, [0, 1, 3])
    world.advance(4.8)
    assert not world.facts
    world.advance(5.0)
    (fact,) = world.facts
    assert (fact.kind, list(fact.ranks), fact.node_rank) == (pb.HANG, [2], 1)
    assert "rank 2 is behind" in fact.message


def test_nobody_behind_means_everybody() -> None:
    world = trained(5, 20)
    world.advance(19.5)
    assert not world.facts, "the minimum is longer"
    world.advance(1.0)
    (fact,) = world.facts
    assert (list(fact.ranks), fact.node_rank) == ([0, 1, 2, 3], -1)


def test_a_second_standstill_is_told_again() -> None:
    world = trained(5, 2)
    world.advance(6.0)
    world.step(12)
    world.advance(6.0)
    assert [fact.kind for fact in world.facts] == [pb.HANG, pb.HANG]


@pytest.mark.parametrize("rule", [(0, 0)])
def test_without_a_rule_nothing_hangs(rule: tuple[int, int]) -> None:
    world = trained(*rule)
    world.advance(600)
    assert not world.facts


def test_an_incident_is_no_standstill() -> None:
    world = trained(5, 2)
    world.die(3)
    world.advance(60)
    assert [fact.kind for fact in world.facts] == [pb.PROCESS_EXITED]


def test_where_the_ranks_stand_travels_with_the_fact() -> None:
    world = trained(5, 2)
    world.step(12, [0, 1, 3])
    world.advance(10)
    (fact,) = world.facts
    assert fact.message.endswith("rank 2 is behind\nrank 2 stands here:\nFile train.py, line 2")
    assert world.agent(0).stacks == {}, "nobody else was disturbed"
    world.step(12)
    world.advance(10)
    assert world.agent(1).stacks[2] == 2, "asked again at the next standstill"


def test_who_does_not_answer_is_not_waited_for_long() -> None:
    world = trained(5, 2)
    world.agent(0).tells_stacks = False
    world.advance(14)
    assert not world.facts
    world.advance(2)
    (fact,) = world.facts
    assert "rank 2 stands here" in fact.message
    assert "rank 0 stands here" not in fact.message


def test_many_long_stacks_leave_the_fact_bounded() -> None:
    world = World(nodes=8, per_node=8)
    world.hang_rule = pb.HangRule(step_time_multiple=5, minimum_seconds=2)
    world.start()
    for step in range(1, 4):
        world.advance(1.0)
        world.step(step)
    for agent in world.agents.values():
        agent.tells_stacks = False
    world.advance(5.1)
    for agent in world.agents.values():
        ranks = range(8 * agent.node_rank, 8 * agent.node_rank + 8)
        stacks = {rank: f"called by {rank % 3}\n" + "deep\n" * 800 + f"at {rank % 3}" for rank in ranks}
        agent.said = [pb.Fact(id=f"stack/{r}", kind=pb.STACK, ranks=[r], message=m) for r, m in stacks.items()]
    world.advance(0.2)
    (fact,) = world.facts
    assert len(fact.message) <= 1000
    assert fact.message.startswith("every process lives")
    assert "rank 1 and 20 more stand here" in fact.message
    assert "rank 2 and 20 more stand here" in fact.message
    assert "rank 0" not in fact.message
    cause = Cause.from_fact(Fact("id", FactKind.HANG, message=fact.message), tuple(fact.ranks), 3)
    assert cause.message == fact.message, "an incident keeps all of it"


def test_the_rank_that_stands_elsewhere_is_shown_first() -> None:
    world = trained(5, 2)
    for agent in world.agents.values():
        agent.tells_stacks = False
    world.advance(5.1)
    for rank in range(4):
        where = "in load_batch" if rank == 3 else "in all_reduce"
        said = pb.Fact(id=f"stack/{rank}", kind=pb.STACK, ranks=[rank], message=f"call {rank}\na\nb\nc\n{where}")
        world.agent(rank // 2).said.append(said)
    world.advance(0.2)
    (fact,) = world.facts
    _, rank_3, rank_0 = fact.message.split(" here:\n")
    assert rank_3.startswith("call 3\na\nb\nc\nin load_batch\nrank 0 and 2 more stand")
    assert rank_0.endswith("in all_reduce")


def test_a_step_in_between_is_no_standstill() -> None:
    world = trained(5, 2)
    for node in range(2):
        world.agent(node).tells_stacks = False
    world.advance(6)
    world.step(12)
    world.advance(4)
    assert not world.facts


def test_the_time_of_a_pause_is_no_standstill() -> None:
    world = trained(20, 120)
    world.order(pb.PAUSE, incarnation=2, revision=1, timeout_seconds=600)
    world.advance(300)
    world.order(pb.CONTINUE, incarnation=2, revision=2)
    world.mindio.result()
    world.pump()
    world.advance(100)
    assert (world.state.conversation, world.facts) == ("Serving", [])
    world.advance(25)
    assert [fact.kind for fact in world.facts] == [pb.HANG], "the next step has not come"


def test_an_outage_that_ended_before_a_step_is_no_standstill() -> None:
    """Where MindIO repairs from a checkpoint its success comes before the first step."""
    world = trained(20, 120)
    world.die(3)
    world.order(pb.REPLACE, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    world.advance(95)
    world.new_pod(1, 2)
    world.advance(5)
    world.mindio.result()
    world.pump()
    world.advance(100)
    assert (world.state.conversation, [fact.kind for fact in world.facts]) == ("Serving", [pb.PROCESS_EXITED])


def test_hang_is_noticed_after_a_restart_in_it() -> None:
    world = trained(5, 2)
    restart_coordinator(world)
    world.advance(1790)
    assert not world.facts, "how long a step takes is not known any more"
    world.advance(15)
    assert [fact.kind for fact in world.facts] == [pb.HANG]


def stands_still(world: World, where: str, seconds: float) -> None:
    """No step ends, and each rank says where it stands when it is asked."""
    for agent in world.agents.values():
        agent.tells_stacks = False
    for _ in range(round(seconds)):
        world.advance(1.0)
        for agent in world.agents.values():
            for rank, times in ((entry.rank, entry.stacks) for entry in (agent.order.ranks if agent.order else ())):
                if times > agent.stacks.get(rank, 0):
                    agent.stacks[rank] = times
                    identity = f"stack/{rank}/{times}"
                    agent.said.append(pb.Fact(id=identity, kind=pb.STACK, ranks=[rank], message=where))


SAVING = 'File "checkpointing.py", line 5 in save_checkpoint\nFile "serialization.py", line 9 in write'
EVALUATING = 'File "training.py", line 7 in evaluate_and_print_results\nFile "model.py", line 3 in forward'


@pytest.mark.parametrize("where", [SAVING, EVALUATING])
def test_saving_and_evaluating_are_no_hang(where: str) -> None:
    world = trained(5, 2)
    stands_still(world, where, 600)
    assert not world.facts
    world.step(12)
    world.advance(3.0)
    assert not world.facts


def test_a_save_that_never_ends_is_a_hang_after_half_an_hour() -> None:
    world = trained(5, 2)
    stands_still(world, SAVING, 1790)
    assert not world.facts
    stands_still(world, SAVING, 25)
    (fact,) = world.facts
    assert fact.kind == pb.HANG
    assert "in save_checkpoint" in fact.message


def test_after_a_save_a_standstill_in_a_step_is_a_hang_again() -> None:
    """The limit has become twice the longest time without a step that ended by itself."""
    world = trained(5, 2)
    stands_still(world, SAVING, 20)
    world.step(12)
    stands_still(world, "in all_reduce", 38)
    assert not world.facts
    stands_still(world, "in all_reduce", 6)
    assert [fact.kind for fact in world.facts] == [pb.HANG]


def test_an_outage_does_not_make_hangs_later() -> None:
    world = trained(5, 2)
    world.die(3)
    world.advance(60)
    world.order(pb.IN_PLACE, incarnation=2, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.5)
    world.step(12)
    world.mindio.result()
    world.pump()
    world.step(13)
    world.advance(7.0)
    assert [fact.kind for fact in world.facts] == [pb.PROCESS_EXITED, pb.HANG]
