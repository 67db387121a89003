"""Effects of the takeover's rows: each changes the job. Its first line stands in docs/internals/takeover.md."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator

from hajob.domain.facts import CONTAINER_ENDED, NO_SUCCESSOR
from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.controller_protocol import HUNG
from trainer_sidecar.coordinator.attempt.controller_arguments import controller_arguments
from trainer_sidecar.coordinator.conversation.conversation import (
    FAILED_FOR_GOOD,
    PROCESS_FAULT,
    SAVE_LEFT,
    EventKind,
    Found,
    MindIOEvent,
)
from trainer_sidecar.coordinator.conversation.effects import unrepaired_ranks
from trainer_sidecar.coordinator.repair import migration, resize
from trainer_sidecar.coordinator.repair.driver import carry_out_commands, feed_conversation, open_incident
from trainer_sidecar.coordinator.repair.orders import REPAIRS, STRATEGIES
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.state.roster import ALIVE, RankPod
from trainer_sidecar.coordinator.state.store_keeping import KeepingPhase
from trainer_sidecar.coordinator.takeover import partial_action, progress, resumption
from trainer_sidecar.coordinator.takeover.guards import TAKEOVER_SECONDS
from trainer_sidecar.units import NANOSECONDS

log = logging.getLogger(__name__)

LATE_SECONDS = 3.0
"""How much longer than its lease an agent may be deaf until the store is filled without what its pod has written: as
long as makes an agent count as silent."""

RECONNECT_SECONDS = 20.0
"""A rank without a link dials for 15 s and then never again (docs/protocols/mindio.md 9.3)."""

HELD_SECONDS = 5.0
"""Delay before a fault found during a takeover is reported: an operator of an older version would restart the job at
once. Most takeovers have ended by then."""

STORE_TEXT = "what was in the rendezvous store is lost with the coordinator's pod: no repair can end"
UNLINKED_TEXT = "its agent was away for more than 15 s, and it does not dial MindIO any more"
THROUGH_TEXT = "told by the ranks, which train again: the controller was lost before it could say so"


# -- the beginning --------------------------------------------------------------------------------------------------


def change_phase_only(_job: Job, _text: str) -> None:
    """Change the phase only."""


def begin_takeover(job: Job, _text: str) -> None:
    """Have every gate let go of the lost controller; report no fault for 5 s."""
    _begin_change(job, adopted=False)


def begin_for_adopted(job: Job, _text: str) -> None:
    """Have the gates let go of the controller that an earlier coordinator had, and collect what was in its store."""
    _begin_change(job, adopted=True)


def begin_instead_of_a_move(job: Job, text: str) -> None:
    """Have the gates let go of the controller that was told of the move, and end it."""
    begin_takeover(job, text)
    job.effects.request_call("end", {})


def begin_once_more(job: Job, _text: str) -> None:
    """Have the gates let go of the new controller, which is lost as well."""
    job.change.restart_change(job.controller.instance)
    _let_go_of_controller(job)


def _begin_change(job: Job, *, adopted: bool) -> None:
    job.change.begin_change(job.controller.instance, job.now, adopted=adopted)
    job.effects.hold_back(job.now, HELD_SECONDS)
    resize.hold_growth_open(job)
    if adopted:
        gather_store(job)
    _let_go_of_controller(job)


def _let_go_of_controller(job: Job) -> None:
    if job.controller.kind == HUNG:  # it may wake up, and would find all links gone
        job.effects.request_call("end", {})
    log.warning("the MindIO controller is lost: another one takes over")
    job.touch_all_pods()
    job.effects.note_change(urgent=True)


# -- the end without another controller -----------------------------------------------------------------------------


def refuse_takeover(job: Job, text: str) -> None:
    """Report the loss and why nobody takes over: no fault is recovered until the job starts anew."""
    _give_up_takeover(job, f"{text}; {progress.why_impossible(job)}")


def end_silently(job: Job, _text: str) -> None:
    """End the takeover without a word."""
    job.change.end_change()
    job.effects.release_held()


def give_up_overdue(job: Job, _text: str) -> None:
    """Report that nobody took over in time, and what was waited for."""
    seconds = f"{TAKEOVER_SECONDS:.0f} s"
    _give_up_takeover(
        job, f"no other MindIO controller came into service within {seconds}: {progress.describe_awaited(job)}"
    )


def give_up_repair(job: Job, _text: str) -> None:
    """Report that no other controller can go on, and why; a move that is under way has failed."""
    why = job.change.impossible or job.change.saves
    if job.roster.spares:
        _fail_order(job, f"the move cannot end: {why}")
    _give_up_takeover(job, f"the MindIO controller is gone: {why}")


def leave_off_with_the_container(job: Job, text: str) -> None:
    """End the takeover, and report that the container has ended."""
    end_silently(job, text)
    tell_container_ended(job, text)


def tell_container_ended(job: Job, text: str) -> None:
    """Report that the container has ended: another one comes with another pod."""
    job.tell_controller_lost(text, job.now, code=CONTAINER_ENDED)


def _give_up_takeover(job: Job, text: str) -> None:
    job.change.end_change()
    if job.keeping.is_store_held:
        job.keeping.give_up_store("no other controller takes over")
    job.effects.release_held()
    job.tell_controller_lost(text, job.now, code=NO_SUCCESSOR)
    job.touch_all_pods()


def _fail_order(job: Job, text: str) -> None:
    """The ranks stand still for what was ordered, and nobody can let them go: only a start anew is left."""
    assert job.order is not None
    open_incident(job, job.order.incarnation, planned=True)
    failed = pb.Milestone(result_code=FAILED_FOR_GOOD, text=text, strategy=STRATEGIES.get(job.order.action, ""))
    job.mark_milestone(pb.RESULT, job.now, failed)


# -- the store ------------------------------------------------------------------------------------------------------


def gather_store(job: Job) -> None:
    """Collect what was in the store of ranks that an earlier coordinator started, unless it is still there."""
    number, controller = job.attempt.number, job.controller
    if controller.requested == number or controller.unfilled or not controller.has_store(number):
        job.keeping.begin_gathering(job.store_name, job.now)


def refill_store(job: Job, _text: str = "") -> None:
    """Collect what was in a lost store, and have another one opened and filled.

    It is opened before the controller is: a handler may wait for the store, and the controller waits for handlers.
    """
    keeping, before = job.keeping, job.keeping.phase
    if keeping.wanted_word:
        if not all(progress.gate_state(pod).keeps_store for pod in progress.heard_gates(job)):
            keeping.give_up_store("agents of an older version do not keep what is written into it")
        keeping.finish_gathering([pod.uid for pod in job.roster.pods.values() if _may_tell_of_store(job, pod)], job.now)
    if keeping.phase is KeepingPhase.GATHERED and job.controller.has_store(job.attempt.number):
        keeping.begin_filling()
    elif keeping.is_store_held and job.controller.store in ("failed", "lost"):
        keeping.give_up_store(f"no other one can be opened: {job.controller.problem}")
    elif job.controller.connected and keeping.take_request_turn(job.now, job.setup.limits.controller_retry_seconds):
        job.effects.request_call("store", controller_arguments(job))
    if keeping.phase is not before:
        job.touch_all_pods()


def _may_tell_of_store(job: Job, pod: RankPod) -> bool:
    """Whether what its processes have written may still be heard; one that cannot be reached gets a moment more."""
    if job.is_agent_heard(pod) and pod.reported:
        return pod.gate is not None
    return not job.contacts.is_lease_expired(pod.uid, job.now, LATE_SECONDS)


# -- how far the ranks are ------------------------------------------------------------------------------------------


def complete_last_word(job: Job, _text: str) -> None:
    """Have the gates give everybody what the former controller gave to some; start stuck successors once more."""
    job.change.note_search_time(job.now)
    if partial_action.is_word_complete(job):
        partial_action.restart_stuck_successors(
            job, unrepaired_ranks(job.conversation.memory) or progress.ranks_in_repair(job)
        )


def settle_rank_progress(job: Job, _text: str) -> None:
    """Note who is lost, who was left out, and how far a repair or a move has come."""
    said = {one.rank: one for pod, one in progress.told_ranks(job) if job.roster.pod_of_rank(one.rank) is pod}
    moving = _settle_move(job)
    resize.settle_who_takes_part(job, said)
    dropped = job.roster.dropped
    told = {rank: set(one.answered) for rank, one in said.items() if one.answered and rank not in dropped}
    job.conversation.miss_ranks(dict.fromkeys(_ranks_not_registered(job, said), PROCESS_FAULT))
    if job.change.adopted and any(told.values()):
        job.conversation.miss_ranks(progress.ranks_in_repair(job))
    half = partial_action.is_half_repaired(job, unrepaired_ranks(job.conversation.memory))
    stage = resumption.RepairProgress(told, progress.ranks_without_process(job), moving, half)
    row = resumption.row_of_progress(stage)
    outcomes = resumption.Resumption
    job.change.note_rank_progress(
        trains=row.outcome is outcomes.TRAINING,
        repaired=row.outcome is outcomes.REPAIRED,
        paused=row.outcome is outcomes.PAUSED,
        saves=row.reason if row.outcome is outcomes.SAVE else "",
        impossible=row.reason if row.outcome is outcomes.IMPOSSIBLE else "",
    )
    log.warning("the ranks are %s, and no controller has a link to them", row.fits)


def _ranks_not_registered(job: Job, said: Collection[int]) -> Iterator[int]:
    """Ranks whose process has not registered: it is a successor that waits, and nobody was told of the death before."""
    for pod in job.roster.pods.values():
        for rank in job.roster.ranks_of_node(pod.node_rank):
            if rank in said or job.roster.pod_of_rank(rank) is not pod or not job.is_agent_heard(pod):
                continue
            if job.roster.phase_of_rank(rank) in ALIVE:
                yield rank


def _settle_move(job: Job) -> bool:
    """Second processes that have not taken over begin anew; whether there are any."""
    roster = job.roster
    if not roster.spares:
        return False
    second = {target.pod_uid for target in roster.spares.values()}
    said = [one for pod, one in progress.told_ranks(job) if pod.uid in second]
    trains = {one.rank for one in said if one.repaired and not one.answered}
    if trains.issuperset(roster.spares):
        migration.promote_second_processes(job)
        return False
    migration.restart_second_processes(job, {one.rank for one in said})
    job.conversation.unname_ranks(roster.spares)
    return True


# -- the new controller ---------------------------------------------------------------------------------------------


def ask_for_another(job: Job, _text: str) -> None:
    """Have the controller container start one whose counters are beyond what any rank has seen."""
    change = job.change
    change.note_requested_controller()
    wind = {"serials": change.serial + progress.SPARE_SERIALS, "counter": change.counter + 1}
    arguments = {**controller_arguments(job), "wind": wind}
    job.controller.note_requested_start(job.attempt.number, "start", arguments, job.now)
    job.effects.request_call("start", arguments)


def make_ranks_known(job: Job, _text: str) -> None:
    """Give the gates its address: they make their ranks known to it."""
    log.info("another MindIO controller serves; gates make their ranks known to it")
    job.change.note_serving_controller(job.now)
    job.touch_all_pods()


def name_stand_ins(job: Job, _text: str) -> None:
    """Hold ranks whose process is gone or not repaired, and name the agents that make them known instead."""
    change = job.change
    change.note_search_time(job.now)
    if job.now - change.serves_since >= RECONNECT_SECONDS:
        _miss_the_unlinked(job)
    absent = set(progress.ranks_to_stand_in_for(job))
    stand_ins = {rank: uid for rank in absent if (uid := _uid_of_spokesman(job, rank))}
    if absent != change.absent or stand_ins != change.stand_ins:
        for rank in absent:
            if (target := job.roster.targets.get(rank)) is not None:
                target.hold_process()
        change.set_absent_ranks(absent, stand_ins)
        job.touch_all_pods()


def _miss_the_unlinked(job: Job) -> None:
    """Ranks that had registered, and have given MindIO up, are lost: their agent was away for too long."""
    said = {one.rank: pod for pod, one in progress.told_ranks(job)}
    known = unrepaired_ranks(job.conversation.memory)
    starting = (
        (rank, pod) for rank, pod in progress.living_ranks(job) if job.roster.phase_of_rank(rank) == pb.STARTING
    )
    lost = {rank: PROCESS_FAULT for rank, pod in starting if rank not in known and said.get(rank) is pod}
    if lost:
        job.conversation.miss_ranks(lost)
        carry_out_commands(job, [Found(lost, {}, UNLINKED_TEXT)], job.now)


def _uid_of_spokesman(job: Job, rank: int) -> str:
    """The pod whose agent makes the rank known: its own, else any other; empty: none is there."""
    own = job.roster.pod_of_rank(rank)
    if own is not None and own.is_current and job.is_agent_heard(own) and own.gate is not None:
        return own.uid
    before = job.change.stand_ins.get(rank)
    uids = [pod.uid for pod in job.roster.reported_pods() if job.is_agent_heard(pod) and pod.gate is not None]
    return before if before in uids else next(iter(uids), "")


# -- in service -----------------------------------------------------------------------------------------------------


def put_in_service(job: Job, _text: str) -> None:
    """Report how long it took, name to it whoever is lost, and hear what it has said meanwhile."""
    job.effects.request_call("known", {})
    through, adopted = progress.was_repair_through(job), job.change.adopted
    heard = job.change.end_change()
    seconds = job.now - job.change.since
    log.warning("another MindIO controller knows every rank, %.3f s after the loss was known", seconds)
    milestone = pb.Milestone(kind=pb.TAKEN_OVER, duration_nanoseconds=int(seconds * NANOSECONDS))
    milestone.store_kept = job.keeping.is_store_kept
    job.mark_milestone(pb.TAKEN_OVER, job.now, milestone)
    job.roster.register_only(set(range(job.roster.world_size)))
    if adopted and not unrepaired_ranks(job.conversation.memory) and job.order is not None:
        if job.change.paused and job.order.action in (pb.PAUSE, pb.CONTINUE):
            open_incident(job, job.order.incarnation, planned=True)
        elif job.order.action != pb.CHECKPOINT:  # what was saved to its end has left nobody to take over
            job.incidents.conclude_up_to(job.order.incarnation)  # it was carried out, or there is nothing to carry out
    undone = _why_order_undone(job)
    strategy = job.conversation.memory.strategy if through else "pause" if job.change.paused else ""
    feed_conversation(job, MindIOEvent(EventKind.TAKEN_OVER, strategy=strategy), job.now)
    if through:
        feed_conversation(job, MindIOEvent(EventKind.SUCCESS, text=THROUGH_TEXT, strategy=strategy), job.now)
    for event, at in heard:
        feed_conversation(job, event, at)
    if undone:
        _leave_order_undone(job, undone)
    job.effects.release_held()
    job.touch_all_pods()
    job.effects.note_change(urgent=True)


def _why_order_undone(job: Job) -> str:
    """Why what was ordered cannot be done by the other controller either; empty: it can."""
    store = STORE_TEXT if job.change.adopted and job.keeping.phase is KeepingPhase.LOST else ""
    why = job.change.saves or store
    if not why or not _repairs_with_store(job):
        return ""
    assert job.order is not None
    job.change.note_undone_order(job.order.incarnation, job.order.revision)
    return why


def _repairs_with_store(job: Job) -> bool:
    """Whether the other controller is about to go on with what ends in the store."""
    order = job.order
    if order is None or not unrepaired_ranks(job.conversation.memory):
        return False
    return order.action in REPAIRS or (job.change.smaller and order.action in resize.SIZES)


def _leave_order_undone(job: Job, why: str) -> None:
    """Ask for another decision: the step can be saved, unless a rank waits for its clean."""
    assert job.order is not None
    open_incident(job, job.order.incarnation, planned=job.change.smaller)
    answered = [set(one.answered) for _, one in progress.told_ranks(job)]
    stands = any(resumption.STOPPED in done and resumption.CLEANED not in done for done in answered)
    code = FAILED_FOR_GOOD if stands else SAVE_LEFT
    failed = pb.Milestone(result_code=code, text=why, strategy=STRATEGIES[job.order.action])
    job.mark_milestone(pb.RESULT, job.now, failed)
