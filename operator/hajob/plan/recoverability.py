"""Which actions would work now, before any fault: `status.recoverability`.

The same evaluation as for a fault, with an empty loss: what the spec makes impossible, what the cluster
lacks at the moment, what cannot be known. So the list never promises what a decision would refuse.
"""

from typing import Final

from hajob.api.enums import ConditionStatus
from hajob.api.status import ActionRecoverability, UnmetPrecondition
from hajob.domain.actions import MINDIO_ACTIONS, Action
from hajob.domain.layout import CopyKind
from hajob.domain.text import counted_noun, first_of_list
from hajob.plan.evaluator import FAULT, Evaluator, Loss, budget_exhausted, count_budget_uses
from hajob.plan.policy import WITHOUT_MINDIO, Policy, Refusal
from hajob.plan.state import JobState
from hajob.plan.view import ClusterView

_SENTENCE_LIMIT: Final = 1024
_SHOWN_SUPER_PODS: Final = 8
SCHEDULER_LIMIT: Final = (
    "MindSpore's ranks end 25 s after their scheduler, which is in the coordinator's pod: losing that costs a restart, "
    "and nothing is saved; with MindIO they train on"
)
"""MS_ENABLE_RECOVERY is set with MindIO, and without it no worker outlives its scheduler."""
TASKD_LIMITS: Final = {
    Action.IN_PLACE: (
        "TaskD starts a rank only once it was named: one that dies until the others train again costs a checkpoint "
        "and a restart; not for ranks of node rank 0: TaskD ends its manager 25 minutes after one of them has ended"
    ),
    Action.REPLACE: "not for node rank 0: the loss of its pod, or of TaskD's manager in it, restarts every pod",
    Action.RESTART: (
        "a lost TaskD manager has no successor: its loss is answered with this, and a coordinator's that is away for "
        "more than 10 s"
    ),
}
"""What a job with `launcher: TaskD` is told of an action beforehand, because no precondition shows it."""
_REPAIRS: Final = frozenset({Action.RETRY, Action.IN_PLACE, Action.REPLACE})


def recoverability(
    state: JobState, view: ClusterView, policy: Policy, now_ms: int | None = None
) -> list[ActionRecoverability]:
    """Evaluate every action that the spec allows; an action that it forbids is not listed.

    Args:
        state: of the job.
        view: the cluster and the training now.
        policy: of the job.
        now_ms: to evaluate budgets by; None leaves budgets out.
    """
    return [_evaluate_action(action, state, view, policy, now_ms) for action in policy.allowed_actions]


def missing_protection(policy: Policy) -> dict[Action, tuple[str, ...]]:
    """Return, by action, the names of the preconditions that spec and visible arguments leave unmet."""
    found = {}
    for action in policy.allowed_actions:
        unmet = _unique_refusals([*policy.refusals.get(action, ()), *policy.advice.get(action, ())])
        if unmet:
            found[action] = tuple(one.name for one in unmet)
    return found


def protection_in_words(policy: Policy) -> str:
    """Say which actions are left before anything has run, and whether without MindIO; empty where none is missing."""
    left_out = "" if policy.through_mindio else f"{WITHOUT_MINDIO} (HIGH_AVAILABILITY is not set for its ranks)"
    missing = missing_protection(policy)
    if not missing:
        return left_out
    by_names: dict[tuple[str, ...], list[Action]] = {}
    for action, names in missing.items():
        by_names.setdefault(names, []).append(action)
    lost = "; ".join(f"{', '.join(actions)} ({', '.join(names)})" for names, actions in by_names.items())
    left = ", ".join(action for action in policy.allowed_actions if action not in missing) or "none"
    return "; ".join(filter(None, (f"actions left: {left}; preconditions not met: {lost}", left_out)))


def recoverable(evaluated: list[ActionRecoverability]) -> ConditionStatus:
    """Return the status of condition `Recoverable`: False before Unknown before True."""
    statuses = {one.status for one in evaluated}
    for status in (ConditionStatus.FALSE, ConditionStatus.UNKNOWN):
        if status in statuses:
            return status
    return ConditionStatus.TRUE


def _evaluate_action(
    action: Action, state: JobState, view: ClusterView, policy: Policy, now_ms: int | None
) -> ActionRecoverability:
    evaluator = Evaluator(
        Loss(ranks=(), counted=False), FAULT, state, view, policy, now_ms=0
    )  # no budget is asked of it
    found = [*evaluator.refusals_of_action(action), *policy.advice.get(action, ()), *_standing_refusals(action, view)]
    limits = policy.limits[action]
    if now_ms is not None and count_budget_uses(state, action, limits.window_seconds, now_ms) >= limits.max_count:
        found.append(Refusal("BudgetLeft", budget_exhausted(limits.max_count, limits)))
    status = ConditionStatus.FALSE if found else ConditionStatus.TRUE
    if not found and (unknown := policy.unknowns.get(action)):
        found, status = list(unknown), ConditionStatus.UNKNOWN
    unmet = tuple(
        UnmetPrecondition(name=one.name, message=one.message[:_SENTENCE_LIMIT]) for one in _unique_refusals(found)
    )
    ready = f"ready: {counted_noun(len(view.spares), 'spare node')}" if action is Action.REPLACE and view.spares else ""
    limits_of_taskd = TASKD_LIMITS.get(action, "") if policy.taskd_starts_ranks else ""
    ends_with_scheduler = action is Action.RESTART and not policy.ranks_outlive_scheduler
    message = "; ".join(filter(None, (ready, limits_of_taskd, SCHEDULER_LIMIT if ends_with_scheduler else "")))
    return ActionRecoverability(action=action, status=status, message=message, unmet=unmet[:32])


def _unique_refusals(found: list[Refusal]) -> list[Refusal]:
    return list({one.name: one for one in reversed(found)}.values())[::-1]


def _standing_refusals(action: Action, view: ClusterView) -> list[Refusal]:
    """Check needs beyond those of a decision at fault time: a node to go to, a coordinator that survives."""
    found = []
    if action in MINDIO_ACTIONS and view.copies_told is False:
        message = (
            "the trainer sends heartbeats, but has registered neither handlers nor optimizer copies with MindIO "
            "(the posttrain entry does that): every fault costs a restart"
        )
        found.append(Refusal("HandlersRegistered", message))
    if action is Action.REPLACE and view.free_nodes == 0 and not view.spares:
        found.append(Refusal("FreeNode", "no free node fits a pod of this job; a lost node would have to come back"))
    elif action is Action.REPLACE and view.bare_super_pods:
        where = first_of_list(view.bare_super_pods, _SHOWN_SUPER_PODS)
        message = f"no node is free in super pod {where}; a node of its blocks that is lost would have to come back"
        found.append(Refusal("FreeNode", message))
    without_copies = view.layout.effective_copies(CopyKind.DENSE) == 1
    if action in _REPAIRS and without_copies and view.checkpoint_step == -1:
        message = "there is no second optimizer copy and no complete periodic checkpoint yet"
        found.append(Refusal("CheckpointPresent", message))
    if action in {Action.REPLACE, Action.SHRINK} and view.coordinator_apart is False:
        message = "the coordinator shares a node with ranks of its job; losing that node costs a restart"
        found.append(Refusal("CoordinatorApart", message))
    return found
