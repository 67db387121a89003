"""The wait of a job below its full size, in words: for a replacement, or for what growing back needs.

It is shown in `status.dataParallel`; nothing is decided here.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from hajob.api.base import format_time
from hajob.domain.actions import Action
from hajob.domain.incidents import Purpose
from hajob.domain.text import counted_noun, first_of_list
from hajob.plan import events
from hajob.plan.context import Context
from hajob.plan.evaluator import LATE, budget_exhausted, count_budget_uses
from hajob.plan.policy import Policy
from hajob.plan.state import Deadline, JobPhase, JobState
from hajob.plan.view import ClusterView

_SHOWN: Final = 16


class WaitReason(StrEnum):
    """`status.dataParallel.waitReason`."""

    REPLACEMENT = "Replacement"
    NO_FREE_NODE = "NoFreeNode"
    QUOTA = "QuotaExceeded"
    BUDGET_SPENT = "BudgetSpent"
    DELAY = "ExpandDelay"
    RETURNING = "Returning"


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait: its reason and a sentence."""

    reason: WaitReason
    message: str


def wait_of_job(state: JobState, view: ClusterView, policy: Policy, now_ms: int, missing: str = "") -> Wait | None:
    """Return what the job waits for; None where it is whole, or waits for nothing.

    Args:
        state: of the job.
        view: of the cluster.
        policy: of the job.
        now_ms: time of the job.
        missing: why pods have no node, in words.
    """
    if state.phase is JobPhase.GATHERING:
        return _wait_for_replacement(state, view, policy, now_ms, missing)
    if state.shrunk is None and state.smaller is not None and state.phase is JobPhase.RUNNING:
        return _wait_for_growth(state, view, policy, now_ms, state.smaller.absent_nodes)
    if state.shrunk is None or state.phase not in {JobPhase.SHRUNK, JobPhase.EXPANDING}:
        return None
    nodes = state.shrunk.absent_nodes(released=policy.release_shrunk_pods)
    if state.phase is JobPhase.EXPANDING:
        shown = first_of_list(state.shrunk.nodes, _SHOWN)
        told = f"waiting for all ranks of node ranks {shown} to be ready, until {_due_in_words(state)}"
        return Wait(WaitReason.RETURNING, f"{told}; {missing}" if missing else told)
    return _wait_for_growth(state, view, policy, now_ms, nodes)


def _wait_for_growth(state: JobState, view: ClusterView, policy: Policy, now_ms: int, nodes: tuple[int, ...]) -> Wait:
    """Return the wait for nodes for these node ranks, then for the delay."""
    gone = state.shrunk or state.smaller
    chips = counted_noun(view.layout.chips_per_node, "chip")
    need = f"needs {counted_noun(len(nodes), 'free node')} at once with {chips} each"
    need += f", for node ranks {first_of_list(nodes, _SHOWN)}"
    if view.growth_refused:
        return Wait(
            WaitReason.QUOTA,
            f"needs {counted_noun(len(nodes), 'pod')} at once, for node ranks {first_of_list(nodes, _SHOWN)}; "
            f"{view.growth_refused}",
        )
    if gone is None or not gone.capacity_ms:
        return Wait(WaitReason.NO_FREE_NODE, f"{need}; free after jobs ahead in the queue: {view.free_nodes or 0}")
    limits = policy.limits[Action.EXPAND]
    used = count_budget_uses(state, Action.EXPAND.value, limits.window_seconds, now_ms)
    if used >= limits.max_count:
        return Wait(WaitReason.BUDGET_SPENT, budget_exhausted(used, limits))
    return Wait(WaitReason.DELAY, f"{need}; available, must remain so until {_due_in_words(state, Deadline.EXPAND)}")


def nodes_to_return(state: JobState, policy: Policy, now_ms: int) -> tuple[int, ...]:
    """Return the node ranks that need nodes for growing back now; none while the `Expand` budget is spent."""
    limits, smaller = policy.limits[Action.EXPAND], state.smaller
    if smaller is not None and _is_growing_now(state):
        return smaller.absent_nodes
    if count_budget_uses(state, Action.EXPAND.value, limits.window_seconds, now_ms) >= limits.max_count:
        return ()
    if state.phase is JobPhase.SHRUNK and state.shrunk is not None:
        return state.shrunk.absent_nodes(released=policy.release_shrunk_pods)
    if state.phase is JobPhase.RUNNING and smaller is not None:
        return smaller.absent_nodes
    return ()


def _is_growing_now(state: JobState) -> bool:
    """Whether the job is being saved for a start with all nodes, which it has claimed already."""
    incident = state.incident
    return state.phase is JobPhase.SAVING and incident is not None and incident.purpose is Purpose.GROW


def _wait_for_replacement(state: JobState, view: ClusterView, policy: Policy, now_ms: int, missing: str) -> Wait | None:
    """Return the wait for nodes of replaced pods, and the action that follows when none come."""
    incident = state.incident
    if incident is None or not incident.replaced_nodes or incident.ready or not missing:
        return None
    late = Context(state, events.DeadlineReached(name=Deadline.RECOVERY), view, policy, now_ms)
    follows = late.decide_action(LATE).action or "no action"
    replaced = first_of_list(incident.replaced_nodes, _SHOWN)
    told = f"node ranks {replaced}: {missing}; until {_due_in_words(state)}, then {follows}"
    return Wait(WaitReason.REPLACEMENT, told)


def _due_in_words(state: JobState, name: Deadline = Deadline.RECOVERY) -> str:
    at_ms = state.deadlines.get(name, 0)
    return format_time(datetime.fromtimestamp(at_ms // 1000, UTC))
