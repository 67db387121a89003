"""Messages to a coordinator, built from the plan and from the existing pods.

Both messages are complete levels: building them twice from the same values gives equal messages, and the channel sends
only what differs from what it sent before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hajob.api.enums import Framework
from hajob.api.spec import Recovery
from hajob.domain.actions import Action, OrderCommand
from hajob.domain.layout import Layout
from hajob.domain.patience import DECISION_SECONDS, standing_seconds
from hajob.plan.effects import SendOrder
from hajob.plan.policy import Mode, Policy
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.pod import PodView

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


def build_order(wanted: SendOrder, incident: int = 0) -> wire.Order:
    """Build the current order; `incident`: the number under which the open incident began, 0 when there is none."""
    return wire.Order(
        incident=incident,
        incarnation=wanted.incarnation,
        revision=wanted.revision,
        action=ACTION[wanted.command],
        lost_ranks=wanted.lost_ranks,
        restart_ranks=wanted.restart_ranks,
        replaced_nodes=wanted.replaced_nodes,
        parameters=wanted.parameters,
        timeout_seconds=wanted.timeout_seconds,
    )


def build_assignment(
    *,
    revision: int,
    world_size: int,
    ranks_per_node: int,
    attempt: int,
    environment: Mapping[str, str],
    pods: Iterable[PodView],
    standing: wire.StandingOrders,
    recovery: Recovery,
    checkpoint_rules: wire.CheckpointRules | None = None,
) -> wire.Assignment:
    """Build the assignment: the job's sizes and settings, and its rank pods by node rank."""
    return wire.Assignment(
        revision=revision,
        world_size=world_size,
        ranks_per_node=ranks_per_node,
        attempt=attempt,
        environment=dict(environment),
        pods=[
            wire.RankPod(
                node_rank=pod.node_rank,
                pod_name=pod.name,
                pod_uid=pod.uid,
                address=pod.address,
                incarnation=pod.incarnation,
                node_name=pod.node_name,
            )
            for pod in sorted(pods, key=lambda pod: (pod.node_rank, pod.incarnation))
        ],
        standing_orders=standing,
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
        checkpoint_rules=checkpoint_rules,
    )


def build_checkpoint_rules(
    framework: Framework, layout: Layout, passed_over: Sequence[int] = ()
) -> wire.CheckpointRules:
    """Build the rules for what a checkpoint of a job contains; `passed_over`: steps that are not to be loaded."""
    return wire.CheckpointRules(
        framework=framework.value,
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
        passed_over=passed_over,
    )


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
