"""What the lost controller had told some ranks, and had not come to tell the others.

It gives an action to one rank after the other, and ends in between. Those that have it wait for those that have not:
in a rebuild for their groups, at the end of a repair in the next step. So where all are given the same bytes, the
gates give them to the rest, and everybody stands where the action leads. Of a repair each has a part of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.conversation.conversation import PROCESS_FAULT
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.state.roster import ALIVE, RankTarget
from trainer_sidecar.coordinator.takeover.resumption import (
    DOWNGRADED,
    PAUSED,
    REPAIRED,
    ROLLED_BACK,
    ROLLED_BACK_LARGER,
)

REPAIR, NORMAL, GO_ON = 21, 25, 15
NEEDED = {NORMAL: frozenset({ROLLED_BACK, DOWNGRADED, ROLLED_BACK_LARGER}), GO_ON: frozenset({PAUSED})}
"""What a process has answered before such an action; one that has not is younger than what the others did."""

TELLING_SECONDS = 20.0
"""After the loss; who has not had the word by then does not get it."""


def is_word_complete(job: Job) -> bool:
    """Return whether every rank has what the former controller was telling all; tell those who lack it."""
    change = job.change
    word = next((gate.word for gate in _gates_at_highest_serial(job) if gate.word), b"")
    late = job.now - change.since >= TELLING_SECONDS
    untold = frozenset(_ranks_without_word(job)) if word and not late and not job.roster.spares else frozenset()
    if untold != change.untold:
        change.complete_word(word, untold)
        job.touch_all_pods()
    return not untold


def is_half_repaired(job: Job, lost: Collection[int]) -> bool:
    """Return whether ranks give their data to successors that were not told to take them."""
    asked = _ranks_asked_to_repair(job)
    unasked = {one.rank for one in _present_processes(job) if one.rank not in asked and REPAIRED not in one.answered}
    return bool(asked.difference(lost)) and not unasked.isdisjoint(lost)


def restart_stuck_successors(job: Job, lost: dict[int, int]) -> None:
    """Replace successors that wait for data nobody was told to give."""
    asked = _ranks_asked_to_repair(job)
    if asked.difference(lost):
        return
    for rank in asked - {one.rank for one in _present_processes(job) if REPAIRED in one.answered}:
        target, pod = job.roster.targets.get(rank), job.roster.pod_of_rank(rank)
        if target is None or pod is None or not job.roster.is_desired_process(pod, rank, pod.views[rank].process_name):
            continue  # it is being started
        if target.run and lost[rank] == PROCESS_FAULT:
            job.roster.set_target(rank, RankTarget(target.incarnation, target.start + 1, target.pod_uid))
            job.touch_pod_of(rank)


def _gates_at_highest_serial(job: Job) -> Iterator[pb.GateState]:
    """Gates that have passed the action with the highest serial of all."""
    for pod in job.roster.pods.values():
        if pod.gate is not None and job.is_agent_heard(pod) and pod.gate.serial == job.change.serial:
            yield pod.gate


def _present_processes(job: Job) -> Iterator[pb.RankActions]:
    """Processes that take part, and have registered."""
    roster = job.roster
    for pod in roster.pods.values():
        for one in pod.gate.told if pod.gate is not None and job.is_agent_heard(pod) else ():
            is_there = roster.pod_of_rank(one.rank) is pod and roster.phase_of_rank(one.rank) in ALIVE
            if is_there and one.rank not in roster.dropped:
                yield one


def _ranks_without_word(job: Job) -> Iterator[int]:
    action = next((gate.action for gate in _gates_at_highest_serial(job)), 0)
    for one in _present_processes(job):
        is_younger = _has_newer_process(job, one.rank) or (action in NEEDED and NEEDED[action].isdisjoint(one.answered))
        if not is_younger and (one.serial < job.change.serial or action == NORMAL):
            yield one.rank


def _has_newer_process(job: Job, rank: int) -> bool:
    """Whether its successor has died as well: the process of now is another one than the former controller knew."""
    target = job.roster.targets.get(rank)
    return rank in job.conversation.memory.late or (target is not None and target.start > 0)


def _ranks_asked_to_repair(job: Job) -> set[int]:
    if not any(gate.action == REPAIR for gate in _gates_at_highest_serial(job)):
        return set()
    return {one.rank for one in _present_processes(job) if one.serial == job.change.serial}
