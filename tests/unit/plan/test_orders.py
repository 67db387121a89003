"""What an order and its incident say, as one action follows another: nothing of the one before is left in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.domain.actions import Action, OrderCommand
from hajob.domain.facts import Fact, FactKind, Source
from hajob.domain.incidents import RestoredFrom
from hajob.plan import effects as do
from hajob.plan import events as e
from hajob.plan.context import Context
from hajob.plan.evaluator import FAULT
from hajob.plan.policy import Policy
from hajob.plan.recovery import begin_process
from hajob.plan.state import JobPhase, JobState
from tests.rigs.plan_rig import Rig
from tests.rigs.plan_worlds import VIEW, without

SCALE_IN = '{"scale-in-strategy":"DP"}'


def gathered() -> Rig:
    """Rank 5 was restarted and stands at its gate."""
    rig = Rig.running()
    rig.exits(5)
    rig.tell(e.ReplacementsReady(2, 1))
    assert rig.incident.ready
    return rig


def named() -> Rig:
    """MindIO has been told, too."""
    rig = gathered()
    rig.tell(e.Named(2, 1))
    return rig


# ------------------------------------------------------------------------------------------------ processes


@pytest.mark.parametrize(
    ("action", "command", "restarted"),
    [
        (Action.RETRY, OrderCommand.RETRY, ()),
        (Action.IN_PLACE, OrderCommand.IN_PLACE, (5,)),
    ],
)
def test_a_process_is_begun_with_the_action_that_was_asked_for(
    action: Action, command: OrderCommand, restarted: tuple[int, ...]
) -> None:
    dead = Fact("a", FactKind.PROCESS_EXITED, Source.AGENT, ranks=(5,), incarnation=1, time_ms=10**9)
    context = Context(Rig.running().state, e.FactSeen(fact=dead), VIEW, Policy(), 1_000_000)
    assert context.concerns_job()
    context.decide_action(FAULT)
    state, done = begin_process(action, context)
    (order,) = [effect for effect in done if isinstance(effect, do.SendOrder)]
    assert (order.command, order.restart_ranks) == (command, restarted)
    assert state.incident is not None
    assert state.incident.action is action


def test_processes_that_die_together_take_their_pods_along() -> None:
    """Ranks 1 and 4 are no partners, but their pods hold both holders of a shard."""
    rig = Rig.running(policy=without(Action.IN_PLACE))
    rig.see(FactKind.PROCESS_EXITED, ranks=(1, 4), exit_code=-9)
    assert rig.incident.lost_ranks == (0, 1, 4, 5)
    assert rig.incident.restored_from is RestoredFrom.PERIODIC_CHECKPOINT


@pytest.mark.parametrize(
    ("nodes", "names"),
    [((1,), ()), ((2,), ()), ((3,), ("c",)), ((0, 3), ("a", "c"))],
)
def test_only_nodes_with_a_name_are_avoided(nodes: tuple[int, ...], names: tuple[str, ...]) -> None:
    rig = Rig.running(view=replace(VIEW, node_names={2: "", 3: "c", 0: "a"}))
    ranks = tuple(rank for node in nodes for rank in VIEW.layout.ranks_of_node(node))
    rig.see(FactKind.POD_LOST, ranks=ranks)
    assert {node for node, number in rig.served.items() if number == 2} == set(nodes)
    assert sorted(name for one in rig.pods.ranks for name in one.avoid) == list(names)


# ------------------------------------------------------------------------------------------------ named by MindIO


def test_what_mindio_names_as_well_may_take_the_last_copy() -> None:
    rig = Rig.running()
    rig.exits(5)
    rig.tell(e.Stopped(2, (5, 7)))
    assert rig.incident.restored_from is RestoredFrom.OPTIMIZER_COPY
    rig = Rig.running()
    rig.exits(5)
    rig.tell(e.Stopped(2, (1, 5)))
    assert rig.incident.restored_from is RestoredFrom.PERIODIC_CHECKPOINT


def test_corrupted_data_stay_corrupted_when_mindio_names_more() -> None:
    rig = Rig.running()
    rig.see(FactKind.DATA_CORRUPTED, ranks=(3,), source=Source.MINDIO)
    rig.tell(e.Stopped(2, (3, 6)))
    assert rig.incident.corrupted
    assert rig.incident.restored_from is RestoredFrom.PERIODIC_CHECKPOINT


def test_a_retry_that_mindio_widens_goes_over_to_new_processes() -> None:
    rig = Rig.running().memory(3, Source.MINDIO)
    done = rig.tell(e.Stopped(2, (3, 7)))
    assert rig.order(done) == do.SendOrder(OrderCommand.IN_PLACE, 2, 2, (3, 7), (3, 7), timeout_seconds=120)
    assert (rig.action, rig.incident.escalated_from) == (Action.IN_PLACE, (Action.RETRY,))
    rig.tell(e.Stopped(2, (3, 6, 7)))
    assert rig.incident.escalated_from == (Action.RETRY,)


def test_more_to_gather_is_not_ready() -> None:
    rig = gathered()
    rig.tell(e.Stopped(2, (5, 7)))
    assert rig.incident.ready is False
    rig = gathered()
    rig.exits(6)
    assert rig.incident.ready is False


# ------------------------------------------------------------------------------------------------ smaller


def test_a_shrink_at_once_takes_the_whole_pod_of_a_dead_process() -> None:
    rig = Rig.running(policy=without(Action.IN_PLACE, Action.REPLACE))
    order = do.SendOrder(OrderCommand.SHRINK, 2, 1, (4, 5), parameters=SCALE_IN, timeout_seconds=60)
    assert rig.order(rig.exits(5)) == order
    assert rig.incident.restored_from is RestoredFrom.OPTIMIZER_COPY
    assert rig.incident.ready is False


def test_a_shrink_after_an_unfinished_repair_restarts_nobody() -> None:
    rig = named()
    order = do.SendOrder(OrderCommand.SHRINK, 2, 2, (4, 5), parameters=SCALE_IN, timeout_seconds=300)
    assert rig.order(rig.deadline("Recovery")) == order
    assert (rig.incident.ready, rig.incident.restart_ranks, rig.incident.replaced_nodes) == (False, (), ())


# ------------------------------------------------------------------------------------------------ saved, restarted


def test_a_save_after_a_repair_restarts_nobody() -> None:
    rig = named()
    assert rig.order(rig.exits(3)) == do.SendOrder(OrderCommand.CHECKPOINT, 2, 2, (3, 5), timeout_seconds=1860)
    rig.tell(e.ResultReported(2, 0, "", "dump"))
    assert rig.at(JobPhase.RESTARTING)
    assert (rig.incident.ready, rig.incident.named) == (False, False)


def test_a_restart_names_nobody() -> None:
    rig = named()
    rig.tell(e.ResultReported(2, 499, "", "recover"))
    assert rig.at(JobPhase.RESTARTING)
    assert (rig.incident.lost_ranks, rig.incident.restart_ranks, rig.incident.replaced_nodes) == ((), (), ())
    assert (rig.incident.ready, rig.incident.named) == (False, False)


@pytest.mark.parametrize(
    ("rank", "phase", "left"), [(2, JobPhase.SAVING, "Recovery"), (0, JobPhase.RESTARTING, "Startup")]
)
def test_who_saves_or_restarts_does_not_wait_to_grow(rank: int, phase: JobPhase, left: str) -> None:
    rig = Rig.shrunk()
    assert set(rig.state.deadlines) == {"Expand"}
    rig.exits(rank)
    assert rig.at(phase)
    assert set(rig.state.deadlines) == {left}


# ------------------------------------------------------------------------------------------------ the end of it


@pytest.mark.parametrize(("told", "step"), [(0, 0), (1, 1), (-1, -1)])
def test_the_first_step_of_a_training_may_be_any(told: int, step: int) -> None:
    rig = Rig(JobState(), policy=Policy())
    rig.tell(e.Accepted())
    rig.tell(e.AllRanksStarted(attempt=1))
    rig.tell(e.Resumed(1, told))
    assert (rig.state.phase, rig.state.step) == (JobPhase.RUNNING, step)


def test_what_explained_a_slow_start_is_forgotten_when_it_trains() -> None:
    rig = Rig(JobState())
    rig.tell(e.Accepted())
    rig.see(FactKind.POD_UNSTARTABLE, node=1, code="ImagePullBackOff", message="no such image")
    assert rig.state.problem == "ImagePullBackOff: no such image"
    rig.tell(e.AllRanksStarted(attempt=1))
    rig.tell(e.Resumed(1, 1))
    assert rig.state.problem == ""
