"""The reasons of the Events that Hajob posts about a job, declared once: type, and when the Event comes.

A Warning is an Event that may need a person. What Hajob does by plan, or what has ended well, is Normal.
`docs/user/reference.md` is the same table for readers.
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Final, Self

_NORMAL: Final = False
_WARNING: Final = True


@unique
class EventReason(StrEnum):
    """One word for `reason`, with its type and when it comes, in a sentence."""

    warning: bool
    when: str

    def __new__(cls, word: str, warning: bool = _NORMAL, when: str = "") -> Self:
        """A text with two more columns."""
        made = str.__new__(cls, word)
        made._value_, made.warning, made.when = word, warning, when
        return made

    INVALID = ("Invalid", _WARNING, "The spec is invalid.")
    POD_REFUSED = ("PodRefused", _WARNING, "The API server refuses the pods of a new job.")
    SPEC_NOT_READ = (
        "SpecNotRead",
        _WARNING,
        "The operator cannot read the newest spec; it serves the one before, or leaves the job untouched.",
    )
    JOURNAL_NEWER = ("JournalNewer", _WARNING, "A newer operator wrote the journal; this one leaves the job untouched.")
    JOURNAL_UNREADABLE = (
        "JournalUnreadable",
        _WARNING,
        "The journal is damaged; the operator leaves the job untouched.",
    )

    QUOTA_EXCEEDED = ("QuotaExceeded", _WARNING, "A ResourceQuota has no room for some pods.")
    PODS_NOT_CREATED = ("PodsNotCreated", _WARNING, "The API server does not create some pods.")
    WAITING_FOR_CAPACITY = ("WaitingForCapacity", _WARNING, "A start finds no node for some pods.")
    WAITING_FOR_OLD_PODS = (
        "WaitingForOldPods",
        _WARNING,
        "A start waits for old pods that do not end.",
    )
    CHIPS_RELEASED = ("ChipsReleased", _NORMAL, "A waiting start releases its chips (`waitingPodPolicy: Release`).")
    CHIPS_WANTED = ("ChipsWanted", _NORMAL, "Nodes for all rank pods are free; the start takes them.")
    SMALLER_START = ("SmallerStart", _NORMAL, "The job restarts with fewer nodes (`elastic.restartSize: Available`).")
    POD_MADE_ANEW = ("PodMadeAnew", _NORMAL, "A pod lost before its ranks started is replaced alone.")
    POD_UNSTARTABLE = ("PodUnstartable", _WARNING, "A container of a pod cannot start.")
    PODS_NOT_GONE = ("PodsNotGone", _WARNING, "Pods of a deleted job do not end; the job stays until they do.")

    RECOVERING = ("Recovering", _WARNING, "An incident begins: the action, its cause and the ranks.")
    RECOVERED = ("Recovered", _NORMAL, "The job trains again; the message has the length of the outage.")
    PLANNED_WORK = (
        "PlannedWork",
        _NORMAL,
        "Work that was asked for begins: a move, a growth, a pause, a restart or a suspension.",
    )
    PLANNED_WORK_DONE = ("PlannedWorkDone", _NORMAL, "Planned work is done and the job trains.")
    NOT_RECOVERED = ("NotRecovered", _WARNING, "An action failed; a larger one may follow.")
    FAILED = ("Failed", _WARNING, "The job has failed.")
    COMPLETE = ("Complete", _NORMAL, "Every rank ended with exit code 0.")
    SUSPENDED = ("Suspended", _NORMAL, "The job is suspended; the message says whether its last step is saved.")
    OBSERVED = ("Observed", _WARNING, "A fault came while `recovery.mode` is Observe: what Hajob would do.")
    HELD = ("Held", _WARNING, "A fault waits: for `recovery.mode` Enforce, or for a MindIO controller.")
    DROP_SET_DIFFERS = ("DropSetDiffers", _WARNING, "MindIO drops other ranks than Hajob expected.")

    COORDINATOR_LOST = ("CoordinatorLost", _WARNING, "The coordinator pod is lost; Hajob makes another one.")
    COORDINATOR_UNREACHABLE = ("CoordinatorUnreachable", _WARNING, "The operator cannot reach the coordinator.")
    COORDINATOR_SHARES_NODE = (
        "CoordinatorSharesNode",
        _WARNING,
        "No node is free of ranks: the coordinator may share one, whose loss then costs a restart.",
    )
    COORDINATOR_MOVING = ("CoordinatorMoving", _NORMAL, "Another coordinator takes over because its node is drained.")
    CONTROLLER_LOST = ("ControllerLost", _WARNING, "The MindIO controller is lost and no other can take over.")
    CONTROLLER_TAKEN_OVER = ("ControllerTakenOver", _NORMAL, "Another MindIO controller protects the job.")
    OPERATOR_CUT_OFF = ("OperatorCutOff", _WARNING, "The leading operator reaches too few coordinators.")

    NODE_DRAINING = ("NodeDraining", _NORMAL, "A node below the job is drained or cordoned: what happens to its pod.")
    MOVE_REFUSED = ("MoveRefused", _WARNING, "Pods cannot be moved off a node now.")
    MIGRATE_GIVEN_UP = ("MigrateGivenUp", _WARNING, "A move was given up; the training goes on where it was.")
    KEPT_POD_LOST = ("KeptPodLost", _WARNING, "A shrunk job lost a pod that it kept to grow back.")
    EXPAND_GIVEN_UP = ("ExpandGivenUp", _WARNING, "Growing back was given up; the job trains on shrunk.")
    SAVE_REFUSED = (
        "SaveRefused",
        _WARNING,
        "The step cannot be saved as `spec.restartCheckpointPolicy` requires; the job is not started anew.",
    )
    PAUSE_REFUSED = ("PauseRefused", _WARNING, "The job cannot pause as `spec.pause` requests.")
    PAUSE_ENDS = ("PauseEnds", _NORMAL, "A pause ends, and the training goes on.")
    PAUSE_GIVEN_UP = ("PauseGivenUp", _WARNING, "A pause was given up.")

    CHIP_UNKNOWN = ("ChipUnknown", _WARNING, "A chip is faulty, and which chips a pod of its node has is not known.")
    BREAKER_OPEN = ("BreakerOpen", _WARNING, "Too many nodes or chips were reported faulty at once.")
    BREAKER_CLOSED = ("BreakerClosed", _NORMAL, "Hajob acts on faults of nodes and chips again.")
    CHECKPOINT_REFUSED = ("CheckpointRefused", _WARNING, "A checkpoint is incomplete and is not loaded.")
    CHECKPOINTS_NOT_VERIFIED = ("CheckpointsNotVerified", _WARNING, "No checkpoint could be verified.")
