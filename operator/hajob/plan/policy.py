"""The recovery policy in the planner's form: plain values with every default filled in.

`policy_from_spec` reads the spec of a HATrainingJob as a plain mapping, so that the same code serves the operator, the
terminal and the tests. The server has validated a live job's spec, but not one given to `simulate`, so everything is
checked again and refused by field name.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from hajob.api.derived import DEFAULT_LIMITS, ActionLimits, action_limits, with_number_of_nodes
from hajob.api.derived import layout_of_spec as layout_from
from hajob.api.enums import (
    CoordinatorLossPolicy,
    ElasticPolicy,
    Framework,
    Launcher,
    ShrunkPodPolicy,
    WaitingPodPolicy,
)
from hajob.api.enums import RecoveryMode as Mode
from hajob.api.enums import SubHealthPolicy as NodePolicy
from hajob.api.spec import HATrainingJobSpec
from hajob.domain.actions import FAULT_ACTIONS, MINDIO_ACTIONS, Action
from hajob.domain.batch import Batch
from hajob.domain.errors import HajobInputError
from hajob.domain.layout import Layout
from hajob.plan.checks import JobSetting
from hajob.plan.flags import TrainerFlags
from hajob.plan.preconditions import PRECONDITIONS
from hajob.plan.sizes import StartSizes

__all__ = [
    "ActionLimits",
    "CoordinatorLossPolicy",
    "Mode",
    "NodePolicy",
    "Policy",
    "Refusal",
    "layout_from_spec",
    "policy_from_spec",
]


DEFAULT_ACTION_LIMITS: Final[Mapping[Action, ActionLimits]] = {
    **DEFAULT_LIMITS,
    Action.EXPAND: ActionLimits(10, 3600, 900),
    Action.MIGRATE: ActionLimits(10, 3600, 900),
}
"""Default limits; the spec cannot set those of planned actions."""

PROGRAM_WINDOW_SECONDS: Final = 86_400
"""Failures of the program are counted over a day: what happens once a week is not a broken program."""

MAINTENANCE_WINDOW_SECONDS: Final = 3600
MAINTENANCE_LIMIT: Final = 10
"""Recoveries for maintenance that are free within the window; further ones count as faults, so that loops end."""
MAINTENANCE_BACKOFF_SECONDS: Final = 60
"""Wait before the second restart for a lost coordinator within the window; doubled for each further one."""

NO_PROGRESS_LIMIT: Final = 3
"""After this many times for the same rank at the same step an action is not taken again."""

FINAL_LOOK_SECONDS: Final = 60
"""How long a loss after the last step waits for one more look at the checkpoints: reading thousands of files of a slow
volume takes that long, and a restart would take longer."""

RELEASE_SECONDS: Final = 60
"""How long a waiting start holds its chips before it releases them, and how long it then does without."""

FIT_SECONDS: Final = 60
"""How long a restart waits for nodes for all of its pods before it may start with fewer."""

LOOK_AGAIN_SECONDS: Final = 10
"""Least time to the next look without capacity, whose arrival is an event, and least delay of a second growth:
with `expandDelaySeconds: 0` the job would look, or grow, all the time."""

UNPLACED_SECONDS: Final = 10
"""How long a coordinator waits for a node free of ranks before it may share one."""

UNREACHABLE_SECONDS: Final = 5
"""How long a coordinator may be unreachable before it is reported; most come back before."""

COORDINATOR_SECONDS: Final = 10
"""How long to wait for a reported coordinator: a successor takes over without effect on the training, while each
second without a coordinator is a second without protection."""

SUCCESSOR_SECONDS: Final = 60
"""How long to wait for the successor of a lost coordinator: on a busy node its start alone may take ten seconds, and
too short a wait would make successors for ever."""

SUCCESSOR_DOUBLINGS: Final = 4
"""How often that time is doubled: a coordinator that only this operator cannot reach may protect the job well."""

HELD_SECONDS: Final = 600
"""How long a fault waits for a controller, while the training stands: a running save must end, a pod must start."""

ANOTHER_COORDINATOR_SECONDS: Final = 10
"""Wait between two coordinators of an unprotected job, so that a failing one is not recreated in a tight loop."""

CONTINUE_SECONDS: Final = 60
"""Extra time that MindIO waits beyond a pause, and the wait for its answer to the order to continue."""

WITHOUT_MINDIO: Final = "no action through MindIO is possible or allowed, so the job trains without it"
"""Why nothing that MindIO would do is tried."""

CONFIRM_SECONDS: Final = 60
"""MindIO's result comes about 2 s after the first step; after this long it will not come any more."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An unmet precondition: its identifier, and a sentence with the actual and the wanted value."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class Policy:
    """The recovery policy of one job.

    Attributes:
        refusals: per action, the unmet preconditions that follow from the spec alone, or with which the framework does
            not work; such an action is never tried.
        advice: per action, other preconditions that the trainer's visible arguments contradict; reported beforehand,
            but MindIO's own offer decides.
        unknowns: per action, preconditions that the spec leaves unknown; they neither refuse nor guarantee it.
        no_copy_repair: the framework repairs from the periodic checkpoint when no copy is left (PyTorch only).
        taskd_starts_ranks: TaskD starts them (`launcher: TaskD`); MindIO's controller and the rendezvous store are in
            the pod of node rank 0.
        meets_at_scheduler: the ranks meet at MindSpore's scheduler, which is in the coordinator's pod.
        hot_switch: ranks can be held at the end of a step, and a second process can take one over, as every move needs;
            MindSpore's only where processes may be replaced, which is when they ask MindIO after each step.
        log_rules: rule name to its smallest action.
        batch: sizes of a step, None where the trainer's arguments do not show them.
        sizes: reduced sizes with which the job may be restarted, None where only with all nodes.
    """

    mode: Mode = Mode.ENFORCE
    limits: Mapping[Action, ActionLimits] = field(default_factory=lambda: dict(DEFAULT_ACTION_LIMITS))
    max_program_failures: int = 3
    replacement_timeout_seconds: int = 270
    startup_deadline_seconds: int = 1800
    active_deadline_seconds: int | None = None
    finish_timeout_seconds: int = 1800
    capacity_timeout_seconds: int | None = None
    release_waiting_pods: bool = False
    coordinator_loss: CoordinatorLossPolicy = CoordinatorLossPolicy.AT_NEXT_CHECKPOINT
    sub_health: NodePolicy = NodePolicy.MIGRATE
    cordon: NodePolicy = NodePolicy.MIGRATE
    drain_timeout_seconds: int = 900
    preemption_timeout_seconds: int = 1800
    log_rules: Mapping[str, Action] = field(default_factory=dict)
    elastic: bool = True
    min_data_parallel: int = 1
    release_shrunk_pods: bool = False
    expand_delay_seconds: int = 120
    refusals: Mapping[Action, tuple[Refusal, ...]] = field(default_factory=dict)
    advice: Mapping[Action, tuple[Refusal, ...]] = field(default_factory=dict)
    unknowns: Mapping[Action, tuple[Refusal, ...]] = field(default_factory=dict)
    no_copy_repair: bool = True
    hot_switch: bool = True
    meets_at_scheduler: bool = False
    taskd_starts_ranks: bool = False
    batch: Batch | None = None
    sizes: StartSizes | None = None

    def forgotten_after_ms(self, budget: str) -> int:
        """Return the age at which a use of a budget is forgotten: its own window, a day at least, as windows change.

        The window of one action, which may be a year, keeps the uses of no other: a job may be moved ten times an hour.
        """
        own = next((one.window_seconds for action, one in self.limits.items() if action.value == budget), 0)
        return 1000 * max(PROGRAM_WINDOW_SECONDS, own)

    def allows_action(self, action: Action) -> bool:
        """Return whether the spec allows this action on a fault at all."""
        return self.limits[action].max_count > 0 and (self.elastic or action is not Action.SHRINK)

    @property
    def allowed_actions(self) -> tuple[Action, ...]:
        """The actions on a fault that the spec allows at all, smallest first."""
        return tuple(action for action in FAULT_ACTIONS if self.allows_action(action))

    @property
    def through_mindio(self) -> tuple[Action, ...]:
        """The allowed actions that MindIO may carry out; none: the job trains without MindIO."""
        return tuple(
            action for action in MINDIO_ACTIONS if self.allows_action(action) and not self.refusals.get(action)
        )

    @property
    def ranks_outlive_scheduler(self) -> bool:
        """Whether ranks train on without the coordinator's pod: MindSpore's only with an action through MindIO."""
        return not self.meets_at_scheduler or bool(self.through_mindio)

    @property
    def moves_on_cordon(self) -> bool:
        """Whether a cordon has Hajob move pods while the training goes on, as far as the spec tells."""
        able = self.hot_switch and bool(self.through_mindio)
        return able and self.mode is Mode.ENFORCE and self.cordon is NodePolicy.MIGRATE


def policy_from_spec(
    spec: Mapping[str, Any] | HATrainingJobSpec, launched: Sequence[str] = (), nodes: int = 0
) -> Policy:
    """Build the policy of a job.

    Args:
        spec: spec of a HATrainingJob, as the API model or as the plain mapping of a manifest.
        launched: the command that its start script has launched (script or module, then arguments), once known.
        nodes: number of nodes it was started with, used for every check but `sizes`; 0: all.

    Raises:
        HajobInputError: the mapping is no valid spec, or its sizes do not divide; the message names the field.
    """
    whole = parse_spec(spec)
    model, setting = with_number_of_nodes(whole, nodes), JobSetting.from_spec(whole, launched)
    refusals, advice, unknowns = check_spec(model, launched)
    recovery, elastic, by_taskd = model.recovery, model.elastic, model.launcher is Launcher.TASKD
    limits = {**DEFAULT_ACTION_LIMITS, **{action: action_limits(model, action) for action in FAULT_ACTIONS}}
    return Policy(
        mode=recovery.mode,
        limits=limits,
        max_program_failures=recovery.max_program_failures,
        replacement_timeout_seconds=recovery.replacement_timeout_seconds,
        startup_deadline_seconds=model.startup_deadline_seconds,
        active_deadline_seconds=model.active_deadline_seconds,
        finish_timeout_seconds=model.finish_timeout_seconds,
        capacity_timeout_seconds=model.scheduling.capacity_timeout_seconds,
        release_waiting_pods=model.scheduling.waiting_pod_policy is WaitingPodPolicy.RELEASE,
        coordinator_loss=recovery.coordinator_loss_policy,
        sub_health=recovery.sub_health_policy,
        cordon=NodePolicy(recovery.cordon_policy.value),
        drain_timeout_seconds=recovery.drain_timeout_seconds,
        preemption_timeout_seconds=recovery.preemption_timeout_seconds,
        log_rules={rule.name: rule.action for rule in recovery.log_rules},
        elastic=elastic.policy is ElasticPolicy.ENABLED,
        min_data_parallel=elastic.min_data_parallel,
        # TaskD starts no rank again in a pod whose ranks were dropped.
        release_shrunk_pods=elastic.shrunk_pod_policy is ShrunkPodPolicy.RELEASE or by_taskd,
        expand_delay_seconds=elastic.expand_delay_seconds,
        refusals=refusals,
        advice=advice,
        unknowns=unknowns,
        no_copy_repair=model.framework is Framework.PYTORCH,
        hot_switch=model.framework is Framework.PYTORCH
        or any(limits[action].max_count and not refusals.get(action) for action in (Action.IN_PLACE, Action.REPLACE)),
        meets_at_scheduler=model.framework is Framework.MINDSPORE,
        taskd_starts_ranks=by_taskd,
        batch=_batch_of_setting(setting),
        sizes=StartSizes.from_setting(setting),
    )


def _batch_of_setting(setting: JobSetting) -> Batch | None:
    """Return the sizes of a step, where they are visible and divide."""
    whole, micro = (
        setting.flags.number_of_option("global-batch-size"),
        setting.flags.number_of_option("micro-batch-size"),
    )
    divides = whole and micro and not whole % (micro * setting.layout.data)
    return Batch.from_sizes(whole, micro, setting.layout.data) if whole and micro and divides else None


def layout_from_spec(spec: Mapping[str, Any] | HATrainingJobSpec) -> Layout:
    """Return the layout of a job; raises like `policy_from_spec`."""
    return layout_from(parse_spec(spec))


def parse_spec(spec: Mapping[str, Any] | HATrainingJobSpec) -> HATrainingJobSpec:
    """Return the spec as its model; raises `HajobInputError` with every wrong field."""
    if isinstance(spec, HATrainingJobSpec):
        return spec
    try:
        return HATrainingJobSpec.model_validate(spec)
    except ValidationError as error:
        wrong = [f"spec.{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise HajobInputError("; ".join(wrong)) from None


RefusalsByAction = dict[Action, tuple[Refusal, ...]]


def check_spec(
    spec: HATrainingJobSpec, launched: Sequence[str] = ()
) -> tuple[RefusalsByAction, RefusalsByAction, RefusalsByAction]:
    """Return each action's preconditions that are unmet (binding), contradicted (advice) or unknown.

    What follows from the sizes binds. What the visible arguments say binds only where the framework itself refuses
    elastic training or high availability; elsewhere it is advice, as the trainer may know better and a Restart is
    better than none.
    """
    setting = JobSetting.from_spec(spec, launched)
    hidden = dataclasses.replace(setting, flags=TrainerFlags())
    found: tuple[dict[Action, list[Refusal]], ...] = tuple({action: [] for action in FAULT_ACTIONS} for _ in range(3))
    for one in PRECONDITIONS:
        met = one.met(setting)
        if met is True:
            continue
        refusal = Refusal(one.name, one.describe_unmet(setting))
        for action in one.actions:
            refused = one.excludes or one.actions == (Action.SHRINK,) or one.met(hidden) is False
            binds = refused and action is not Action.RESTART
            kind = 2 if met is None else (0 if binds else 1)
            found[kind][action].append(refusal)
    binding, advice, unknown = ({action: tuple(all_) for action, all_ in part.items()} for part in found)
    return binding, advice, unknown
