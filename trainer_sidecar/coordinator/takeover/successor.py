"""Another MindIO controller for ranks that run: what a lost one costs is nothing but a moment without protection.

Every gate lets go of the former controller, the new one is wound on past what the ranks have seen, and the gates make
their ranks known to it; only when it knows all of them is it told of anything (docs/protocols/sidecar.md, "Another
controller"). A fault before that waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain

from hajob.domain.facts import CONTAINER_ENDED, NO_SUCCESSOR
from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.controller_protocol import HUNG
from trainer_sidecar.coordinator.attempt.controller_arguments import controller_arguments
from trainer_sidecar.coordinator.conversation.conversation import (
    FAILED_FOR_GOOD,
    MEMORY_FAULT,
    PROCESS_FAULT,
    SAVE_LEFT,
    EventKind,
    Found,
    MindIOEvent,
)
from trainer_sidecar.coordinator.conversation.effects import missing
from trainer_sidecar.coordinator.conversation.states import State
from trainer_sidecar.coordinator.repair import migration, resize
from trainer_sidecar.coordinator.repair.driver import FAULT_ACTIONS, carry_out, feed, open_incident
from trainer_sidecar.coordinator.repair.orders import REPAIRS, STRATEGIES
from trainer_sidecar.coordinator.state.controller_change import LAST_SERIAL, ChangePhase
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.state.roster import ALIVE, RankPod
from trainer_sidecar.coordinator.state.store_keeping import KeepingPhase
from trainer_sidecar.coordinator.takeover import partial_action, resumption
from trainer_sidecar.units import NANOSECONDS

log = logging.getLogger(__name__)

SPARE_SERIALS = 30
"""Wound on further than any gate that is heard has seen: one that is not may have passed more of the same action."""

ONE_INCIDENT = 20
"""So many serials the other controller must have left, or the next fault fails."""

LATE_SECONDS = 3.0
"""So much longer than its lease an agent may be deaf until the store is filled without what its pod has written."""

LOOK_SECONDS = 0.2
"""So often it is looked for ranks without a process: at every message of thousands of agents it would take too long."""

HANDLER_SECONDS = 180.0
"""MindIO's own limit for what a handler of the trainer does: what has not ended by then will not."""

RECONNECT_SECONDS = 20.0
"""A rank without a link dials for 15 s and then never again (docs/protocols/mindio.md 9.3)."""

TAKEOVER_SECONDS = 300.0
"""So long another controller may take until nobody waits for it any more: handlers of the trainer may run for
`HANDLER_SECONDS`, everything else takes seconds, each controller that cannot be wound on about ten."""

HELD_SECONDS = 5.0
"""So long a fault in between is not told: an operator of an older version could only start the job anew."""
THROUGH = frozenset({"recover", "retry", "upgrade", "migration"})
"""Of these the ranks tell by themselves that they are through."""

STORE_TEXT = "what was in the rendezvous store is lost with the coordinator's pod: no repair can end"
UNLINKED_TEXT = "its agent was away for more than 15 s, and it does not dial MindIO any more"
THROUGH_TEXT = "told by the ranks, which train again: the controller was lost before it could say so"


def begin(job: Job, *, adopted: bool = False) -> bool:
    """Begin the change to another controller: the one that every rank registered with is lost.

    Returns False when no other one can take its place.
    """
    if impossible(job):
        return False
    if job.change.is_under_way:
        job.change.again(job.controller.instance)
    else:
        job.change.begin(job.controller.instance, job.now, adopted=adopted)
        job.effects.hold(job.now, HELD_SECONDS)
        resize.hold(job)
        if adopted:
            keep_store(job)
    if job.controller.kind == HUNG:  # it may wake up, and would find all links gone
        job.effects.request("end", {})
    log.warning("the MindIO controller is lost: another one takes over")
    job.touch_all()
    job.effects.note(urgent=True)
    return True


def keep_store(job: Job) -> None:
    """Begin to collect what was in the store of ranks that an earlier coordinator started, unless it is still there."""
    number, controller = job.attempt.number, job.controller
    if controller.requested == number or controller.unfilled or not controller.has_store(number):
        job.keeping.begin(job.store, job.now)


def impossible(job: Job) -> str:
    """Return why no other controller can take the place of the lost one, as far as known at once; empty: one can."""
    attempt = job.attempt
    if not attempt.linked or attempt.over_since is not None:
        return "not every rank was registered, or one had left in order"
    if any(pod.reported and pod.gate is None for pod in job.roster.pods.values() if pod.counts):
        return "agents of an older version cannot make their ranks known to another one"
    if job.change.serial + SPARE_SERIALS + ONE_INCIDENT > LAST_SERIAL:
        return f"ranks have seen action {job.change.serial} of the {LAST_SERIAL} that MindIO can number"
    return ""


def lose(job: Job, text: str, *, for_good: bool = False) -> None:
    """Handle the loss of the controller.

    The operator is told when no other one can take its place in this pod (`for_good`).
    """
    if not job.runs or (job.without_mindio and not for_good):
        return
    before, again = job.conversation.state, job.change.is_under_way
    feed(job, MindIOEvent(EventKind.GONE), job.now)
    if job.conversation.state is not State.LOST or (before is State.LOST and not again):
        return
    if for_good:
        if again:
            job.change.end()
            job.effects.release()
        job.tell_controller_lost(text, job.now, code=CONTAINER_ENDED)
    elif not begin(job):
        _give_up(job, f"{text}; {impossible(job)}")


def lose_store(job: Job, text: str) -> None:
    """Handle the end of the store's process alone.

    Another pod's store is filled with what was in it, as after the loss of the pod.
    """
    if job.runs and job.attempt.over_since is None and job.conversation.state is not State.LOST:
        job.effects.request("end", {})
        lose(job, text, for_good=True)


def renew(job: Job) -> None:
    """Replace a controller that was told of a move which is given up, if another one can take its place.

    The call that takes a move back leaves a flag set in MindIO. At the next fault that MindIO finds itself, the flag
    makes it leave (docs/protocols/mindio.md §7.7).
    """
    if job.change.is_under_way or impossible(job):
        return
    feed(job, MindIOEvent(EventKind.GONE), job.now)
    job.conversation.unname(list(job.conversation.memory.named))
    if begin(job):
        job.effects.request("end", {})


def _give_up(job: Job, text: str) -> None:
    """Nobody protects the ranks until the job starts anew."""
    job.change.end()
    if job.keeping.holds:
        job.keeping.give_up("no other controller takes over")
    job.effects.release()
    job.tell_controller_lost(text, job.now, code=NO_SUCCESSOR)
    job.touch_all()


def is_hung(job: Job) -> bool:
    """Return whether the controller stands still, and another one can take its place: it is ended when that begins."""
    return job.controller.kind == HUNG and job.controller.serves(job.attempt.number) and not impossible(job)


def advance(job: Job) -> None:
    """Continue the change of the controller as far as possible now."""
    change = job.change
    if not change.is_under_way:
        if job.without_mindio and job.keeping.holds:
            _keep_store(job)
        return
    if job.attempt.over_since is not None:
        change.end()  # nothing is recovered from here on
        job.effects.release()
        return
    if job.now - change.since >= TAKEOVER_SECONDS:
        _give_up(
            job, f"no other MindIO controller came into service within {TAKEOVER_SECONDS:.0f} s: {_waits_for(job)}"
        )
        return
    _keep_store(job)
    let_go = not job.keeping.wanted and not _is_any_late(job, _has_let_go)
    if change.phase is ChangePhase.HOLDING and let_go and _stands_still(job):
        _decide(job)
    if change.phase is ChangePhase.OPENING:
        _open(job)
    if change.phase is ChangePhase.REGISTERING:
        _register(job)


def _is_any_late(job: Job, through: Callable[[Job, RankPod], bool]) -> bool:
    """Asked at every message of thousands of agents: the pod that was late is asked first, those after it next."""
    pods, begin = list(job.roster.pods.values()), job.change.late
    places = chain(range(begin, len(pods)), range(min(begin, len(pods))))
    late = next((place for place in places if not through(job, pods[place])), None)
    job.change.waits_for(late or 0)
    return late is not None


def _waits_for(job: Job) -> str:
    """What the change stands still for, for a person."""
    phase, controller = job.change.phase, job.controller
    if phase is ChangePhase.HOLDING:
        if job.keeping.wanted:
            return "what was in the rendezvous store is not known yet"
        return f"ranks still do what the former controller asked for{_late_pods(job, _has_let_go)}"
    if phase is ChangePhase.OPENING:
        if not controller.connected:
            return "the controller container does not answer"
        return f"none could be started: {controller.problem or controller.controller}"
    if job.keeping.holds:
        return "the rendezvous store could not be filled"
    return f"not every rank was made known to it{_late_pods(job, _makes_known)}"


def _late_pods(job: Job, through: Callable[[Job, RankPod], bool]) -> str:
    """The pods that are not that far yet, as the end of a sentence; at most three of thousands."""
    late = [pod.name for pod in job.roster.pods.values() if not through(job, pod)]
    more = f" and {len(late) - 3} more" if len(late) > 3 else ""
    return f" (pods {', '.join(late[:3])}{more})" if late else ""


def _keep_store(job: Job) -> None:
    """What was in the store is asked for, and told to another one.

    That is opened before the controller is: a handler may wait for the store, and the controller waits for handlers.
    """
    keeping, before = job.keeping, job.keeping.phase
    if keeping.wanted:
        if not all(_state(pod).keeps_store for pod in _gates(job)):
            keeping.give_up("agents of an older version do not keep what is written into it")
        keeping.follow([pod.uid for pod in job.roster.pods.values() if _may_tell(job, pod)], job.now)
    if keeping.phase is KeepingPhase.GATHERED and job.controller.has_store(job.attempt.number):
        keeping.listens()
    elif keeping.holds and job.controller.store in ("failed", "lost"):
        keeping.give_up(f"no other one can be opened: {job.controller.problem}")
    elif job.controller.connected and keeping.asks(job.now, job.setup.limits.controller_retry_seconds):
        job.effects.request("store", controller_arguments(job))
    if keeping.phase is not before:
        job.touch_all()


def _may_tell(job: Job, pod: RankPod) -> bool:
    """Whether what its processes have written may still be heard; one that cannot be reached gets a moment more."""
    if job.hears(pod) and pod.reported:
        return pod.gate is not None
    return not job.contacts.expired(pod.uid, job.now, LATE_SECONDS)


def _has_let_go(job: Job, pod: RankPod) -> bool:
    """Its agent says that no link goes to a controller, or nothing can pass its gate any more."""
    if pod.gate is not None and pod.connected and pod.reported and not pod.gate.controller:
        return True
    return job.contacts.expired(pod.uid, job.now)


def _stands_still(job: Job) -> bool:
    """Whether every rank has come as far as the former controller's words lead it, or will come no further."""
    change = job.change
    if change.untold and job.now - change.looked < LOOK_SECONDS:
        return False
    change.has_looked(job.now)
    if not partial_action.is_told(job):
        return False
    lost = missing(job.conversation.memory) or _ordered(job)
    partial_action.start_once_more(job, lost)
    return partial_action.is_half_repaired(job, lost) or not _handlers_run(job)


def _handlers_run(job: Job) -> bool:
    """Whether a rank does what the former controller asked for: its answer tells how far it is, and it ends once."""
    if job.now - job.change.since >= HANDLER_SECONDS:
        return False
    busy = [one.rank for pod in _gates(job) for one in _state(pod).told if one.busy]
    return any(job.roster.phase(rank) in ALIVE for rank in busy)


def _decide(job: Job) -> None:
    """Nothing moves any more: how far are the ranks, and can another controller go on from there?"""
    said = {one.rank: one for pod in _gates(job) for one in _state(pod).told if job.roster.pod_of(one.rank) is pod}
    moving = _settle_a_move(job)
    resize.settle(job, said)
    dropped = job.roster.dropped
    told = {rank: set(one.answered) for rank, one in said.items() if one.answered and rank not in dropped}
    job.conversation.miss(dict.fromkeys(_unsaid(job, said), PROCESS_FAULT))
    if job.change.adopted and any(told.values()):
        job.conversation.miss(_ordered(job))
    half = partial_action.is_half_repaired(job, missing(job.conversation.memory))
    row = resumption.resumption(resumption.RepairProgress(told, _processes_lost(job), moving, half))
    outcomes = resumption.Resumption
    if row.outcome is outcomes.IMPOSSIBLE or (row.outcome is outcomes.SAVE and job.order is None):
        if moving:
            _fail(job, f"the move cannot end: {row.reason}")
        _give_up(job, f"the MindIO controller is gone: {row.reason}")
        return
    job.change.opens(
        trains=row.outcome is outcomes.TRAINING,
        repaired=row.outcome is outcomes.REPAIRED,
        paused=row.outcome is outcomes.PAUSED,
        saves=row.reason if row.outcome is outcomes.SAVE else "",
    )
    log.warning("the ranks are %s, and no controller has a link to them", row.fits)


def _unsaid(job: Job, said: Collection[int]) -> Iterator[int]:
    """Ranks whose process has not registered: it is a successor that waits, and nobody was told of the death before."""
    for pod in job.roster.pods.values():
        for rank in job.roster.ranks_of(pod.node_rank):
            if rank in said or job.roster.pod_of(rank) is not pod or not job.hears(pod):
                continue
            if job.roster.phase(rank) in ALIVE:
                yield rank


def _settle_a_move(job: Job) -> bool:
    """Second processes that have not taken over begin anew; whether there are any."""
    roster = job.roster
    if not roster.spares:
        return False
    second = {target.pod_uid for target in roster.spares.values()}
    said = [one for pod in _gates(job) if pod.uid in second for one in _state(pod).told]
    trains = {one.rank for one in said if one.repaired and not one.answered}
    if trains.issuperset(roster.spares):
        migration.take_over(job)
        return False
    migration.begin_anew(job, {one.rank for one in said})
    job.conversation.unname(roster.spares)
    return True


def _fail(job: Job, text: str) -> None:
    """The ranks stand still for what was ordered, and nobody can let them go: only a start anew is left."""
    assert job.order is not None
    open_incident(job, job.order.incarnation, planned=True)
    failed = pb.Milestone(result_code=FAILED_FOR_GOOD, text=text, strategy=STRATEGIES.get(job.order.action, ""))
    job.mark(pb.RESULT, job.now, failed)


def _ordered(job: Job) -> dict[int, int]:
    """Ranks whose repair was ordered and, as the others stand still, is not through."""
    order = job.order
    if order is None or order.action not in FAULT_ACTIONS:
        return {}
    if order.action == pb.RETRY:
        return dict.fromkeys(order.lost_ranks, MEMORY_FAULT)
    ranks = job.roster.ranks_of_nodes(order.replaced_nodes).union(order.restart_ranks, order.lost_ranks)
    return dict.fromkeys(ranks, PROCESS_FAULT)


def _gates(job: Job) -> Iterator[RankPod]:
    return (pod for pod in job.roster.pods.values() if pod.gate is not None and job.hears(pod))


def _state(pod: RankPod) -> pb.GateState:
    return pod.gate if pod.gate is not None else pb.GateState()


def _alive(job: Job) -> Iterator[tuple[int, RankPod]]:
    for rank in range(job.roster.world_size):
        pod = job.roster.pod_of(rank)
        if pod is not None and job.roster.phase(rank) in ALIVE:
            yield rank, pod


def _processes_lost(job: Job) -> set[int]:
    return {rank for rank, kind in missing(job.conversation.memory).items() if kind == PROCESS_FAULT}


def _open(job: Job) -> None:
    controller, change, number = job.controller, job.change, job.attempt.number
    if controller.serves(number) and controller.instance != change.former and change.asked:
        log.info("another MindIO controller serves; gates make their ranks known to it")
        change.registers(job.now)
        job.touch_all()
        return
    if not controller.connected or (controller.controller == "starting" and controller.instance != change.former):
        return
    if change.asked and job.now - controller.requested_at < job.setup.limits.controller_again_seconds:
        return
    change.ask()
    wind = {"serials": change.serial + SPARE_SERIALS, "counter": change.counter + 1}
    arguments = {**controller_arguments(job), "wind": wind}
    controller.asked_for(number, "start", arguments, job.now)
    job.effects.request("start", arguments)


def _register(job: Job) -> None:
    change, roster = job.change, job.roster
    if job.now - change.looked < LOOK_SECONDS and _is_any_late(job, _makes_known):
        return
    change.has_looked(job.now)
    if job.now - change.serves_since >= RECONNECT_SECONDS:
        _miss_the_unlinked(job)
    absent = set(_absent(job))
    stand_ins = {rank: uid for rank in absent if (uid := _spokesman(job, rank))}
    if absent != change.absent or stand_ins != change.stand_ins:
        for rank in absent:
            if (target := roster.targets.get(rank)) is not None:
                target.hold()
        change.lacks(absent, stand_ins)
        job.touch_all()
    instance = job.controller.instance
    known = {rank for pod in _gates(job) if _state(pod).controller == instance for rank in _state(pod).registered}
    if job.keeping.holds or not known.issuperset(range(roster.world_size)):
        return
    _in_service(job)


def _makes_known(job: Job, pod: RankPod) -> bool:
    """Whether its gate, if it is there to do so, has made its ranks known."""
    if pod.over or pod.gate is None or not job.hears(pod):
        return True
    known = pod.gate.controller == job.controller.instance
    return known and set(job.roster.ranks_of(pod.node_rank)).issubset(pod.gate.registered)


def _miss_the_unlinked(job: Job) -> None:
    """Ranks that had registered, and have given MindIO up, are lost: their agent was away for too long."""
    said = {one.rank: pod for pod in _gates(job) for one in _state(pod).told}
    known = missing(job.conversation.memory)
    alive = ((rank, pod) for rank, pod in _alive(job) if job.roster.phase(rank) == pb.STARTING and rank not in known)
    lost = {rank: PROCESS_FAULT for rank, pod in alive if said.get(rank) is pod}
    if lost:
        job.conversation.miss(lost)
        carry_out(job, [Found(lost, {}, UNLINKED_TEXT)], job.now)


def _absent(job: Job) -> Iterable[int]:
    """Ranks whose process is gone or not repaired yet: of them the controller hears as they were."""
    there = {rank for rank, pod in _alive(job) if job.hears(pod)}
    there -= set() if _is_through(job) else _processes_lost(job)
    return (rank for rank in range(job.roster.world_size) if rank not in there)


def _spokesman(job: Job, rank: int) -> str:
    """The pod whose agent makes the rank known: its own, else any other; empty: none is there."""
    own = job.roster.pod_of(rank)
    others = (pod for pod in job.roster.there() if job.hears(pod) and pod.gate is not None)
    if own is not None and own.counts and job.hears(own) and own.gate is not None:
        return own.uid
    before = job.change.stand_ins.get(rank)
    uids = [pod.uid for pod in others]
    return before if before in uids else next(iter(uids), "")


def _is_through(job: Job) -> bool:
    """Whether the last thing that the former controller did was to let the repaired ranks train again."""
    conversation = job.conversation
    is_repair = conversation.memory.strategy in THROUGH and not conversation.memory.late
    return (
        job.change.trains
        and is_repair
        and not job.change.smaller
        and not job.roster.spares
        and all(job.roster.phase(rank) in ALIVE for rank in conversation.memory.named)
    )


def _repairs(job: Job) -> bool:
    """Whether the other controller is about to go on with what ends in the store."""
    order = job.order
    if order is None or not missing(job.conversation.memory):
        return False
    return order.action in REPAIRS or (job.change.smaller and order.action in resize.SIZES)


def _why_undone(job: Job) -> str:
    """Why what was ordered cannot be done by the other controller either; empty: it can."""
    store = STORE_TEXT if job.change.adopted and job.keeping.phase is KeepingPhase.LOST else ""
    why = job.change.saves or store
    if not why or not _repairs(job):
        return ""
    assert job.order is not None
    job.change.leaves_undone(job.order.incarnation, job.order.revision)
    return why


def _leave_undone(job: Job, why: str) -> None:
    """Ask for another decision: the step can be saved, unless a rank waits for its clean."""
    assert job.order is not None
    open_incident(job, job.order.incarnation, planned=job.change.smaller)
    answered = [set(one.answered) for pod in _gates(job) for one in _state(pod).told]
    stands = any(resumption.STOPPED in done and resumption.CLEANED not in done for done in answered)
    code = FAILED_FOR_GOOD if stands else SAVE_LEFT
    failed = pb.Milestone(result_code=code, text=why, strategy=STRATEGIES[job.order.action])
    job.mark(pb.RESULT, job.now, failed)


def _in_service(job: Job) -> None:
    job.effects.request("known", {})
    through, adopted = _is_through(job), job.change.adopted
    heard = job.change.end()
    seconds = job.now - job.change.since
    log.warning("another MindIO controller knows every rank, %.3f s after the loss was known", seconds)
    milestone = pb.Milestone(kind=pb.TAKEN_OVER, duration_nanoseconds=int(seconds * NANOSECONDS))
    milestone.store_kept = job.keeping.is_kept
    job.mark(pb.TAKEN_OVER, job.now, milestone)
    job.roster.register_only(set(range(job.roster.world_size)))
    if adopted and not missing(job.conversation.memory) and job.order is not None:
        if job.change.paused and job.order.action in (pb.PAUSE, pb.CONTINUE):
            open_incident(job, job.order.incarnation, planned=True)
        elif job.order.action != pb.CHECKPOINT:  # what was saved to its end has left nobody to take over
            job.incidents.conclude_up_to(job.order.incarnation)  # it was carried out, or there is nothing to carry out
    undone = _why_undone(job)
    strategy = job.conversation.memory.strategy if through else "pause" if job.change.paused else ""
    event = MindIOEvent(EventKind.TAKEN_OVER, strategy=strategy)
    feed(job, event, job.now)
    if through:
        feed(job, MindIOEvent(EventKind.SUCCESS, text=THROUGH_TEXT, strategy=event.strategy), job.now)
    for event, at in heard:
        feed(job, event, at)
    if undone:
        _leave_undone(job, undone)
    job.effects.release()
    job.touch_all()
    job.effects.note(urgent=True)
