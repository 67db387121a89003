"""The recovery actions, in the order of their cost.

One enumeration for the whole project, because the same word stands in the spec, in the status, in events, in
metrics and in the terminal. MindIO's own names for strategies stay in the coordinator; `MINDIO_STRATEGY` is the
only bridge between the two vocabularies (docs/protocols/mindio.md).
"""

from enum import StrEnum
from typing import Final


class Action(StrEnum):
    """One step of recovery, smallest first; the last three are planned, never an answer to a fault."""

    RETRY = "Retry"
    IN_PLACE = "InPlace"
    REPLACE = "Replace"
    SHRINK = "Shrink"
    CHECKPOINT = "Checkpoint"
    RESTART = "Restart"
    EXPAND = "Expand"
    MIGRATE = "Migrate"
    PAUSE = "Pause"


FAULT_ACTIONS: Final = (
    Action.RETRY,
    Action.IN_PLACE,
    Action.REPLACE,
    Action.SHRINK,
    Action.CHECKPOINT,
    Action.RESTART,
)
"""The answers to a fault, smallest first."""

MINDIO_ACTIONS: Final = FAULT_ACTIONS[:-1]
"""The answers that MindIO carries out; a Restart needs nobody."""

ACTION_ORDER: Final = {action: place for place, action in enumerate(FAULT_ACTIONS)}
"""Index of an action in `FAULT_ACTIONS`; 0 is the smallest."""


class OrderCommand(StrEnum):
    """Command to a coordinator; the names of `Action` in operator/hajob/protocol/sidecar.proto."""

    START = "Start"
    RETRY = "Retry"
    IN_PLACE = "InPlace"
    REPLACE = "Replace"
    SHRINK = "Shrink"
    EXPAND = "Expand"
    CHECKPOINT = "Checkpoint"
    STOP = "Stop"
    PAUSE = "Pause"
    CONTINUE = "Continue"
    MIGRATE = "Migrate"


MINDIO_STRATEGY: Final = {
    Action.RETRY: "retry",
    Action.IN_PLACE: "recover",
    Action.REPLACE: "recover",
    Action.SHRINK: "downgrade",
    Action.EXPAND: "upgrade",
    Action.CHECKPOINT: "dump",
    Action.RESTART: "exit",
    Action.MIGRATE: "migration",
    Action.PAUSE: "continue",
}
"""The strategy MindIO must have offered before the action can be carried out."""

STRATEGIES: Final = frozenset(MINDIO_STRATEGY.values())
"""Every strategy that MindIO has a name for."""
