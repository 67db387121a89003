"""What follows from a spec, in one place.

Product defaults: an A2 node has 8 chips and an A3 node 16 (docs/admin/pods.md). The limits of the actions
are chosen so that a fault of the infrastructure never uses up a job's life within a working day, and a loop of
failing recoveries ends within minutes.
"""

import itertools
from dataclasses import dataclass
from typing import Final, NamedTuple

from hajob.api.constants import NPU_RESOURCE_NAME
from hajob.api.enums import Framework, Launcher, MindIOTLSPolicy, Product, RankTablePolicy, RestartSize
from hajob.api.spec import ActionPolicy, HATrainingJobSpec
from hajob.api.status import CopyGroup, Effective
from hajob.domain.actions import FAULT_ACTIONS, Action
from hajob.domain.layout import Layout, Sharding

CHIPS_PER_NODE: Final = {Product.A2: 8, Product.A3: 16}

SHOWN_GROUPS: Final = 4
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
    """Return the number of chips, and so of ranks, of one rank pod."""
    return spec.accelerator.chips_per_node or CHIPS_PER_NODE[spec.accelerator.product]


def layout_of_spec(spec: HATrainingJobSpec) -> Layout:
    """Build the rank layout of the job.

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


def with_number_of_nodes(spec: HATrainingJobSpec, nodes: int) -> HATrainingJobSpec:
    """Return the spec of a start with this number of nodes; 0: with all of them."""
    return spec.model_copy(update={"num_nodes": nodes}) if nodes else spec


def expert_tensor(spec: HATrainingJobSpec) -> int:
    """Return the number of tensor-parallel ranks of the experts (docs/user/layout.md, "Experts")."""
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
    """Return whether the pods use the network of their nodes."""
    return bool(spec.template["spec"].get("hostNetwork"))


def rank_host_ports(spec: HATrainingJobSpec) -> dict[str, int]:
    """Return the host ports of a rank pod by name; none where the pod has its own network."""
    network = spec.network
    if not is_on_the_host(spec):
        return {}
    return {"agent": network.agent_port, "mindio": network.mindio_port, "rendezvous": network.rendezvous_port}


def coordinator_ports(spec: HATrainingJobSpec) -> CoordinatorPorts:
    """Choose the ports of the coordinator pod.

    In the node's network they differ from every port of the job's rank pods, because it may share a node with one.
    The ports of controller and store may be any: whoever dials them learns from the coordinator where they are.
    """
    network = spec.network
    if not is_on_the_host(spec):
        return CoordinatorPorts(network.coordinator_port, network.mindio_port, network.rendezvous_port)
    ranks = rank_host_ports(spec).values()
    free = (port for port in itertools.count(network.coordinator_port + 1) if port not in ranks)
    return CoordinatorPorts(network.coordinator_port, next(free), next(free))


def world_size_of(spec: HATrainingJobSpec) -> int:
    """Return the number of ranks of the job."""
    return spec.num_nodes * chips_per_node(spec)


def data_parallel_size(spec: HATrainingJobSpec) -> int:
    """Return the number of data-parallel ranks at full size; raises like `layout_of_spec`."""
    return layout_of_spec(spec).data


def action_limits(spec: HATrainingJobSpec, action: Action) -> ActionLimits:
    """Return the limits of an action: what the spec says, else the default of that action."""
    default = DEFAULT_LIMITS[action]
    written = next((policy for policy in spec.recovery.actions if policy.name == action), ActionPolicy(name=action))
    return ActionLimits(
        max_count=default.max_count if written.max_count is None else written.max_count,
        window_seconds=written.window_seconds or default.window_seconds,
        deadline_seconds=written.deadline_seconds or default.deadline_seconds,
    )


def allowed_actions(spec: HATrainingJobSpec) -> tuple[Action, ...]:
    """Return the actions that are not switched off, smallest first."""
    return tuple(action for action in FAULT_ACTIONS if action_limits(spec, action).is_allowed)


def extra_bytes_per_chip(spec: HATrainingJobSpec) -> int:
    """Return the bytes that the second optimizer copy costs on each chip; 0 where nothing is known or there is none."""
    if spec.model is None or spec.optimizer.copies < 2 or spec.optimizer.sharding is Sharding.NONE:
        return 0
    parameters_per_chip = spec.model.parameters // (spec.parallelism.tensor * spec.parallelism.pipeline)
    return _OPTIMIZER_BYTES_PER_PARAMETER * parameters_per_chip // data_parallel_size(spec)


def copy_groups(spec: HATrainingJobSpec) -> tuple[int, tuple[CopyGroup, ...]]:
    """Count the optimizer's shards, and list the holders of the first ones."""
    sizes = layout_of_spec(spec)
    number = sum(sizes.world_size // sizes.effective_copies(kind) for kind in sizes.copy_kinds)
    shown = itertools.islice(sizes.report_group_list(), SHOWN_GROUPS)
    groups = (
        CopyGroup(kind=row.kind.value, num_ranks=len(row.holders), ranks=tuple(row.holders[:SHOWN_GROUPS]))
        for row in shown
    )
    return number, tuple(groups)


def effective_status(spec: HATrainingJobSpec) -> Effective:
    """Build `status.effective`."""
    number, groups = copy_groups(spec)
    return Effective(
        num_copy_groups=number,
        copy_groups=groups,
        chips_per_node=chips_per_node(spec),
        world_size=world_size_of(spec),
        extra_bytes_per_chip=extra_bytes_per_chip(spec),
    )


def nodes_per_block(spec: HATrainingJobSpec) -> int:
    """Return the nodes of a block, which are in one super pod; 0: the job has no blocks."""
    chips = spec.accelerator.super_pod_chips
    if spec.accelerator.product is not Product.A3 or not chips:
        return 0
    return chips // chips_per_node(spec)


def has_rank_table(spec: HATrainingJobSpec) -> bool:
    """Return whether the rank pods get MindCluster's rank table."""
    return spec.network.rank_table_policy is RankTablePolicy.ENABLED


def why_not_served(spec: HATrainingJobSpec) -> str:
    """Say in a sentence what the spec asks for and this version cannot do; empty when there is nothing.

    Such a job is not started: a setting that is silently ignored shows only when it is needed. A setting that has its
    default, or means nothing for the product, is not named.
    """
    saved = type(spec.checkpoint).model_fields["saved_limit"].default
    taskd = spec.launcher is Launcher.TASKD
    resizes = spec.elastic.restart_size is RestartSize.AVAILABLE
    settings = {
        "launcher: TaskD with framework: MindSpore": taskd and spec.framework is Framework.MINDSPORE,
        "launcher: TaskD with hostNetwork": taskd and is_on_the_host(spec),
        "network.mindIOTLSPolicy: Enabled with launcher: TaskD": taskd
        and spec.network.mindio_tls_policy is MindIOTLSPolicy.ENABLED,
        "network.rankTablePolicy: Enabled with launcher: TaskD": taskd and has_rank_table(spec),
        f"network.rankTablePolicy: Enabled with resourceName: {NPU_RESOURCE_NAME}": has_rank_table(spec)
        and spec.accelerator.resource_name == NPU_RESOURCE_NAME,
        "elastic.restartSize: Available with framework: MindSpore": resizes and spec.framework is Framework.MINDSPORE,
        "checkpoint.savedLimit": spec.checkpoint.saved_limit != saved,
    }
    found = [name for name, there in settings.items() if there]
    return f"this version of Hajob does not support {', '.join(found)} yet: remove it" if found else ""
