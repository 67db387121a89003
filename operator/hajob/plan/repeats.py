"""Failures that repeat: the same rank at the same step once more is the program's doing, and so is the same exception.

A process that ends, or a fault that MindIO reports, looks alike whether the machine or the program caused it, and the
first time it counts as the machine's. A machine fails at a random step; a program, its data or its memory limit fail
at the same one again. What the machine explains is never held against the program (docs/admin/operations.md#repeats).
"""

from __future__ import annotations

import re
from typing import Final

from hajob.domain.facts import TAKEN_PODS, Fact, FactKind
from hajob.plan.state import Failure, JobState
from hajob.plan.view import ClusterView

STEP_TOLERANCE: Final = 1
"""Steps by which two failures at the same step may differ: a step that has just ended may be told a moment later."""
CERTAIN_COUNT: Final = 3
"""Failures at one step after which the program is held to be the cause, even where a broken node would look alike."""
RANKS_OF_A_FACT: Final = 16
"""Ranks of one fact that are remembered: of thousands that fail together any few are enough to know it again."""
FAILURE_LIMIT: Final = 64

_OUT_OF_MEMORY: Final = "OOMKilled"
_MAYBE_PROGRAM: Final = frozenset(
    {FactKind.PROCESS_EXITED, FactKind.PROCESS_FAULT, FactKind.HANG, FactKind.HEARTBEAT_SILENT, FactKind.POD_FAILED}
)
"""Kinds that look alike whether the machine or the program caused them."""
_NO_FAILURE: Final = frozenset(
    {
        FactKind.LOG_RULE,
        FactKind.SCRIPT_ENDED,
        FactKind.CONTROLLER_LOST,
        FactKind.POD_UNSTARTABLE,
        FactKind.PORT_TAKEN,
        FactKind.CORDONED,
    }
)
"""Kinds that tell nothing of a rank's machine: their cause is known, or nothing has failed."""
_DEVICE_WORDS: Final = re.compile(
    r"UCE ?ERROR|\bECC\b|LINK ERROR|SUSPECT (?:MEM|REMOTE)|HCCL|HCCS|\bhbm\b|\bERR\d{5}\b|\bE[A-Z]\d{4}\b"
    r"|\b(?:507|107)\d{3}\b|aicore|acl\w* (?:api|error)|Ascend|\bNPU\b|\bdevice\b|FORCE STOP",
    re.IGNORECASE,
)
"""Words of torch_npu, CANN and HCCL: an exception with one of them may be the machine's, whatever its type."""


def may_be_the_programs(fact: Fact) -> bool:
    """Return whether the program may have caused a fact that counts as the machine's the first time."""
    if fact.kind is FactKind.POD_FAILED:
        return not fact.takes_only_the_pod and (fact.code not in TAKEN_PODS or fact.code == _OUT_OF_MEMORY)
    return fact.kind in _MAYBE_PROGRAM


def step_of_failure(fact: Fact, view: ClusterView) -> int:
    """Return the last step that had ended: of an attempt that has not trained, the one it was to go on from."""
    step = max(view.step, fact.step if fact.step is not None else -1)
    return step if step >= 0 or view.checkpoint_step is None else view.checkpoint_step


def is_failure_repeated(fact: Fact, ranks: tuple[int, ...], state: JobState, view: ClusterView) -> bool:
    """Return whether a rank of this fact has failed at this step before, and no machine can be the reason.

    Args:
        fact: that is new and concerns the job.
        ranks: that it loses.
        state: of the job before this fact.
        view: of the cluster now.
    """
    if not may_be_the_programs(fact):
        return False
    step, known = step_of_failure(fact, view), {failure.rank: failure for failure in state.failures}
    for rank in ranks[:RANKS_OF_A_FACT]:
        before = known.get(rank)
        if before is None or not before.count or _is_same_process(before, fact, rank, state, view):
            continue
        if abs(before.step - step) <= STEP_TOLERANCE and _excludes_the_machine(before, fact, rank, state, view):
            return True
    return _has_words_of_its_own(fact) and any(
        failure.kind is FactKind.PROCESS_FAULT
        and failure.count
        and abs(failure.step - step) <= STEP_TOLERANCE
        and _is_of_an_earlier_try(failure, state)
        for failure in state.failures
    )


def _has_words_of_its_own(fact: Fact) -> bool:
    """Whether a rank has raised an exception that no device explains."""
    return fact.kind is FactKind.PROCESS_FAULT and not fact.unexplained and not _DEVICE_WORDS.search(fact.message)


def _is_of_an_earlier_try(failure: Failure, state: JobState) -> bool:
    """Whether all ranks have been started anew since, or have trained: of one incident many ranks tell.

    An exception in the loop is raised by every rank, and which one MindIO hears first is chance.
    """
    return failure.incarnation < state.base or state.resumed_ms > failure.time_ms


def _excludes_the_machine(before: Failure, fact: Fact, rank: int, state: JobState, view: ClusterView) -> bool:
    """Whether a broken node or chip would not look like this: see docs/admin/operations.md#repeats for each case."""
    moved = bool(before.node_name) and _name_of_node(rank, view) not in {"", before.node_name}
    trained = state.resumed_ms > before.time_ms
    return moved or trained or _has_words_of_its_own(fact) or before.count + 1 >= CERTAIN_COUNT


def remember_failure(
    fact: Fact, ranks: tuple[int, ...], state: JobState, view: ClusterView, now_ms: int
) -> tuple[Failure, ...]:
    """Return `state.failures` with this fact's; a fault of the machine sets the count of its ranks back to 0."""
    if fact.kind in _NO_FAILURE or not ranks:
        return state.failures
    step, known = step_of_failure(fact, view), {failure.rank: failure for failure in state.failures}
    by_machine = not may_be_the_programs(fact)
    for rank in ranks[:RANKS_OF_A_FACT]:
        last = known.get(rank)
        if last is not None and not by_machine and _is_same_process(last, fact, rank, state, view):
            continue
        repeated = last is not None and last.count > 0 and abs(last.step - step) <= STEP_TOLERANCE
        count = 0 if by_machine else 1 + (last.count if last is not None and repeated else 0)
        known.pop(rank, None)  # to the end: the oldest are forgotten first
        place = _incarnation(rank, state, view), _name_of_node(rank, view)
        known[rank] = Failure(rank, step, count, fact.kind, *place, now_ms)
    return tuple(known.values())[-FAILURE_LIMIT:]


def _is_same_process(last: Failure, fact: Fact, rank: int, state: JobState, view: ClusterView) -> bool:
    """Whether another observer tells of the process whose failure, or whose machine's, is remembered already."""
    return last.kind is not fact.kind and last.incarnation == _incarnation(rank, state, view)


def _incarnation(rank: int, state: JobState, view: ClusterView) -> int:
    return state.incarnation_of(rank, rank // view.layout.chips_per_node)


def _name_of_node(rank: int, view: ClusterView) -> str:
    return view.node_names.get(rank // view.layout.chips_per_node, "")
