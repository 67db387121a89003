"""Messages to a job's coordinator: the order and the assignment, built from a snapshot of the job.

Both messages are complete levels: building them twice from the same values gives equal messages, and the channel sends
only what differs from what it sent before.
"""

from __future__ import annotations

from typing import Final

from hajob.domain.actions import Action, OrderCommand
from hajob.domain.patience import DECISION_SECONDS, standing_seconds
from hajob.job.memory import JobMemory
from hajob.job.policies.start_gate import StartMemo, holds_start
from hajob.job.rank_tables import rank_table_to_send
from hajob.job.snapshot import JobSnapshot
from hajob.plan.effects import SendOrder
from hajob.plan.policy import Mode, Policy
from hajob.pods.environment import rank_environment
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources import pause

ACTION: Final = {
    OrderCommand.START: wire.START,
    OrderCommand.RETRY: wire.RETRY,
    OrderCommand.IN_PLACE: wire.IN_PLACE,
    OrderCommand.REPLACE: wire.REPLACE,
    OrderCommand.SHRINK: wire.SHRINK,
    OrderCommand.EXPAND: wire.EXPAND,
    OrderCommand.CHECKPOINT: wire.CHECKPOINT,
    OrderCommand.STOP: wire.STOP,
    OrderCommand.PAUSE: wire.PAUSE,
    OrderCommand.CONTINUE: wire.CONTINUE,
    OrderCommand.MIGRATE: wire.MIGRATE,
}


def order_to_send(snapshot: JobSnapshot, memory: JobMemory, memo: StartMemo) -> wire.Order | None:
    """Build the newest order; None where there is none, and while it must wait."""
    order, incident = memory.journal.order, snapshot.state.incident
    if order is None or _is_order_held(snapshot, order, memo):
        return None
    # A leader that knows only what is recorded must decide the same again, or do no harm. A size that has changed is
    # not changed again: it would take the answers for those to the order before, and wait in vain for others.
    if order.command is OrderCommand.SHRINK and order != memory.recorded_order:
        return None
    return wire.Order(
        incident=incident.number if incident is not None and incident.incarnation == order.incarnation else 0,
        incarnation=order.incarnation,
        revision=order.revision,
        action=ACTION[order.command],
        lost_ranks=order.lost_ranks,
        restart_ranks=order.restart_ranks,
        replaced_nodes=order.replaced_nodes,
        parameters=order.parameters,
        timeout_seconds=order.timeout_seconds,
    )


def _is_order_held(snapshot: JobSnapshot, order: SendOrder, memo: StartMemo) -> bool:
    """Whether an order that starts ranks waits; to the earlier attempt's coordinator it only ends what that runs.

    An order to take over a training starts nothing.
    """
    state = snapshot.state
    starts = order.command is OrderCommand.START and state.is_untrained
    # A coordinator of the attempt before starts nothing: it must hear of the new one at once, to end its ranks.
    if starts and snapshot.coordinator.incarnation >= state.base:
        return holds_start(snapshot, memo)
    memo.held_since = None
    return False


def build_assignment(snapshot: JobSnapshot, revision: int) -> wire.Assignment:
    """Build the assignment: the job's sizes and settings, and its rank pods by node rank."""
    job, layout, state, policy = snapshot.job_as_started, snapshot.layout, snapshot.state, snapshot.policy
    recovery = job.spec.recovery
    return wire.Assignment(
        revision=revision,
        world_size=layout.world_size,
        ranks_per_node=layout.chips_per_node,
        attempt=state.attempt,
        environment=dict(rank_environment(job, policy)),
        pods=[
            wire.RankPod(
                node_rank=pod.node_rank,
                pod_name=pod.name,
                pod_uid=pod.uid,
                address=pod.address,
                incarnation=pod.incarnation,
                node_name=pod.node_name,
            )
            for pod in sorted(snapshot.pods.rank_pods(), key=lambda pod: (pod.node_rank, pod.incarnation))
        ],
        standing_orders=build_standing_orders(policy),
        log_rules=[
            wire.LogRule(
                name=rule.name,
                pattern=rule.pattern,
                threshold=rule.threshold,
                start_delay_seconds=rule.start_delay_seconds,
                window_seconds=rule.window_seconds,
            )
            for rule in recovery.log_rules
        ],
        hang_rule=wire.HangRule(
            step_time_multiple=recovery.hang.step_time_multiple, minimum_seconds=recovery.hang.min_timeout_seconds
        ),
        checkpoint_rules=wire.CheckpointRules(
            framework=job.spec.framework.value,
            num_nodes=layout.num_nodes,
            chips_per_node=layout.chips_per_node,
            tensor=layout.tensor,
            pipeline=layout.pipeline,
            context=layout.context,
            expert=layout.expert,
            rank_order=layout.rank_order.value,
            sharding=layout.sharding.value,
            copies=layout.copies,
            expert_tensor=layout.expert_tensor,
            passed_over=state.passed_over,
        ),
        pause_work=_work_of_pause(snapshot),
        rank_table=rank_table_to_send(snapshot),
    )


def _work_of_pause(snapshot: JobSnapshot) -> str:
    """Return what TaskD is asked to do in the open pause."""
    asked, state = snapshot.job.spec.pause, snapshot.state
    if asked is None or not state.holds_still or pause.identity_of_request(asked) != state.pause_seen:
        return ""
    return pause.work_for_taskd(asked, snapshot.serving_pods, snapshot.layout.chips_per_node)


def build_standing_orders(policy: Policy) -> wire.StandingOrders:
    """Build the actions that the coordinator takes by itself while the operator is away."""
    allowed = set(policy.allowed_actions) if policy.mode is Mode.ENFORCE else set()
    return wire.StandingOrders(
        decision_timeout_milliseconds=1000 * DECISION_SECONDS,
        save_after_milliseconds=1000 * standing_seconds(policy.replacement_timeout_seconds),
        allow_in_place=Action.IN_PLACE in allowed,
        allow_checkpoint=Action.CHECKPOINT in allowed,
        allow_retry=Action.RETRY in allowed,
    )
