"""Steps as real trainings tell them: one rank prints, MindIO's heartbeats come from all, every two seconds."""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from trainer_sidecar.coordinator.state.steps import Steps

PRINTING = 3


def beat(world: World, steps: dict[int, int]) -> None:
    """Heartbeats of these ranks come, and tell these steps."""
    for agent in world.agents.values():
        told = [pb.StepFinished(rank=r, step=s, heartbeat=True) for r, s in steps.items() if r in agent.processes]
        if told and agent.answers:
            world.core.apply_agent_report(agent.uid, agent.report(steps=told), world.now)
    world.pump()


def all_at(step: int) -> dict[int, int]:
    return dict.fromkeys(range(4), step)


def trained(steps: int, *, prints: bool = True) -> World:
    world = World()
    world.hang_rule = pb.HangRule(step_time_multiple=5, minimum_seconds=5)
    world.start()
    for step in range(1, steps + 1):
        world.advance(1.0)
        if prints:
            world.step(step, [PRINTING])
        if step % 2 == 0:
            beat(world, all_at(step))
    return world


@pytest.mark.parametrize("prints", [True, False])
def test_a_training_runs_whoever_prints(prints: bool) -> None:
    world = trained(4, prints=prints)
    assert world.marks(pb.RESUMED)
    assert (world.state.HasField("step"), world.state.step) == (True, 4)


def test_one_line_alone_says_nothing_of_the_others() -> None:
    world = World()
    world.start()
    world.step(1, [PRINTING])
    assert world.marks(pb.RESUMED) == []
    beat(world, {0: 1, 1: 1})
    assert not world.state.HasField("step")
    beat(world, {2: 1})
    assert [mark.step for mark in world.marks(pb.RESUMED)] == [1]


def test_the_printed_time_is_the_steps_time() -> None:
    steps = Steps()
    steps.note_printed_step(PRINTING, 1, 10.0, 4)
    for rank, at in ((0, 10.7), (1, 11.3), (2, 11.9)):
        steps.note_heartbeat_step(rank, 1, at, 4)
    assert steps.common_step == (1, 10.0)
    for rank in range(4):
        steps.note_heartbeat_step(rank, 2, 12.5 + rank / 10, 4)
    steps.note_printed_step(PRINTING, 2, 12.3, 4)
    assert steps.common_step == (2, 12.3), "a line that comes behind the heartbeats"


def printed_and_beaten(last: int) -> Steps:
    """Steps of 0.1 s until `last`, with a line each and heartbeats every two seconds."""
    steps = Steps()
    for step in range(1, last + 1):
        steps.note_printed_step(PRINTING, step, step / 10, 4)
        if step % 20 == 0:
            for rank in range(4):
                steps.note_heartbeat_step(rank, step, step / 10 + 0.01, 4)
    return steps


def test_a_step_without_a_line_ended_when_steps_end() -> None:
    """Rank 2 fails in its update; the others have ended theirs and wait for its parameters before they print."""
    steps = printed_and_beaten(41)
    for rank in (0, 1, PRINTING):
        steps.note_heartbeat_step(rank, 42, 6.01, 4)
    assert steps.last_common_step() == pytest.approx((42, 4.2))
    steps.note_heartbeat_step(2, 42, 6.5, 4)
    assert steps.common_step == pytest.approx((42, 4.2))


def test_a_heartbeat_of_the_step_before_keeps_it_open() -> None:
    """It has a memory fault in its update and lives: nobody has to guess."""
    steps = printed_and_beaten(41)
    for rank in (0, 1, PRINTING):
        steps.note_heartbeat_step(rank, 42, 6.01, 4)
    steps.note_heartbeat_step(2, 41, 4.25, 4)
    assert steps.last_common_step() == pytest.approx((42, 4.2)), "it may have been on its way"
    steps.note_heartbeat_step(2, 41, 6.01, 4)
    assert steps.last_common_step() == pytest.approx((41, 4.1))


def test_a_step_without_a_line_ended_after_older_heartbeats() -> None:
    """A save lies between the two steps."""
    steps = printed_and_beaten(41)
    for at in (6.01, 8.01):
        for rank in range(4):
            steps.note_heartbeat_step(rank, 41, at, 4)
    for rank in (0, 1, PRINTING):
        steps.note_heartbeat_step(rank, 42, 10.01, 4)
    assert steps.last_common_step() == (42, 8.01)


def test_a_hang_of_all_names_nobody_in_particular() -> None:
    world = trained(8)
    world.step(9, [PRINTING])  # a step that is skipped for an overflow is printed and not told by heartbeats
    world.advance(12)
    (fact,) = world.facts
    assert (fact.kind, list(fact.ranks)) == (pb.HANG, [0, 1, 2, 3])
    assert "no rank is behind" in fact.message


def test_a_rank_whose_heartbeats_keep_the_old_step_is_behind() -> None:
    world = trained(8)
    world.step(9, [PRINTING])
    beat(world, {0: 9, 1: 9, PRINTING: 9})
    world.advance(12)
    (fact,) = world.facts
    assert list(fact.ranks) == [2]


def test_a_rank_that_has_told_nothing_is_not_behind() -> None:
    world = World()
    world.hang_rule = pb.HangRule(step_time_multiple=5, minimum_seconds=5)
    world.start()
    beat(world, {0: 1, 1: 1, PRINTING: 1})
    assert world.core.job.steps.ranks_behind(range(4)) == set()


def fault(world: World, rank: int) -> None:
    world.die(rank)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[rank], restart_ranks=[rank])
    world.advance(0.5)


def test_a_heartbeat_of_before_the_fault_ends_no_outage() -> None:
    world = trained(8)
    world.step(9, [PRINTING])
    before = len(world.marks(pb.RESUMED))
    fault(world, 2)
    assert world.marks(pb.STEP_BEFORE)[-1].step == 9
    beat(world, {0: 9, 1: 9, PRINTING: 9})
    beat(world, {2: 9})  # the new process was given its partner's state
    assert len(world.marks(pb.RESUMED)) == before
    beat(world, {0: 10})
    assert [mark.step for mark in world.marks(pb.RESUMED)[before:]] == [10]


def test_repeated_line_after_a_repair_does_not_end_the_outage() -> None:
    world = trained(8)
    before = len(world.marks(pb.RESUMED))
    fault(world, 2)
    world.step(8, [PRINTING])
    assert len(world.marks(pb.RESUMED)) == before, "a repaired step may be printed twice"
    world.step(9, [PRINTING])
    assert [mark.step for mark in world.marks(pb.RESUMED)[before:]] == [9]


def test_falling_heartbeats_tell_of_a_loaded_checkpoint() -> None:
    world = trained(8, prints=False)
    before = len(world.marks(pb.RESUMED))
    fault(world, 2)
    beat(world, all_at(4))
    assert len(world.marks(pb.RESUMED)) == before
    assert world.state.step == 4
    beat(world, all_at(5))
    assert [mark.step for mark in world.marks(pb.RESUMED)[before:]] == [5]
    assert world.state.step == 5


def test_dead_printing_rank_leaves_its_last_step() -> None:
    world = trained(8)
    world.step(9, [PRINTING])
    fault(world, PRINTING)
    assert world.marks(pb.STEP_BEFORE)[-1].step == 9


def test_steps_go_on_when_no_rank_prints_and_the_times_are_known() -> None:
    steps = Steps()
    for at in range(2, 42, 2):
        for rank in range(4):
            steps.note_heartbeat_step(rank, 4 * at + rank, at + rank / 10, 4)
    assert steps.newest == 163
    assert steps.common_step is not None
    assert steps.common_step[0] == 160
    assert steps.median_seconds == pytest.approx(0.25, abs=0.1)


def linked() -> World:
    """Every rank is linked, no step has been told."""
    world = World()
    world.start()
    return world


@pytest.mark.parametrize("by_line", [True, False])
def test_a_second_step_of_one_rank_shows_the_first_of_all(by_line: bool) -> None:
    world = linked()
    for step in (1, 2):
        assert world.marks(pb.RESUMED) == []
        world.advance(0.3)
        if by_line:
            world.step(step, [PRINTING])
        else:
            beat(world, {step: step})  # another rank each time
    assert [mark.step for mark in world.marks(pb.RESUMED)] == [1]
    assert world.state.step == 2


def test_a_step_after_a_load_shows_nothing_of_the_others() -> None:
    world = linked()
    beat(world, {0: 118_000, 1: 118_000})
    assert world.marks(pb.RESUMED) == []


def test_at_a_stop_the_others_tell_that_they_have_trained() -> None:
    world = linked()
    beat(world, {0: 1})
    world.die(2)
    assert world.called("stop_train")
    assert world.facts == [], "the fact waits for what the others answer to the stop"
    beat(world, {0: 1, 1: 1, PRINTING: 1})
    both = [mark.kind for mark in world.milestones if mark.kind in (pb.RESUMED, pb.STOPPED)]
    assert both == [pb.RESUMED, pb.STOPPED]
    assert [fact.kind for fact in world.facts] == [pb.PROCESS_EXITED]
    resumed, exited = world.marks(pb.RESUMED)[0], world.facts[0]
    assert resumed.age_nanoseconds >= exited.age_nanoseconds
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[2], restart_ranks=[2])
    world.advance(0.5)
    assert world.called("change_strategy")[-1]["strategy"] == "recover"


def test_a_fault_before_any_step_is_told_after_a_moment() -> None:
    world = linked()
    world.die(2)
    world.advance(0.8)
    assert world.facts == []
    world.advance(0.4)
    assert [fact.kind for fact in world.facts] == [pb.PROCESS_EXITED]
    assert world.marks(pb.RESUMED) == []
    beat(world, {0: 1, 1: 1, PRINTING: 1})
    assert world.marks(pb.RESUMED) == [], "the operator has decided"


def test_a_silent_node_is_not_waited_for() -> None:
    world = linked()
    world.agent(0).powered = False
    beat(world, {2: 1, PRINTING: 1})
    world.advance(3.3)
    assert [mark.step for mark in world.marks(pb.RESUMED)] == [1]
    assert [fact.kind for fact in world.facts] == [pb.AGENT_SILENT]
