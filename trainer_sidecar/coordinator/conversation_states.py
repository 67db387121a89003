"""Where a conversation with MindIO can stand, and the sets of states that others decide by; each is declared once."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where the conversation stands. Reported to the operator under these names."""

    OFFLINE = "Offline"  # no controller serves
    SERVING = "Serving"  # MindIO is at rest, nothing is asked
    FINISHING = "Finishing"  # a rank has left in order: MindIO will not recover anything any more
    STOPPING = "Stopping"  # stop_train went out
    STOPPED = "Stopped"  # the step is locked, not stopped; everything that dies is gathered
    RETRY_REFUSED = "RetryRefused"  # 405: wants a naming once more, will not report the ranks again
    NAMING = "Naming"  # on_global_rank went out
    CHOOSING = "Choosing"  # strategies are offered
    RECOVERING = "Recovering"
    RETRYING = "Retrying"
    CONFIRMING = "Confirming"  # steps are finished again, MindIO's own success report is still to come
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
    CLOSED = "Closed"  # the controller has left or is leaving; nobody may be told anything through it
    LOST = "Lost"  # the controller's process is gone


BLIND = frozenset({State.OFFLINE, State.CLOSED, State.LOST})
"""No controller would hear of a fault."""

OVER = frozenset({State.OFFLINE, State.FINISHING, State.CLOSED})
"""A controller that goes is missed by nobody."""

AT_REST = frozenset({State.SERVING, State.SHRUNK, State.FINISHING, State.CLOSED})
"""No incident is in the middle."""

STEADY = frozenset({State.SERVING, State.SHRUNK})
"""The training runs and nothing is being done about it."""

TRAINING = STEADY | {
    State.SWITCHING,
    State.PAUSING,
    State.PAUSED,
    State.CONTINUING,
}
"""The training runs or is held on request, and MindIO knows of no loss. What it says here and no row expects ends the
conversation, because a controller that is not understood is blind, and must not look healthy."""

NAMEABLE = frozenset({State.STOPPED, State.RETRY_REFUSED})
"""Everything may still be named."""

UNDECIDED = NAMEABLE | {State.CHOOSING, State.FAILED_OPEN}
"""MindIO waits for a decision."""

UNNAMED = NAMEABLE | {State.STOPPING, State.NAMING}
"""Successors wait at their gates for a naming that is not through."""

GATHERS = TRAINING | NAMEABLE | BLIND | {State.FINISHING, State.STOPPING}
"""A death can still be named, or needs no naming."""

CARRIES_OUT = {
    "recover": State.RECOVERING,
    "retry": State.RETRYING,
    "dump": State.SAVING,
    "downgrade": State.SHRINKING,
    "upgrade": State.EXPANDING,
    "migration": State.MIGRATING,
    "continue": State.CONTINUING,
}
"""The state in which MindIO carries out a strategy."""

REPAIRING = frozenset({State.RECOVERING, State.RETRYING, State.MIGRATING})
"""The first step that ends is the end of the outage."""
