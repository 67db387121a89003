"""What the user allows, as the planner needs it: plain values with every default filled in.

`from_spec` reads the spec of a HATrainingJob as a plain mapping, so that the same code serves the operator, the
terminal and the tests; the server has validated it before, `simulate` has not, so everything is checked again and
refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from hajob.domain.actions import LADDER, Action


class Mode(StrEnum):
    """How far Hajob may go."""

    ENFORCE = "Enforce"
    OBSERVE = "Observe"
    HOLD = "Hold"


class CoordinatorLossPolicy(StrEnum):
    """When a job whose MindIO controller is gone is restarted."""

    IMMEDIATELY = "Immediately"
    AT_NEXT_CHECKPOINT = "AtNextCheckpoint"
    NEVER = "Never"


class NodePolicy(StrEnum):
    """What a sub-healthy or cordoned node leads to."""

    IGNORE = "Ignore"
    CHECKPOINT = "Checkpoint"
    MIGRATE = "Migrate"
    EVICT = "Evict"


@dataclass(frozen=True, slots=True)
class Rung:
    """Budget of one action: at most `max_count` times in `window_seconds`; each try ends at `deadline_seconds`."""

    max_count: int
    window_seconds: int
    deadline_seconds: int


DEFAULT_RUNGS: Final[Mapping[Action, Rung]] = {
    Action.RETRY: Rung(3, 600, 60),
    Action.IN_PLACE: Rung(20, 3600, 600),
    Action.REPLACE: Rung(20, 3600, 900),
    Action.SHRINK: Rung(10, 86_400, 600),
    Action.CHECKPOINT: Rung(20, 86_400, 900),
    Action.RESTART: Rung(10, 86_400, 1800),
    Action.EXPAND: Rung(10, 3600, 900),
    Action.MIGRATE: Rung(10, 3600, 900),
}

PROGRAM_WINDOW_SECONDS: Final = 86_400
"""Failures of the program are counted over a day: what happens once a week is not a broken program."""

NO_PROGRESS_LIMIT: Final = 3
"""The same rank at the same step so often is not tried once more at the same rung."""

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
        no_copy_repair: the framework repairs from the periodic checkpoint when no copy is left (PyTorch only).
        log_rules: rule name to the smallest action it asks for.
    """

    mode: Mode = Mode.ENFORCE
    rungs: Mapping[Action, Rung] = field(default_factory=lambda: dict(DEFAULT_RUNGS))
    max_program_failures: int = 3
    replacement_timeout_seconds: int = 270
    startup_deadline_seconds: int = 1800
    active_deadline_seconds: int | None = None
    coordinator_loss: CoordinatorLossPolicy = CoordinatorLossPolicy.AT_NEXT_CHECKPOINT
    sub_health: NodePolicy = NodePolicy.MIGRATE
    cordon: NodePolicy = NodePolicy.MIGRATE
    log_rules: Mapping[str, Action] = field(default_factory=dict)
    elastic: bool = True
    min_data_parallel: int = 1
    release_shrunk_pods: bool = False
    expand_delay_seconds: int = 120
    refusals: Mapping[Action, tuple[Refusal, ...]] = field(default_factory=dict)
    no_copy_repair: bool = True

    @property
    def mindio_wait_seconds(self) -> int:
        """What `MINDIO_WAIT_MINDX_TIME` must be: MindIO has to outwait the replacement of a node."""
        return min(3600, max(120, self.replacement_timeout_seconds + 30))

    @property
    def longest_window_ms(self) -> int:
        """Uses of budgets older than this are forgotten."""
        return 1000 * max(PROGRAM_WINDOW_SECONDS, *(rung.window_seconds for rung in self.rungs.values()))

    def allowed(self) -> tuple[Action, ...]:
        """Actions of the ladder that the spec allows at all."""
        return tuple(
            action
            for action in LADDER
            if self.rungs[action].max_count > 0 and (action is not Action.SHRINK or self.elastic)
        )
