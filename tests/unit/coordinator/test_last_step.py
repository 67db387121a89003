"""A restart ends everything at once; the account of its outage still begins with the last common step."""

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from trainer_sidecar.coordinator.state.last_step import GATHER_SECONDS
from trainer_sidecar.launcher.progress import SECOND, STILL


def trained() -> World:
    world = World()
    world.train(3)
    return world


def told(world: World) -> list[int]:
    return [mark.step for mark in world.marks(pb.STEP_BEFORE)]


def tell_late(world: World, step: int) -> None:
    """Every rank had finished the step, and its agent had not told of it yet."""
    for agent in world.agents.values():
        steps = [pb.StepFinished(rank=rank, step=step) for rank in agent.processes]
        world.core.apply_agent_report(agent.uid, agent.report(steps=steps), world.now)


def test_what_launchers_keep_back_is_waited_for() -> None:
    assert GATHER_SECONDS >= STILL / SECOND + 0.05


def test_a_stop_tells_the_last_common_step_a_moment_later() -> None:
    world = trained()
    world.die(3)
    world.order(pb.STOP, incarnation=2, revision=1)
    tell_late(world, 4)
    assert told(world) == []
    world.advance(0.3)
    assert told(world) == [4]
    world.advance(1.0)
    assert told(world) == [4]


def test_a_coordinator_owes_the_last_step_until_it_has_told_it() -> None:
    world = trained()
    assert not world.core.has_news
    world.die(3)
    world.order(pb.STOP, incarnation=2, revision=1)
    tell_late(world, 4)
    world.now += GATHER_SECONDS - 0.05
    world.core.check_time_limits(world.now, 0.0)
    assert world.core.has_news
    world.now += 0.1
    world.core.check_time_limits(world.now, 0.0)
    assert world.core.has_news
    report = world.core.next_report(world.now)
    assert [mark.step for mark in report.milestones if mark.kind == pb.STEP_BEFORE] == [4]
    assert not world.core.has_news


def test_silent_node_does_not_hide_the_common_step() -> None:
    world = trained()
    world.step(4, [0, 1])
    world.agent(1).powered = False
    world.advance(4.0)
    assert [list(fact.ranks) for fact in world.facts] == [[2, 3]]
    world.order(pb.STOP, incarnation=2, revision=1)
    world.advance(0.3)
    assert told(world) == [4]


def without_power(world: World, step: int) -> None:
    """The ranks of the first node finish a step, the second one loses its power and is missed."""
    world.step(step, [0, 1])
    world.agent(1).powered = False
    world.advance(4.0)
    world.order(pb.STOP, incarnation=2, revision=1)
    world.advance(0.3)


def with_long_steps(steps: int) -> World:
    world = World()
    world.train(steps, seconds=0.3)
    return world


def test_node_heard_up_to_a_step_has_not_finished_the_next() -> None:
    world = with_long_steps(3)
    without_power(world, 4)
    assert told(world) == [3]


def test_a_node_whose_agent_was_cut_off_before_hides_no_step() -> None:
    world = with_long_steps(3)
    world.step(4, [0, 1])  # the others could not have gone on to step 5 without the second node
    without_power(world, 5)
    assert told(world) == [5]


def test_a_start_that_follows_at_once_changes_nothing() -> None:
    world = trained()
    world.die(3)
    world.order(pb.STOP, incarnation=2, revision=1)
    world.attempt += 1
    world.assign()
    world.order(pb.START, incarnation=3)
    world.advance(0.3)
    assert told(world) == [3]
    assert not world.core.job.attempt.stepped


def test_a_save_that_follows_at_once_hides_no_step() -> None:
    world = trained()
    world.die(3)
    world.order(pb.CHECKPOINT, revision=1, lost_ranks=[3])
    assert world.mindio.calls[-1][0] == "change_strategy"
    tell_late(world, 4)
    world.advance(0.3)
    assert told(world) == [4]
    assert world.state.step == 4


def test_step_told_with_the_strategy_is_not_repeated() -> None:
    world = trained()
    world.die(3)
    world.order(pb.CHECKPOINT, revision=1, lost_ranks=[3])
    world.advance(0.2)
    assert told(world) == [3]
    world.order(pb.STOP, incarnation=2, revision=2)
    world.advance(0.5)
    assert told(world) == [3]


def test_a_start_ends_with_the_first_step_of_all_ranks() -> None:
    world = World()
    world.start()
    world.step(1, [0, 1, 2])
    assert world.marks(pb.RESUMED) == []
    assert not world.state.HasField("step")
    world.advance(0.2)
    world.step(1, [3])
    assert [mark.step for mark in world.marks(pb.RESUMED)] == [1]
    assert world.state.step == 1
    world.step(2)
    assert len(world.marks(pb.RESUMED)) == 1
