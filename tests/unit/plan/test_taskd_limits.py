"""What TaskD keeps in the pod of node rank 0: its loss restarts every pod, and the job is told so beforehand."""

from __future__ import annotations

from dataclasses import replace

from hajob.domain.actions import Action
from hajob.plan import events as e
from hajob.plan.context import Context
from hajob.plan.evaluator import FAULT, Evaluator, Loss
from hajob.plan.guards import why_no_move
from hajob.plan.policy import policy_from_spec
from hajob.plan.recoverability import recoverability
from hajob.plan.state import JobPhase, JobState
from tests.rigs.plan_specs import spec
from tests.rigs.plan_worlds import VIEW

TRAINING = JobState(phase=JobPhase.RUNNING, incarnation=1, attempt=1, base=1, step=5)
BY_TASKD = policy_from_spec(spec(launcher="TaskD"))
BY_HAJOB = policy_from_spec(spec())


def unmet(node: int, action: Action) -> tuple[str, ...]:
    loss = Loss((2 * node, 2 * node + 1), (node,), floor=Action.REPLACE, counted=False)
    refusals = Evaluator(loss, FAULT, TRAINING, VIEW, BY_TASKD, 1000).refusals_of_action(action)
    return tuple(one.name for one in refusals)


def test_the_pod_of_node_rank_0_is_not_replaced() -> None:
    assert "ManagerAlive" in unmet(0, Action.REPLACE)
    assert "ManagerAlive" not in unmet(1, Action.REPLACE)
    assert "ManagerAlive" not in unmet(0, Action.RESTART)


def test_no_process_of_node_rank_0_is_started_again() -> None:
    """TaskD's manager ends MindIO's controller 25 minutes after a worker of node rank 0 has ended, recovered or not."""

    def unmet_for_rank(rank: int, action: Action) -> tuple[str, ...]:
        loss = Loss((rank,), floor=Action.IN_PLACE, counted=False)
        refusals = Evaluator(loss, FAULT, TRAINING, VIEW, BY_TASKD, 1000).refusals_of_action(action)
        return tuple(one.name for one in refusals)

    for action in (Action.IN_PLACE, Action.REPLACE, Action.SHRINK):
        assert "ManagerAlive" in unmet_for_rank(0, action)
        assert "ManagerAlive" in unmet_for_rank(1, action)
        assert "ManagerAlive" not in unmet_for_rank(2, action)
    for action in (Action.CHECKPOINT, Action.RESTART):
        assert "ManagerAlive" not in unmet_for_rank(0, action)


def test_the_limits_are_told_before_any_fault() -> None:
    told = {one.action: one.message for one in recoverability(TRAINING, VIEW, BY_TASKD)}
    assert "not for node rank 0" in told[Action.REPLACE]
    assert "only once it was named" in told[Action.IN_PLACE]
    assert "25 minutes" in told[Action.IN_PLACE]
    assert "no successor" in told[Action.RESTART]
    assert not any("TaskD" in one.message for one in recoverability(TRAINING, VIEW, BY_HAJOB))


def test_healthy_pods_of_dropped_ranks_are_given_back() -> None:
    assert BY_TASKD.release_shrunk_pods
    assert not BY_HAJOB.release_shrunk_pods


def test_the_manager_is_not_moved() -> None:
    asked = e.MigrateRequested(nodes=(0,))
    context = Context(TRAINING, asked, VIEW, BY_TASKD, 1_000_000)
    assert why_no_move(context).startswith("ManagerAlive")
    assert why_no_move(replace(context, event=e.MigrateRequested(nodes=(1,)))) == ""
