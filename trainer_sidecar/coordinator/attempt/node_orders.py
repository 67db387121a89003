"""What one agent is told: computed from the targets, whole each time."""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.controller_protocol import HUNG, UNHEARD
from trainer_sidecar.coordinator.attempt import start
from trainer_sidecar.coordinator.attempt.rank_variables import rank_environment
from trainer_sidecar.coordinator.state.attempt import AttemptPhase
from trainer_sidecar.coordinator.state.controller_change import LAST_SERIAL
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.state.roster import RankPod
from trainer_sidecar.coordinator.watch import checkpoints, training_end
from trainer_sidecar.coordinator.watch.problems import protection_problems
from trainer_sidecar.coordinator.watch.quiet import quiet_problem
from trainer_sidecar.units import NANOSECONDS

WORN_SERIAL = 12_500
"""An incident takes about a dozen serials: some 600 more are possible (controller_change.LAST_SERIAL)."""

WORN_TEXT = (
    f"more than {WORN_SERIAL} of the {LAST_SERIAL} actions that MindIO can number are used up, after which every one "
    "fails; restart the job at a convenient time (spec.restartRequestTime)"
)


def node_order(job: Job, pod: RankPod) -> pb.NodeOrder | None:
    """Build the order for `pod` without its revision; None while nothing may be said to it.

    An agent whose ranks this coordinator does not know yet is left alone: a wrong order would end them. So is one whose
    ranks MindIO still asks to stop.
    """
    if job.assignment is None or not pod.reported or pod.uid in job.roster.answering:
        return None
    mine = list(job.roster.targets_told_to(pod))
    looks = checkpoints.checkpoint_order(job, pod)
    if not mine and not pod.over and looks is None:
        return None
    order = pb.NodeOrder(over=pod.over, log_rules=job.assignment.log_rules, checkpoint=looks)
    serves = job.controller.is_serving(job.attempt.number) and not job.without_mindio
    if job.is_running and serves and job.change.may_connect:
        order.controller_address = job.controller_address
        order.controller = job.controller.instance
        order.stand_ins.extend(job.change.stand_ins_at(pod.uid))
        order.repaired = job.change.repaired
    if told := job.change.untold.intersection(rank for rank, _ in mine):
        order.word = job.change.word
        order.word_for.extend(sorted(told))
    order.steps_ahead = job.steps_ahead
    order.store_address = "" if job.setup.is_followed else job.setup.endpoint.store_address
    order.store = job.store_name if job.is_running else ""  # empty: whether ranks run is not known yet
    order.store_held, order.store_kept = job.keeping.is_store_held, job.keeping.is_store_kept_for(pod.uid)
    order.store_wanted = job.keeping.wanted_word
    environment = rank_environment(job)
    for rank, target in mine:
        run = target.run and not pod.over
        entry = order.ranks.add(rank=rank, incarnation=target.incarnation, start=target.start, run=run)
        entry.admitted = run and target.admitted
        entry.stacks = target.stacks
        if run:
            entry.environment.update(environment)
    return order


def coordinator_state(job: Job) -> pb.CoordinatorState:
    """Build the state that goes with every report."""
    attempt = job.attempt
    revision = job.order.revision if job.order is not None else 0
    state = pb.CoordinatorState(
        incarnation=job.incidents.incarnation,
        order_revision=revision,
        conversation=str(job.conversation.state),
        controller_ready=controller_protects(job),
        taking_over=is_taking_over(job),
        controller_problem=controller_problem(job),
        step=job.steps.newest if job.attempt.stepped else None,
        attempt=max(attempt.number, 0),
        checkpoint=job.checkpoints.found,
        problems=protection_problems(job),
        refused_inputs=job.effects.refused_inputs,
        strangers=job.roster.strangers,
        end=training_end.training_end_of(job),
        pause_result=job.pause.result,
        launched=next((pod.launched for pod in job.roster.pods_of_node(0) if pod.is_current and pod.launched), ()),
    )
    if (quiet := quiet_problem(job)) is not None:
        state.problems.append(quiet)
    if (times := job.steps.step_times) is not None:
        state.step_times.median_nanoseconds = int(times.median * NANOSECONDS)
        state.step_times.slow_nanoseconds = int(times.slow * NANOSECONDS)
    if attempt.sign and not attempt.stepped and attempt.phase is not AttemptPhase.IDLE:
        state.sign_age_nanoseconds = max(0, int((job.now - attempt.sign) * NANOSECONDS))
    if job.incidents.current is not None:
        state.standing_action = job.incidents.current.standing
    state.nodes.extend(
        pod.node_state(connected=job.is_agent_heard(pod)) for pod in job.roster.pods.values() if pod.is_current
    )
    return state


def controller_protects(job: Job) -> bool:
    """Return whether the controller serves this attempt, and its ranks are or will be registered with it and no other.

    Where the ranks register with none: whether their store is there.
    """
    attempt = job.attempt
    if job.without_mindio:
        return attempt.phase is not AttemptPhase.IDLE and job.is_everything_up and not job.keeping.is_store_held
    if job.controller.kind in (HUNG, UNHEARD):
        return False
    if attempt.phase is AttemptPhase.OPENING:
        blind = any(pod.has_live_process() for pod in job.roster.pods.values())
        return job.controller.is_ready(attempt.number) and not blind
    sees = not job.conversation.is_blind and not job.change.is_under_way
    return job.is_running and sees and job.controller.is_serving(attempt.number)


def is_taking_over(job: Job) -> bool:
    """Return whether no controller protects the ranks and one is about to: what is ordered meanwhile is done then.

    Another one comes for a lost one, or this coordinator was restarted and is about to take up ranks that run.
    """
    order = job.order
    if job.is_running or (order is not None and order.action == pb.STOP):
        return job.change.is_under_way
    return start.has_attempt_begun(job, job.roster.reported_pods())


def controller_problem(job: Job) -> str:
    """Say for a person why MindIO does not protect the job; empty when it does."""
    controller = job.controller
    if not controller.connected:
        return controller.refusal or "the controller container does not answer yet"
    worn = WORN_TEXT if job.change.serial >= WORN_SERIAL else ""
    return (
        job.change.change_problem
        or controller.problem
        or checkpoints.checkpoint_problem(job)
        or job.conversation.memory.problem
        or worn
    )
