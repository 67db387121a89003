"""What follows from a spec, in one place.

Product defaults: an A2 node has 8 chips and an A3 node 16 (docs/pods.md). The limits of the actions
are chosen so that a fault of the infrastructure never uses up a job's life within a working day, and a loop of
failing recoveries ends within minutes.
"""

import itertools
from dataclasses import dataclass
from typing import Final, NamedTuple

from hajob.api.enums import Framework, GangPolicy, Launcher, MindIOTLSPolicy, Product, RestartSize
from hajob.api.spec import ActionPolicy, HATrainingJobSpec
from hajob.api.status import CopyGroup, Effective
from hajob.domain.actions import FAULT_ACTIONS, Action
from hajob.domain.layout import Layout, Sharding

CHIPS_PER_NODE: Final = {Product.A2: 8, Product.A3: 16}

SHOWN_GROUPS: Final = 16
"""So many groups of ranks, and ranks of a group, stand in the status; a large job has hundreds of thousands."""

# Bytes per parameter of the optimizer state under ZeRO-1: 4 + 16/d with one copy, 4 + 32/d with two.
_OPTIMIZER_BYTES_PER_PARAMETER: Final = 16


@dataclass(frozen=True, slots=True)
class ActionLimits:
    """The limits of one action with every default filled in; times in seconds."""

    max_count: int
    window_seconds: int
    deadline_seconds: int

    @property
    def is_allowed(self) -> bool:
        """Whether the action may be used at all."""
        return self.max_count > 0


DEFAULT_LIMITS: Final = {
    Action.RETRY: ActionLimits(3, 600, 60),
    Action.IN_PLACE: ActionLimits(5, 600, 120),
    Action.REPLACE: ActionLimits(10, 3600, 600),
    Action.SHRINK: ActionLimits(4, 3600, 300),
    Action.CHECKPOINT: ActionLimits(5, 3600, 1860),
    Action.RESTART: ActionLimits(10, 86400, 1800),
}


def chips_per_node(spec: HATrainingJobSpec) -> int:
    """Chips, that is ranks, of one rank pod."""
    return spec.accelerator.chips_per_node or CHIPS_PER_NODE[spec.accelerator.product]


def layout(spec: HATrainingJobSpec) -> Layout:
    """The rank layout of the job.

    Raises:
        hajob.domain.errors.LayoutError: the sizes don't divide; the CRD refuses such a job.
    """
    sizes = spec.parallelism
    return Layout(
        num_nodes=spec.num_nodes,
        chips_per_node=chips_per_node(spec),
        tensor=sizes.tensor,
        pipeline=sizes.pipeline,
        context=sizes.context,
        expert=sizes.expert,
        rank_order=sizes.rank_order,
        sharding=spec.optimizer.sharding,
        copies=spec.optimizer.copies,
        expert_tensor=expert_tensor(spec),
    )


def with_nodes(spec: HATrainingJobSpec, nodes: int) -> HATrainingJobSpec:
    """The spec of a start with so many nodes; 0: with all of them."""
    return spec.model_copy(update={"num_nodes": nodes}) if nodes else spec


def expert_tensor(spec: HATrainingJobSpec) -> int:
    """Tensor-parallel ranks of the experts (docs/layout.md, "Experts")."""
    sizes = spec.parallelism
    if sizes.expert_tensor is not None:
        return sizes.expert_tensor
    return 1 if spec.framework is Framework.MINDSPORE and sizes.expert > 1 else sizes.tensor


class CoordinatorPorts(NamedTuple):
    """Where the processes of a coordinator pod listen."""

    coordinator: int
    controller: int
    store: int


def is_on_the_host(spec: HATrainingJobSpec) -> bool:
    """Whether the pods have the network of their nodes."""
    return bool(spec.template["spec"].get("hostNetwork"))


def rank_host_ports(spec: HATrainingJobSpec) -> dict[str, int]:
    """Ports of its node on which Hajob serves in a rank pod, by their names in it; none in a network of its own."""
    network = spec.network
    if not is_on_the_host(spec):
        return {}
    return {"agent": network.agent_port, "mindio": network.mindio_port, "rendezvous": network.rendezvous_port}


def coordinator_ports(spec: HATrainingJobSpec) -> CoordinatorPorts:
    """Ports of the coordinator pod; on the host none that a rank pod of the job has, for it may share a node with one.

    Nobody dials controller and store but those whom the coordinator tells where they are.
    """
    network = spec.network
    if not is_on_the_host(spec):
        return CoordinatorPorts(network.coordinator_port, network.mindio_port, network.rendezvous_port)
    ranks = rank_host_ports(spec).values()
    free = (port for port in itertools.count(network.coordinator_port + 1) if port not in ranks)
    return CoordinatorPorts(network.coordinator_port, next(free), next(free))


def world_size(spec: HATrainingJobSpec) -> int:
    """Ranks of the job."""
    return spec.num_nodes * chips_per_node(spec)


def data_parallel_size(spec: HATrainingJobSpec) -> int:
    """Data-parallel ranks at full size; raises like `layout`."""
    return layout(spec).data


def action_limits(spec: HATrainingJobSpec, action: Action) -> ActionLimits:
    """Limits of an action: what the spec says, else the default of that action."""
    default = DEFAULT_LIMITS[action]
    written = next((policy for policy in spec.recovery.actions if policy.name == action), ActionPolicy(name=action))
    return ActionLimits(
        max_count=default.max_count if written.max_count is None else written.max_count,
        window_seconds=written.window_seconds or default.window_seconds,
        deadline_seconds=written.deadline_seconds or default.deadline_seconds,
    )


def allowed_actions(spec: HATrainingJobSpec) -> tuple[Action, ...]:
    """Actions that are not switched off, smallest first."""
    return tuple(action for action in FAULT_ACTIONS if action_limits(spec, action).is_allowed)


def extra_bytes_per_chip(spec: HATrainingJobSpec) -> int:
    """Memory that the second optimizer copy costs on each chip; 0 where nothing is known or there is none."""
    if spec.model is None or spec.optimizer.copies < 2 or spec.optimizer.sharding is Sharding.NONE:
        return 0
    parameters_per_chip = spec.model.parameters // (spec.parallelism.tensor * spec.parallelism.pipeline)
    return _OPTIMIZER_BYTES_PER_PARAMETER * parameters_per_chip // data_parallel_size(spec)


def copy_groups(spec: HATrainingJobSpec) -> tuple[int, tuple[CopyGroup, ...]]:
    """How many shards the optimizer has, and who holds the first ones."""
    sizes = layout(spec)
    number = sum(sizes.world_size // sizes.effective_copies(kind) for kind in sizes.copy_kinds)
    shown = itertools.islice(sizes.report_group_list(), SHOWN_GROUPS)
    groups = (
        CopyGroup(kind=row.kind.value, num_ranks=len(row.holders), ranks=tuple(row.holders[:SHOWN_GROUPS]))
        for row in shown
    )
    return number, tuple(groups)


def effective(spec: HATrainingJobSpec) -> Effective:
    """What `status.effective` says."""
    number, groups = copy_groups(spec)
    return Effective(
        num_copy_groups=number,
        copy_groups=groups,
        chips_per_node=chips_per_node(spec),
        world_size=world_size(spec),
        extra_bytes_per_chip=extra_bytes_per_chip(spec),
    )


def not_served(spec: HATrainingJobSpec) -> str:
    """What the spec asks for and this version cannot do, in a sentence; empty when there is nothing.

    Such a job is not started: a setting that is silently ignored shows only when it is needed. What has its default, or
    means nothing for the product, is not one.
    """
    saved = type(spec.checkpoint).model_fields["saved_limit"].default
    super_pods = spec.accelerator.product is Product.A3 and spec.accelerator.super_pod_chips is not None
    resizes = spec.elastic.restart_size is RestartSize.AVAILABLE
    settings = {
        "launcher: TaskD": spec.launcher is Launcher.TASKD,
        f"scheduling.gangPolicy: {spec.scheduling.gang_policy}": spec.scheduling.gang_policy is GangPolicy.VOLCANO,
        "scheduling.queueName": bool(spec.scheduling.queue_name),
        "elastic.restartSize: Available with framework: MindSpore": resizes and spec.framework is Framework.MINDSPORE,
        "checkpoint.savedLimit": spec.checkpoint.saved_limit != saved,
        "accelerator.superPodChips": super_pods,
        "network.mindIOTLSPolicy: Enabled": spec.network.mindio_tls_policy is MindIOTLSPolicy.ENABLED,
    }
    found = [name for name, there in settings.items() if there]
    return f"this version of Hajob does not support {', '.join(found)} yet: remove it" if found else ""
