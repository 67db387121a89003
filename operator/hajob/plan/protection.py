"""How well a job is protected, for people: what is missing, each thing once and with its remedy, and what is not seen.

`status.protection` is made of the evaluation in `status.recoverability`; what is met is not shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hajob.api.conditions import Reason
from hajob.api.enums import ConditionStatus
from hajob.api.status import ActionRecoverability, MissingPrecondition, Protection, UnmetPrecondition
from hajob.domain.actions import Action
from hajob.domain.text import counted_noun, first_of_list
from hajob.plan.preconditions import PRECONDITIONS

REMEDIES: Final[Mapping[str, str]] = {
    one.name: f"Change the spec or the start script: {one.wanted}." for one in PRECONDITIONS
} | {
    "CoordinatorApart": Reason.COORDINATOR_SHARES_NODE.remedy,
    "FreeNode": "Keep a node free for replacements; quarantines and taints may exclude nodes that look free.",
    "CoordinatorReady": "Look at condition CoordinatorReady: its message says what is wrong.",
    "FirstStepFinished": "Wait for the first step.",
    "CheckpointPresent": "Wait for the first periodic checkpoint; --save-interval says when it comes.",
    "CompleteCopy": "Wait until the lost ranks are back.",
    "StoreKept": "Restart the job when it suits you (spec.restartRequestTime): that brings a new rendezvous store.",
    "BudgetLeft": "Find in status.incidents why the action was needed so often; spec.recovery.actions sets its budget.",
    "ProgramBudgetLeft": "Fix the training program; spec.recovery.maxProgramFailures sets the budget.",
    "HandlersRegistered": Reason.COPIES_NOT_REGISTERED.remedy,
    "ActionAllowed": "Allow the action in spec.recovery.actions; Shrink needs spec.elastic.policy Enabled.",
}
"""What to change about a precondition that is not met."""

LIVE_PRECONDITIONS: Final[Mapping[str, str]] = {
    "ActionAllowed": "the spec allows the action (maxCount above 0, elastic.policy Enabled for Shrink)",
    "StillPossible": "the state of the running recovery and MindIO still leave the action",
    "ProcessAlive": "Retry repeats a step of a living process",
    "PodAlive": "Retry and InPlace need the pod",
    "Sufficient": "nothing smaller than what a rule or a policy asked for",
    "FirstStepFinished": "MindIO has state from step 1 on",
    "CoordinatorReady": "the MindIO controller serves, or another one is about to take its place",
    "CoordinatorApart": "the coordinator shares no node with a rank of its job",
    "ManagerAlive": "with launcher TaskD, nothing of node rank 0 is lost",
    "StoreKept": "the rendezvous store that the ranks were started with is still there",
    "FreeNode": "a node is free for a pod that is made anew",
    "CompleteCopy": "the ranks that stay hold every optimizer shard",
    "CheckpointPresent": "without a complete copy there is a periodic checkpoint",
    "DataSound": "nobody reported corrupted data",
    "NotShrunk": "MindIO shrinks once",
    "RankZeroInSet": "MindIO cannot drop rank 0",
    "DropSetClosed": "MindIO drops exactly the ranks of the pods that leave",
    "MinDataParallel": "enough data-parallel ranks stay (elastic.minDataParallel)",
    "BudgetLeft": "the action's uses in its window are not spent",
    "ProgramBudgetLeft": "recovery.maxProgramFailures is not spent",
    "Progress": "the same rank did not stand at the same step too often",
}
"""Preconditions of a decision, by name; they are evaluated in hajob.plan.evaluator."""

_NAMED_UNKNOWN: Final = 3
"""Preconditions named that nobody can see: docs/user/preconditions.md has all, and a status stays small."""
_SENTENCES: Final[Mapping[str, str]] = {**{one.name: one.sentence for one in PRECONDITIONS}, **LIVE_PRECONDITIONS}

MOST_SHOWN: Final = 16
"""Preconditions that are shown; a job that lacks more has a wrong framework or size, and the first ones say so."""


def remedy_of_precondition(name: str) -> str:
    """Return what to change about an unmet precondition."""
    return REMEDIES.get(name, "Read docs/user/preconditions.md.")


def need_of_precondition(name: str) -> str:
    """Return what an unmet precondition asks for; its name where this version does not know it."""
    return _SENTENCES.get(name, name)


def protection_of_job(evaluated: Sequence[ActionRecoverability]) -> Protection | None:
    """Return how well a job is protected; None before its actions are evaluated."""
    if not evaluated:
        return None
    missing: dict[str, list[Action]] = {}
    messages: dict[str, str] = {}
    for action, one in _preconditions_with_status(evaluated, ConditionStatus.FALSE):
        missing.setdefault(one.name, []).append(action)
        messages.setdefault(one.name, one.message)
    unmet = tuple(
        MissingPrecondition(
            name=name, actions=tuple(actions), message=messages[name], remedy=remedy_of_precondition(name)
        )
        for name, actions in missing.items()
    )
    # A start script hides the trainer's flags: most jobs have some that nobody outside can see.
    hidden = {one.name for _, one in _preconditions_with_status(evaluated, ConditionStatus.UNKNOWN)} - missing.keys()
    told = {"unmet": unmet[:MOST_SHOWN], "unknown": _unknown_in_words(sorted(hidden))}
    return Protection.model_validate({name: value for name, value in told.items() if value})


def without_what_is_met(evaluated: Iterable[ActionRecoverability]) -> tuple[ActionRecoverability, ...]:
    """Return the evaluation as the status shows it: unmet preconditions by name, as `protection` explains each once."""
    return tuple(map(_evaluation_in_short, evaluated))


def _evaluation_in_short(one: ActionRecoverability) -> ActionRecoverability:
    shown = one.unmet if one.status == ConditionStatus.FALSE else ()
    unmet = tuple(UnmetPrecondition(name=unmet.name) for unmet in shown)
    if not one.message:
        return ActionRecoverability(action=one.action, status=one.status, unmet=unmet)
    return ActionRecoverability(action=one.action, status=one.status, message=one.message, unmet=unmet)


def protection_in_words(found: Protection) -> str:
    """Return what is missing, most of all, else that something is not known, in one line; empty where nothing is."""
    told = [f"{', '.join(one.actions)} would not work: {one.message or one.name} ({one.name})" for one in found.unmet]
    return "; ".join(told) or (f"{found.unknown.partition(':')[0]} (status.protection)" if found.unknown else "")


def _preconditions_with_status(
    evaluated: Iterable[ActionRecoverability], status: ConditionStatus
) -> Iterable[tuple[Action, UnmetPrecondition]]:
    return ((one.action, unmet) for one in evaluated if one.status == status for unmet in one.unmet)


def _unknown_in_words(names: Sequence[str]) -> str:
    if not names:
        return ""
    unseen, first = counted_noun(len(names), "precondition"), first_of_list(names, _NAMED_UNKNOWN)
    return f"{unseen} cannot be seen from outside, taken as met: {first}"
