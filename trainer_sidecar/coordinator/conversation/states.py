"""The states of a conversation with MindIO, and the sets of states that other modules test; each is declared once."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """States of the conversation, reported to the operator under these names."""

    OFFLINE = "Offline"  # no controller serves
    SERVING = "Serving"  # MindIO is at rest, no call is open
    FINISHING = "Finishing"  # a rank has left in order: MindIO recovers nothing from here on
    STOPPING = "Stopping"  # stop_train went out
    STOPPED = "Stopped"  # the step is locked, ranks still run to its end; further deaths are gathered
    RETRY_REFUSED = "RetryRefused"  # 405: needs a second naming, will not report the ranks again
    NAMING = "Naming"  # on_global_rank went out
    CHOOSING = "Choosing"  # strategies are offered
    RECOVERING = "Recovering"
    RETRYING = "Retrying"
    CONFIRMING = "Confirming"  # steps end again, MindIO's own success report is still to come
    FAILED_OPEN = "FailedOpen"  # 406: a checkpoint may be chosen
    SAVING = "Saving"
    SHRINKING = "Shrinking"
    SHRUNK = "Shrunk"  # trains with fewer data-parallel ranks
    EXPANDING = "Expanding"
    PAUSING = "Pausing"
    PAUSED = "Paused"
    CONTINUING = "Continuing"
    SWITCHING = "Switching"  # a hot switch is prepared
    MIGRATING = "Migrating"
    CLOSED = "Closed"  # the controller has left or is leaving; no call may be sent
    LOST = "Lost"  # the controller's process is gone


BLIND = frozenset({State.OFFLINE, State.CLOSED, State.LOST})
"""States in which no controller would notice a fault."""

OVER = frozenset({State.OFFLINE, State.FINISHING, State.CLOSED})
"""States in which the loss of the controller is not reported."""

AT_REST = frozenset({State.SERVING, State.SHRUNK, State.FINISHING, State.CLOSED})
"""States outside an incident."""

STEADY = frozenset({State.SERVING, State.SHRUNK})
"""States in which the training runs and no action is in progress."""

TRAINING = STEADY | {
    State.SWITCHING,
    State.PAUSING,
    State.PAUSED,
    State.CONTINUING,
}
"""States in which the training runs or is paused by order, and MindIO knows of no loss. An event of MindIO that no row
expects closes the conversation, because a controller in an unknown state is blind and must not look healthy."""

NAMEABLE = frozenset({State.STOPPED, State.RETRY_REFUSED})
"""States in which every rank may still be named."""

UNDECIDED = NAMEABLE | {State.CHOOSING, State.FAILED_OPEN}
"""States in which MindIO waits for a decision."""

UNNAMED = NAMEABLE | {State.STOPPING, State.NAMING}
"""States in which successors wait at their gates for a naming that is not complete."""

GATHERS = TRAINING | NAMEABLE | BLIND | {State.FINISHING, State.STOPPING}
"""States in which a death can still be named, or needs no naming."""

CARRIES_OUT = {
    "recover": State.RECOVERING,
    "retry": State.RETRYING,
    "dump": State.SAVING,
    "downgrade": State.SHRINKING,
    "upgrade": State.EXPANDING,
    "migration": State.MIGRATING,
    "continue": State.CONTINUING,
}
"""The state in which MindIO carries out each strategy."""

REPAIRING = frozenset({State.RECOVERING, State.RETRYING, State.MIGRATING})
"""States in which the end of the first step ends the outage."""
