"""Temporary bridge until hajob.plan.policy.from_spec exists."""

from __future__ import annotations

from hajob.api.derived import action_limits, chips_per_node
from hajob.api.enums import ElasticPolicy
from hajob.api.spec import HATrainingJobSpec
from hajob.domain.actions import LADDER
from hajob.domain.layout import Layout, RankOrder, Sharding
from hajob.plan.policy import DEFAULT_RUNGS, CoordinatorLossPolicy, Mode, Policy, Rung


def layout_of(spec: HATrainingJobSpec) -> Layout:
    p = spec.parallelism
    return Layout(
        spec.num_nodes,
        chips_per_node(spec),
        p.tensor,
        p.pipeline,
        p.context,
        p.expert,
        RankOrder(p.rank_order.value),
        Sharding(spec.optimizer.sharding.value),
        spec.optimizer.copies,
    )


def from_spec(spec: HATrainingJobSpec) -> Policy:
    rungs = dict(DEFAULT_RUNGS)
    for action in LADDER:
        limits = action_limits(spec, action)
        rungs[action] = Rung(limits.max_count, limits.window_seconds, limits.deadline_seconds)
    return Policy(
        mode=Mode(spec.recovery.mode.value),
        rungs=rungs,
        max_program_failures=spec.recovery.max_program_failures,
        replacement_timeout_seconds=spec.recovery.replacement_timeout_seconds,
        startup_deadline_seconds=spec.startup_deadline_seconds,
        active_deadline_seconds=spec.active_deadline_seconds,
        coordinator_loss=CoordinatorLossPolicy(spec.recovery.coordinator_loss_policy.value),
        elastic=spec.elastic.policy is ElasticPolicy.ENABLED,
        min_data_parallel=spec.elastic.min_data_parallel,
    )
