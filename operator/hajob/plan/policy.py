"""What the user allows, as the planner needs it: plain values with every default filled in.

`from_spec` reads the spec of a HATrainingJob as a plain mapping, so that the same code serves the operator, the
terminal and the tests; the server has validated it before, `simulate` has not, so everything is checked again and
refused by name.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from hajob.api.derived import DEFAULT_LIMITS, ActionLimits, action_limits, with_nodes
from hajob.api.derived import layout as layout_from
from hajob.api.enums import CoordinatorLossPolicy, ElasticPolicy, Framework, ShrunkPodPolicy, WaitingPodPolicy
from hajob.api.enums import RecoveryMode as Mode
from hajob.api.enums import SubHealthPolicy as NodePolicy
from hajob.api.spec import HATrainingJobSpec
from hajob.domain.actions import FAULT_ACTIONS, Action
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
    "from_spec",
    "layout_of",
]


DEFAULT_ACTION_LIMITS: Final[Mapping[Action, ActionLimits]] = {
    **DEFAULT_LIMITS,
    Action.EXPAND: ActionLimits(10, 3600, 900),
    Action.MIGRATE: ActionLimits(10, 3600, 900),
}
"""Limits where the spec says nothing; the planned actions have no place in the spec."""

PROGRAM_WINDOW_SECONDS: Final = 86_400
"""Failures of the program are counted over a day: what happens once a week is not a broken program."""

MAINTENANCE_WINDOW_SECONDS: Final = 3600
MAINTENANCE_LIMIT: Final = 10
"""So many recoveries for maintenance within the window are free; further ones count as faults, so that all ends."""
MAINTENANCE_BACKOFF_SECONDS: Final = 60
"""Before the second restart for a lost coordinator within the window; doubled for each further one."""

NO_PROGRESS_LIMIT: Final = 3
"""The same rank at the same step so often does not get the same action once more."""

RELEASE_SECONDS: Final = 60
"""A start holds what it has got of its chips for so long before it gives them back, and does without them as long."""

FIT_SECONDS: Final = 60
"""A start anew waits so long for nodes for all of its pods before it does with fewer, where it may."""

LOOK_AGAIN_SECONDS: Final = 10
"""Without capacity, which tells of itself, the next look is no sooner, and the delay of a second growth is no shorter
either: with `expandDelaySeconds: 0` the job would look, or grow, all the time."""

UNPLACED_SECONDS: Final = 10
"""A coordinator that finds no node of its own for so long may share one with a rank."""

UNREACHABLE_SECONDS: Final = 5
"""A coordinator that cannot be reached for so long is spoken of; most come back before."""

COORDINATOR_SECONDS: Final = 10
"""How long a coordinator that was spoken of is waited for: another one takes over and the training notices nothing,
while each second without one is a second without protection."""

SUCCESSOR_SECONDS: Final = 60
"""How long the successor of a lost coordinator is waited for: on a busy node its start alone may take ten seconds, and
one that is never waited for long enough would be made for ever."""

SUCCESSOR_DOUBLINGS: Final = 4
"""How often that time is doubled: where only this operator hears none of them, each may protect the job well."""

HELD_SECONDS: Final = 600
"""How long a fault waits for a controller: a save under way must end, a pod must come. The training stands."""

ANOTHER_COORDINATOR_SECONDS: Final = 10
"""Between two coordinators of a job that trains unprotected: one that cannot live must not be made in a loop."""

CONTINUE_SECONDS: Final = 60
"""MindIO waits so much longer than a pause may last, and so long its word is awaited after the order to go on."""

CONFIRM_SECONDS: Final = 60
"""MindIO's result comes about 2 s after the first step; after this long it will not come any more."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A precondition that is not met: its identifier, and a sentence with what is and what should be."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class Policy:
    """The recovery policy of one job.

    Attributes:
        refusals: per action, the unmet preconditions that follow from the spec alone; such an action is never tried.
        advice: per action, what the trainer's visible arguments contradict; told beforehand, but MindIO's own offer
            decides in the end.
        unknowns: per action, what cannot be known from the spec; it hinders nothing and promises nothing.
        no_copy_repair: the framework repairs from the periodic checkpoint when no copy is left (PyTorch only).
        hot_switch: the framework lets a second process take over a rank, without which nothing moves (PyTorch only).
        log_rules: rule name to the smallest action it asks for.
        batch: sizes of a step, None where the trainer's arguments do not show them.
        sizes: with which the job may be started anew, None where only with all nodes.
    """

    mode: Mode = Mode.ENFORCE
    limits: Mapping[Action, ActionLimits] = field(default_factory=lambda: dict(DEFAULT_ACTION_LIMITS))
    max_program_failures: int = 3
    replacement_timeout_seconds: int = 270
    startup_deadline_seconds: int = 1800
    active_deadline_seconds: int | None = None
    capacity_timeout_seconds: int | None = None
    release_waiting_pods: bool = False
    coordinator_loss: CoordinatorLossPolicy = CoordinatorLossPolicy.AT_NEXT_CHECKPOINT
    sub_health: NodePolicy = NodePolicy.MIGRATE
    cordon: NodePolicy = NodePolicy.MIGRATE
    drain_timeout_seconds: int = 900
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
    batch: Batch | None = None
    sizes: StartSizes | None = None

    @property
    def longest_window_ms(self) -> int:
        """Uses of budgets older than this are forgotten."""
        return 1000 * max(PROGRAM_WINDOW_SECONDS, *(one.window_seconds for one in self.limits.values()))

    def allows(self, action: Action) -> bool:
        """Whether the spec allows this action on a fault at all."""
        return self.limits[action].max_count > 0 and (self.elastic or action is not Action.SHRINK)

    @property
    def allowed(self) -> tuple[Action, ...]:
        """The actions on a fault that the spec allows at all, smallest first."""
        return tuple(action for action in FAULT_ACTIONS if self.allows(action))


def from_spec(spec: Mapping[str, Any] | HATrainingJobSpec, launched: Sequence[str] = (), nodes: int = 0) -> Policy:
    """The policy of a job.

    Args:
        spec: spec of a HATrainingJob, as the API model or as the plain mapping of a manifest.
        launched: what its start script has launched (script or module, then its arguments), once that is known.
        nodes: with which it was started, by which everything but `sizes` is checked; 0: with all.

    Raises:
        HajobInputError: the mapping is no valid spec, or its sizes do not divide; the message names the field.
    """
    whole = read_spec(spec)
    model, setting = with_nodes(whole, nodes), JobSetting.of(whole, launched)
    refusals, advice, unknowns = check_spec(model, launched)
    recovery, elastic = model.recovery, model.elastic
    limits = {**DEFAULT_ACTION_LIMITS, **{action: action_limits(model, action) for action in FAULT_ACTIONS}}
    return Policy(
        mode=recovery.mode,
        limits=limits,
        max_program_failures=recovery.max_program_failures,
        replacement_timeout_seconds=recovery.replacement_timeout_seconds,
        startup_deadline_seconds=model.startup_deadline_seconds,
        active_deadline_seconds=model.active_deadline_seconds,
        capacity_timeout_seconds=model.scheduling.capacity_timeout_seconds,
        release_waiting_pods=model.scheduling.waiting_pod_policy is WaitingPodPolicy.RELEASE,
        coordinator_loss=recovery.coordinator_loss_policy,
        sub_health=recovery.sub_health_policy,
        cordon=NodePolicy(recovery.cordon_policy.value),
        drain_timeout_seconds=recovery.drain_timeout_seconds,
        log_rules={rule.name: rule.action for rule in recovery.log_rules},
        elastic=elastic.policy is ElasticPolicy.ENABLED,
        min_data_parallel=elastic.min_data_parallel,
        release_shrunk_pods=elastic.shrunk_pod_policy is ShrunkPodPolicy.RELEASE,
        expand_delay_seconds=elastic.expand_delay_seconds,
        refusals=refusals,
        advice=advice,
        unknowns=unknowns,
        no_copy_repair=model.framework is Framework.PYTORCH,
        hot_switch=model.framework is Framework.PYTORCH,
        batch=_batch(setting),
        sizes=StartSizes.of(setting),
    )


def _batch(setting: JobSetting) -> Batch | None:
    """Sizes of a step, where they are visible and divide."""
    whole, micro = setting.flags.number("global-batch-size"), setting.flags.number("micro-batch-size")
    divides = whole and micro and not whole % (micro * setting.layout.data)
    return Batch.of(whole, micro, setting.layout.data) if whole and micro and divides else None


def layout_of(spec: Mapping[str, Any] | HATrainingJobSpec) -> Layout:
    """The layout of a job; raises like `from_spec`."""
    return layout_from(read_spec(spec))


def read_spec(spec: Mapping[str, Any] | HATrainingJobSpec) -> HATrainingJobSpec:
    """The spec as its model; raises `HajobInputError` with every wrong field."""
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
    """Preconditions of every action that bind, that are advice, and that cannot be known, from spec and arguments.

    What follows from the sizes binds. What the visible arguments say binds only where elastic training refuses it by
    itself; everywhere else the trainer may know better, and a Restart is better than none.
    """
    setting = JobSetting.of(spec, launched)
    hidden = dataclasses.replace(setting, flags=TrainerFlags())
    found: tuple[dict[Action, list[Refusal]], ...] = tuple({action: [] for action in FAULT_ACTIONS} for _ in range(3))
    for one in PRECONDITIONS:
        met = one.met(setting)
        if met is True:
            continue
        refusal = Refusal(one.name, one.message(setting))
        for action in one.actions:
            refused = one.actions == (Action.SHRINK,) or one.met(hidden) is False
            binds = refused and action is not Action.RESTART
            kind = 2 if met is None else (0 if binds else 1)
            found[kind][action].append(refusal)
    binding, advice, unknown = ({action: tuple(all_) for action, all_ in part.items()} for part in found)
    return binding, advice, unknown
