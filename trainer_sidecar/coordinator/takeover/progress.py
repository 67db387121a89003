"""How far gates, ranks and the new controller are: the questions that the takeover's guards and effects share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.conversation.conversation import MEMORY_FAULT, PROCESS_FAULT
from trainer_sidecar.coordinator.conversation.effects import unrepaired_ranks
from trainer_sidecar.coordinator.repair.driver import FAULT_ACTIONS
from trainer_sidecar.coordinator.state.controller_change import LAST_SERIAL, ChangePhase
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.state.roster import ALIVE, RankPod

SPARE_SERIALS = 30
"""Safety margin on the serial counter: a gate that cannot be reached may have passed more messages than those that can.
The longest action, a growth, takes about a dozen."""

ONE_INCIDENT = 20
"""Serials that the new controller must have left; with fewer, the next recovery runs out in the middle."""

THROUGH = frozenset({"recover", "retry", "upgrade", "migration"})
"""Strategies whose end the ranks themselves tell: they train again."""

UNREADABLE_TEXT = (
    "ranks speak to MindIO in a way that the gates cannot read, so nobody could make them known to another controller; "
    "the agents' logs show the first such bytes"
)

MANAGER_TEXT = "it was in TaskD's manager, and another one knows none of TaskD's agents"


def why_impossible(job: Job) -> str:
    """Say why no other controller can take the place of the lost one, as far as known at once; empty: one can."""
    attempt = job.attempt
    if job.setup.is_followed:
        return MANAGER_TEXT
    if not attempt.linked or attempt.over_since is not None:
        return "not every rank was registered, or one had left in order"
    pods = [pod for pod in job.roster.pods.values() if pod.is_current]
    if any(pod.reported and pod.gate is None for pod in pods):
        return "agents of an older version cannot make their ranks known to another one"
    if any(gate_state(pod).unreadable for pod in pods):
        return UNREADABLE_TEXT
    if job.change.serial + SPARE_SERIALS + ONE_INCIDENT > LAST_SERIAL:
        return f"ranks have seen action {job.change.serial} of the {LAST_SERIAL} that MindIO can number"
    return ""


def gate_state(pod: RankPod) -> pb.GateState:
    """Return what the pod's agent says of its gate; an empty state while it has said nothing."""
    return pod.gate if pod.gate is not None else pb.GateState()


def heard_gates(job: Job) -> Iterator[RankPod]:
    """Yield the pods whose agents are heard and tell of their gates."""
    return (pod for pod in job.roster.pods.values() if pod.gate is not None and job.is_agent_heard(pod))


def told_ranks(job: Job) -> Iterator[tuple[RankPod, pb.RankActions]]:
    """Yield what each heard gate tells of the ranks that have registered there."""
    return ((pod, one) for pod in heard_gates(job) for one in gate_state(pod).told)


def is_any_late(job: Job, is_through: Callable[[Job, RankPod], bool]) -> bool:
    """Return whether a pod is not through yet.

    Asked at every message of thousands of agents, so the pod that was late last time is asked first.
    """
    pods, begin = list(job.roster.pods.values()), job.change.late
    places = chain(range(begin, len(pods)), range(min(begin, len(pods))))
    late = next((place for place in places if not is_through(job, pods[place])), None)
    job.change.start_next_check_at(late or 0)
    return late is not None


def has_let_go(job: Job, pod: RankPod) -> bool:
    """Return whether no link of the pod goes to a controller, as its agent says or because its lease is over."""
    if pod.gate is not None and pod.connected and pod.reported and not pod.gate.controller:
        return True
    return job.contacts.is_lease_expired(pod.uid, job.now)


def has_made_known(job: Job, pod: RankPod) -> bool:
    """Return whether the pod's gate, if it is there to do so, has made its ranks known to the new controller."""
    if pod.over or pod.gate is None or not job.is_agent_heard(pod):
        return True
    known = pod.gate.controller == job.controller.instance
    return known and set(job.roster.ranks_of_node(pod.node_rank)).issubset(pod.gate.registered)


def living_ranks(job: Job) -> Iterator[tuple[int, RankPod]]:
    """Yield each rank whose process lives, with its pod."""
    for rank in range(job.roster.world_size):
        pod = job.roster.pod_of_rank(rank)
        if pod is not None and job.roster.phase_of_rank(rank) in ALIVE:
            yield rank, pod


def ranks_without_process(job: Job) -> set[int]:
    """Return the ranks whose process MindIO was told of as dead, and that are not repaired."""
    return {rank for rank, kind in unrepaired_ranks(job.conversation.memory).items() if kind == PROCESS_FAULT}


def ranks_in_repair(job: Job) -> dict[int, int]:
    """Return rank -> fault type of a repair that was ordered and, as the others stand still, is not through."""
    order = job.order
    if order is None or order.action not in FAULT_ACTIONS:
        return {}
    if order.action == pb.RETRY:
        return dict.fromkeys(order.lost_ranks, MEMORY_FAULT)
    ranks = job.roster.ranks_of_nodes(order.replaced_nodes).union(order.restart_ranks, order.lost_ranks)
    return dict.fromkeys(ranks, PROCESS_FAULT)


def ranks_to_stand_in_for(job: Job) -> Iterable[int]:
    """Return the ranks whose process is gone or not repaired yet: the controller hears of them as they were."""
    there = {rank for rank, pod in living_ranks(job) if job.is_agent_heard(pod)}
    there -= set() if was_repair_through(job) else ranks_without_process(job)
    return (rank for rank in range(job.roster.world_size) if rank not in there)


def was_repair_through(job: Job) -> bool:
    """Return whether the last thing that the former controller did was to let the repaired ranks train again."""
    memory = job.conversation.memory
    is_repair = memory.strategy in THROUGH and not memory.late
    return (
        job.change.trains
        and is_repair
        and not job.change.smaller
        and not job.roster.spares
        and all(job.roster.phase_of_rank(rank) in ALIVE for rank in memory.named)
    )


def describe_awaited(job: Job) -> str:
    """Say for a person what the takeover waits for."""
    phase, controller = job.change.phase, job.controller
    if phase is ChangePhase.HOLDING:
        if job.keeping.wanted_word:
            return "what was in the rendezvous store is not known yet"
        return f"ranks still do what the former controller asked for{_describe_late_pods(job, has_let_go)}"
    if phase is ChangePhase.OPENING:
        if not controller.connected:
            return "the controller container does not answer"
        return f"none could be started: {controller.problem or controller.controller}"
    if job.keeping.is_store_held:
        return "the rendezvous store could not be filled"
    return f"not every rank was made known to it{_describe_late_pods(job, has_made_known)}"


def _describe_late_pods(job: Job, is_through: Callable[[Job, RankPod], bool]) -> str:
    """The pods that are not that far yet, as the end of a sentence; at most three of thousands."""
    late = [pod.name for pod in job.roster.pods.values() if not is_through(job, pod)]
    more = f" and {len(late) - 3} more" if len(late) > 3 else ""
    return f" (pods {', '.join(late[:3])}{more})" if late else ""
