"""Choice of the smallest action that cures a fault, and the reasons against smaller ones.

Pure arithmetic over a loss. The evaluator checks the actions smallest first, each in the same order (needed at all,
allowed, offered, possible, within budget, making progress), and takes the first without a refusal. The identifiers
of refusals are those of docs/user/preconditions.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hajob.api.derived import ActionLimits
from hajob.domain.actions import ACTION_ORDER, FAULT_ACTIONS, Action
from hajob.domain.cause_words import duration_in_words, ordinal_number
from hajob.domain.layout import Layout
from hajob.domain.loss import Isolation, copy_survives, isolate_loss
from hajob.domain.text import counted_noun
from hajob.plan.policy import (
    MAINTENANCE_LIMIT,
    MAINTENANCE_WINDOW_SECONDS,
    NO_PROGRESS_LIMIT,
    PROGRAM_WINDOW_SECONDS,
    Policy,
    Refusal,
)
from hajob.plan.state import MAINTENANCE_BUDGET, PROGRAM_BUDGET, JobState
from hajob.plan.view import ClusterView

NOT_SERVING: Final = "the MindIO controller does not serve"


@dataclass(frozen=True, slots=True)
class Trigger:
    """Kind of decision: the actions that are still possible then, and why the others are not."""

    name: str
    actions: tuple[Action, ...]
    why: str


FAULT: Final = Trigger("Fault", FAULT_ACTIONS, "")
RETRY_LATE: Final = Trigger(
    "RetryLate",
    FAULT_ACTIONS[1:],
    "it timed out before MindIO was told the lost ranks; only new processes can still repair it",
)
PROCESS_LATE: Final = Trigger(
    "ProcessLate",
    (Action.REPLACE, Action.SHRINK, Action.CHECKPOINT, Action.RESTART),
    "it timed out before MindIO was told the lost ranks; only a new pod can still repair it",
)
LATE: Final = Trigger(
    "Late",
    (Action.SHRINK, Action.CHECKPOINT, Action.RESTART),
    "it timed out; only Shrink, Checkpoint or Restart can follow",
)
UNREPAIRABLE: Final = Trigger(
    "Unrepairable",
    (Action.IN_PLACE, Action.REPLACE, Action.CHECKPOINT, Action.RESTART),
    "MindIO could not clean the memory (405); only new processes can repair it",
)
MANAGER_LOST: Final = (
    "TaskD's manager, MindIO's controller and the rendezvous store are lost with the pod of node rank 0"
)
MANAGER_ENDS: Final = (
    "25 minutes after a worker of node rank 0 has ended TaskD's manager ends MindIO's controller and that pod, "
    "whatever was recovered since"
)
_WITH_NEW_PROCESSES: Final = frozenset({Action.IN_PLACE, Action.REPLACE, Action.SHRINK})
"""Actions after which the training goes on with the manager that it had."""
DUMP_OR_EXIT: Final = Trigger(
    "DumpOrExit",
    (Action.CHECKPOINT, Action.RESTART),
    "MindIO offers only dump or exit: ranks were named, the job is shrunk, or a recovery failed (406)",
)
EXIT_ONLY: Final = Trigger(
    "ExitOnly", (Action.RESTART,), "MindIO offers only exit: after a save, after 499, or because its controller is lost"
)
UNTRAINED: Final = Trigger(
    "Untrained", (Action.RESTART,), "MindIO has no state before all ranks are registered and the first step has ended"
)


@dataclass(frozen=True, slots=True)
class Loss:
    """Damage that one decision has to cure.

    Attributes:
        ranks: every lost rank.
        nodes: node ranks whose pods are lost or useless.
        newly: those of `nodes` that the event itself takes, even if they were being replaced already.
        floor: the smallest action that can cure it.
        program_failure: a fresh failure of the program, which has a budget of its own.
        rank: the rank that the no-progress rule watches, -1 for the job as a whole.
        step: the step at which the loss happened.
        corrupted: data are corrupted, nothing may be saved.
        counted: the action spends budgets; False for planned actions and for a loss that merely joins.
        continues: the current action, which would only be widened: neither its budget nor its progress
            is checked again.
        asked: a person has asked for the restart: neither budgets nor the spec's limits for faults refuse it.
        maintenance: the loss was deliberate (drain, preemption); it has a budget of its own.
        checks_progress: the no-progress rule applies; False for a fault of an attempt that has not trained.
    """

    ranks: tuple[int, ...]
    nodes: tuple[int, ...] = ()
    newly: tuple[int, ...] = ()
    floor: Action = Action.RETRY
    program_failure: bool = False
    rank: int = -1
    step: int = -1
    corrupted: bool = False
    counted: bool = True
    continues: Action | None = None
    checks_progress: bool = True
    maintenance: bool = False
    asked: bool = False


@dataclass(frozen=True, slots=True)
class ActionVerdict:
    """Verdict on one action: taken, or refused with its unmet preconditions."""

    action: Action
    taken: bool
    refusals: tuple[Refusal, ...] = ()

    @property
    def unmet(self) -> tuple[str, ...]:
        """Identifiers of the preconditions that are not met, each once."""
        return tuple(dict.fromkeys(refusal.name for refusal in self.refusals))

    @property
    def verdict_message(self) -> str:
        """The reason, in words."""
        if self.taken:
            return "taken: the smallest action that works"
        return "; ".join(refusal.message for refusal in self.refusals)


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen action, None when none works, and every action evaluated on the way."""

    action: Action | None
    considered: tuple[ActionVerdict, ...]


@dataclass(slots=True)
class Evaluator:
    """Evaluator of the actions for one loss; costly values are computed at most once, on demand.

    Attributes:
        carried_out_later: no controller needs to serve now: the next coordinator heard carries out the order.
    """

    loss: Loss
    trigger: Trigger
    state: JobState
    view: ClusterView
    policy: Policy
    now_ms: int
    carried_out_later: bool = False
    _copy: bool | None = None
    _isolation: Isolation | None = None

    @property
    def job_layout(self) -> Layout:
        """Sizes of the job."""
        return self.view.layout

    @property
    def has_complete_copy(self) -> bool:
        """Whether a complete copy survives the loss."""
        if self._copy is None:
            shrunk = self.state.shrunk
            lost = {*self.loss.ranks, *shrunk.ranks} if shrunk else self.loss.ranks
            self._copy = copy_survives(self.job_layout, lost)
        return self._copy

    @property
    def isolation(self) -> Isolation:
        """Ranks and pods that a shrink would drop."""
        if self._isolation is None:
            self._isolation = isolate_loss(self.job_layout, self.loss.ranks)
        return self._isolation

    def choose_action(self) -> Choice:
        """Evaluate the actions, smallest first, up to the first that works."""
        considered: list[ActionVerdict] = []
        for action in FAULT_ACTIONS:
            refusals = self.refusals_of_action(action)
            considered.append(ActionVerdict(action, not refusals, refusals))
            if not refusals:
                return Choice(action, tuple(considered))
        return Choice(None, tuple(considered))

    def refusals_of_action(self, action: Action) -> tuple[Refusal, ...]:
        """Return every unmet precondition of an action; empty when it works."""
        if self.loss.asked and action is Action.RESTART:
            return ()
        below = self._refusals_below_floor(action)
        if below:
            return below
        given = (*self.policy.refusals.get(action, ()), *self._refusals_by_manager(action))
        found = [*given, *self._refusals_by_store(action), *_CHECKS[action](self)]
        return tuple(found or self._refusals_by_budget(action))

    def _refusals_below_floor(self, action: Action) -> tuple[Refusal, ...]:
        """Return the refusal of an action that is no longer possible, too small, or not allowed by the spec."""
        if action is Action.SHRINK and self.state.shrunk is not None:
            return (Refusal("NotShrunk", "the job is shrunk already, and MindIO shrinks only once"),)
        if action not in self.trigger.actions:
            return (Refusal("StillPossible", self.trigger.why),)
        if ACTION_ORDER[action] < ACTION_ORDER[self.loss.floor]:
            return (_refusal_as_too_small(action, self.loss),)
        if not self.policy.allows_action(action):
            return (Refusal("ActionAllowed", f"the spec does not allow {action}"),)
        return ()

    def _refusals_by_manager(self, action: Action) -> list[Refusal]:
        """Refuse an action that outlives the pod in which TaskD keeps what all others need, or a process in it."""
        if not self.policy.taskd_starts_ranks or action is Action.RESTART:
            return []
        if 0 in self.loss.nodes:
            return [Refusal("ManagerAlive", MANAGER_LOST)]
        ends_soon = action in _WITH_NEW_PROCESSES and 0 in self.view.layout.nodes_of_ranks(self.loss.ranks)
        return [Refusal("ManagerAlive", MANAGER_ENDS)] if ends_soon else []

    def _refusals_by_store(self, action: Action) -> list[Refusal]:
        """Refuse an action that rebuilds process groups when the ranks' rendezvous store is lost."""
        if not self.state.store_lost or action not in _MEETING:
            return []
        words = (
            "the rendezvous store was lost with the coordinator pod: running ranks cannot rebuild their process groups"
        )
        return [Refusal("StoreKept", words)]

    def _refusals_by_budget(self, action: Action) -> list[Refusal]:
        if not self.loss.counted or action is self.loss.continues or is_loss_free(self.loss, self.state, self.now_ms):
            return []
        limits, found = self.policy.limits[action], []
        used = count_budget_uses(self.state, action, limits.window_seconds, self.now_ms)
        if used >= limits.max_count:
            found.append(Refusal("BudgetLeft", budget_exhausted(used, limits)))
        if self.loss.program_failure:
            failures = count_budget_uses(self.state, PROGRAM_BUDGET, PROGRAM_WINDOW_SECONDS, self.now_ms)
            allowed = self.policy.max_program_failures
            if failures >= allowed:
                found.append(Refusal("ProgramBudgetLeft", self._too_many_failures(failures + 1, allowed)))
        count = count_stalls(self.state, action, self.loss.rank, self.loss.step)
        if count >= NO_PROGRESS_LIMIT and self.loss.checks_progress:
            who = f"rank {self.loss.rank}" if self.loss.rank >= 0 else "the job"
            where = f"at step {self.loss.step}" if self.loss.step >= 0 else "before the first step"
            words = f"{who} has failed {count} times {where} without progress"
            found.append(Refusal("Progress", words))
        return found

    def _too_many_failures(self, number: int, allowed: int) -> str:
        since = self.now_ms - 1000 * PROGRAM_WINDOW_SECONDS
        times = (one.time_ms for one in self.state.spent if one.budget == PROGRAM_BUDGET and one.time_ms > since)
        took = duration_in_words(max(0, self.now_ms - min(times, default=self.now_ms)) // 1000)
        return (
            f"{ordinal_number(number)} failure of the program{f' in {took}' if number > 1 else ''}, {allowed} allowed"
        )


def is_loss_free(loss: Loss, state: JobState, now_ms: int) -> bool:
    """Return whether the maintenance budget pays for the loss."""
    return (
        loss.maintenance
        and count_budget_uses(state, MAINTENANCE_BUDGET, MAINTENANCE_WINDOW_SECONDS, now_ms) < MAINTENANCE_LIMIT
    )


def budget_exhausted(used: int, limits: ActionLimits) -> str:
    """Say in words that an action was taken too often."""
    return f"budget exhausted: {used} of {limits.max_count} in the last {limits.window_seconds} s"


def budgets_left(policy: Policy, state: JobState, now_ms: int) -> dict[Action, int]:
    """Return how often each action that the spec allows may still be taken in its window."""
    return {
        action: max(limits.max_count - count_budget_uses(state, action, limits.window_seconds, now_ms), 0)
        for action, limits in policy.limits.items()
        if policy.allows_action(action)
    }


def count_budget_uses(state: JobState, budget: str, window_seconds: int, now_ms: int) -> int:
    """Return how often a budget was used within its window."""
    since, count = now_ms - 1000 * window_seconds, 0
    for spend in state.spent:
        if spend.budget == budget and spend.time_ms > since:
            count += 1
    return count


def count_stalls(state: JobState, action: Action, rank: int, step: int) -> int:
    """Return how often the action was taken because of this rank at this step."""
    for stall in reversed(state.stalls):
        if stall.action is action and stall.rank == rank:
            return stall.count if stall.step == step else 0
    return 0


def _refusal_as_too_small(action: Action, loss: Loss) -> Refusal:
    """Return why an action below the floor cannot cure the loss."""
    if loss.nodes and ACTION_ORDER[action] < ACTION_ORDER[Action.REPLACE]:
        return Refusal("PodAlive", f"{action} needs the pod of node rank {loss.nodes[0]}, which is lost")
    if loss.ranks and ACTION_ORDER[action] < ACTION_ORDER[Action.IN_PLACE]:
        words = f"rank {loss.ranks[0]} needs a new process; repeating a step does not start one"
        return Refusal("ProcessAlive", words)
    return Refusal("Sufficient", f"smaller than the requested action ({loss.floor})")


def _refusals_of_mindio(evaluator: Evaluator) -> list[Refusal]:
    """Check what every action through MindIO needs."""
    found: list[Refusal] = []
    step = max(evaluator.view.step, evaluator.state.step)
    if step < 1:
        found.append(Refusal("FirstStepFinished", f"the newest finished step is {step}; MindIO needs step 1"))
    view = evaluator.view
    if not (view.coordinator_ready or view.taking_over or evaluator.carried_out_later):
        found.append(Refusal("CoordinatorReady", NOT_SERVING))
    return found


def _refusals_of_process(evaluator: Evaluator) -> list[Refusal]:
    """Check Retry, InPlace, Replace: a copy, or the periodic checkpoint where the framework can use it."""
    found = _refusals_of_mindio(evaluator)
    if evaluator.loss.corrupted or not evaluator.has_complete_copy:
        if not evaluator.policy.no_copy_repair:
            found.append(Refusal("CompleteCopy", "no complete optimizer copy is left, and MindSpore needs one"))
        elif evaluator.view.checkpoint_step == -1:
            found.append(Refusal("CheckpointPresent", "no complete optimizer copy and no periodic checkpoint is left"))
    return found


def _refusals_of_shrink(evaluator: Evaluator) -> list[Refusal]:
    """Check Shrink: MindIO's drop rule, rank 0, one shrink only, a complete copy among the remaining ranks."""
    found = _refusals_of_mindio(evaluator)
    isolation, layout = evaluator.isolation, evaluator.job_layout
    if isolation.holds_rank_zero:
        words = f"data-parallel rank 0 would be dropped: {list(isolation.dropped)}"
        found.append(Refusal("RankZeroInSet", words))
    if not isolation.agrees_with_mindio:
        dropped = counted_noun(len(isolation.mindio_ranks), "rank")
        words = f"MindIO would drop {dropped}, the pods that leave hold {len(isolation.ranks)}"
        found.append(Refusal("DropSetClosed", words))
    if evaluator.loss.corrupted or not copy_survives(layout, isolation.ranks):
        found.append(Refusal("CompleteCopy", "the remaining ranks would not hold a complete optimizer copy"))
    left = layout.data - len(isolation.dropped)
    if left < evaluator.policy.min_data_parallel:
        words = (
            f"{left} data-parallel ranks would be left; elastic.minDataParallel is {evaluator.policy.min_data_parallel}"
        )
        found.append(Refusal("MinDataParallel", words))
    return found


def _refusals_of_checkpoint(evaluator: Evaluator) -> list[Refusal]:
    """Check Checkpoint: a complete copy of uncorrupted data."""
    found = _refusals_of_mindio(evaluator)
    if evaluator.loss.corrupted:
        found.append(Refusal("DataSound", "data was reported corrupted, so nothing is saved"))
    elif not evaluator.has_complete_copy:
        found.append(Refusal("CompleteCopy", "the remaining ranks do not hold a complete optimizer copy"))
    return found


_MEETING: Final = frozenset({Action.IN_PLACE, Action.REPLACE, Action.SHRINK})
"""Actions that rebuild process groups."""

_CHECKS: Final[dict[Action, Callable[[Evaluator], list[Refusal]]]] = {
    Action.RETRY: _refusals_of_process,
    Action.IN_PLACE: _refusals_of_process,
    Action.REPLACE: _refusals_of_process,
    Action.SHRINK: _refusals_of_shrink,
    Action.CHECKPOINT: _refusals_of_checkpoint,
    Action.RESTART: lambda _evaluator: [],
}
