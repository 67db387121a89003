"""Every condition and reason of a HATrainingJob, declared once, each with the sentence that explains it.

A reason belongs to one condition and one status, so that a caller names the reason and cannot get the rest wrong.
`docs/reference.md` is the same table for readers.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import Enum, StrEnum, unique

from hajob.api.enums import ConditionStatus
from hajob.api.status import Condition

_TRUE, _FALSE, _UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


class ConditionType(StrEnum):
    """The conditions, in the order in which they are shown; all are present from the first visit."""

    ACCEPTED = "Accepted"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    RECOVERABLE = "Recoverable"
    COORDINATOR_READY = "CoordinatorReady"
    SHRUNK = "Shrunk"
    SPARES_READY = "SparesReady"
    DEGRADED = "Degraded"
    HELD = "Held"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"


_T = ConditionType


@unique
class Reason(Enum):
    """One reason: its condition, the status it stands for, the word, and the sentence."""

    NOT_CHECKED = (_T.ACCEPTED, _UNKNOWN, "NotChecked", "The job has not been looked at yet.")
    VALID = (_T.ACCEPTED, _TRUE, "Valid", "The job is valid and the API server accepts its pods.")
    POD_REFUSED = (_T.ACCEPTED, _FALSE, "PodRefused", "The API server refuses the pods of this job.")
    INVALID = (_T.ACCEPTED, _FALSE, "Invalid", "The job asks for something that cannot be.")

    JOURNAL_NEWER = (
        _T.ACCEPTED,
        _UNKNOWN,
        "JournalNewer",
        "This operator is older than the journal of the job: the job is left as it is until a newer one leads.",
    )
    JOURNAL_UNREADABLE = (
        _T.ACCEPTED,
        _UNKNOWN,
        "JournalUnreadable",
        "status.journal is damaged; the job is left as it is until an operator that can read it leads.",
    )

    NO_PODS = (_T.SCHEDULED, _UNKNOWN, "NoPods", "There are no pods to place.")
    ALL_PLACED = (_T.SCHEDULED, _TRUE, "AllPlaced", "Every pod has a node.")
    PODS_PENDING = (_T.SCHEDULED, _FALSE, "PodsPending", "Some pods wait for a node.")
    QUOTA_EXCEEDED = (_T.SCHEDULED, _FALSE, "QuotaExceeded", "A ResourceQuota has no room for some pods.")
    PODS_NOT_CREATED = (_T.SCHEDULED, _FALSE, "PodsNotCreated", "The API server does not create some pods.")
    WAITING_FOR_CAPACITY = (
        _T.SCHEDULED,
        _FALSE,
        "WaitingForCapacity",
        "The scheduler finds no node for some pods; the start-up clock stands still.",
    )

    NOT_STARTED = (_T.RUNNING, _FALSE, "NotStarted", "The training has not been started yet.")
    STARTING = (_T.RUNNING, _FALSE, "Starting", "Pods and ranks are starting.")
    TRAINING = (_T.RUNNING, _TRUE, "Training", "Every rank trains.")
    RECOVERING = (_T.RUNNING, _FALSE, "Recovering", "The training is being brought back after a fault.")
    PAUSED = (_T.RUNNING, _FALSE, "Paused", "Every rank waits at the end of a step, as spec.pause asks.")
    RESTARTING = (_T.RUNNING, _FALSE, "Restarting", "The whole job is being restarted from a checkpoint.")
    RUNNING_ENDED = (_T.RUNNING, _FALSE, "Ended", "The training has ended.")
    RUNNING_SUSPENDED = (_T.RUNNING, _FALSE, "Suspended", "The job is suspended.")

    NOT_EVALUATED = (_T.RECOVERABLE, _UNKNOWN, "NotTraining", "What could be recovered is known while the job trains.")
    RECOVERABLE = (_T.RECOVERABLE, _TRUE, "PreconditionsMet", "A lost process or node can be recovered.")
    UNRECOVERABLE = (
        _T.RECOVERABLE,
        _FALSE,
        "PreconditionsUnmet",
        "Some actions would not work now; see status.recoverability.",
    )

    COPIES_NOT_REGISTERED = (
        _T.RECOVERABLE,
        _FALSE,
        "CopiesNotRegistered",
        "The trainer has not told MindIO where its optimizer copies are: every fault costs a restart.",
    )

    NOT_ALL_KNOWN = (
        _T.RECOVERABLE,
        _UNKNOWN,
        "PreconditionsUnknown",
        "Nothing known speaks against an action, but not everything is known; see status.recoverability.",
    )

    COORDINATOR_ABSENT = (_T.COORDINATOR_READY, _UNKNOWN, "NoPod", "There is no coordinator pod yet.")
    COORDINATOR_NOT_NEEDED = (_T.COORDINATOR_READY, _FALSE, "NotNeeded", "A job that does not run has no coordinator.")
    COORDINATOR_PENDING = (_T.COORDINATOR_READY, _FALSE, "PodPending", "The coordinator pod waits for a node.")
    COORDINATOR_STARTING = (_T.COORDINATOR_READY, _FALSE, "Starting", "The coordinator pod is starting.")
    COORDINATOR_SERVING = (_T.COORDINATOR_READY, _TRUE, "Serving", "The coordinator and its MindIO controller serve.")
    COORDINATOR_SHARES_NODE = (
        _T.COORDINATOR_READY,
        _TRUE,
        "SharesNode",
        "The coordinator serves, but on a node of its job's ranks: losing that node costs a restart.",
    )
    COORDINATOR_UNREACHABLE = (
        _T.COORDINATOR_READY,
        _FALSE,
        "Unreachable",
        "The operator cannot talk to the coordinator.",
    )
    CONTROLLER_NOT_STARTED = (
        _T.COORDINATOR_READY,
        _FALSE,
        "ControllerNotStarted",
        "The MindIO controller, or the rendezvous store beside it, cannot be started from the training image.",
    )
    TAKING_OVER = (
        _T.COORDINATOR_READY,
        _FALSE,
        "TakingOver",
        "The MindIO controller was lost, another one takes its place: training goes on, the next fault waits for it.",
    )
    CONTROLLER_LOST = (
        _T.COORDINATOR_READY,
        _FALSE,
        "ControllerLost",
        "The MindIO controller is gone: training goes on unprotected until the job is restarted.",
    )

    FULL_SIZE = (_T.SHRUNK, _FALSE, "FullSize", "Every data-parallel rank trains.")
    FEWER_RANKS = (_T.SHRUNK, _TRUE, "FewerDataParallelRanks", "The job trains with fewer data-parallel ranks.")

    SPARES_NOT_ASKED = (_T.SPARES_READY, _UNKNOWN, "NotAsked", "scheduling.numSpareNodes is 0: no node is held ready.")
    SPARES_AFTER_START = (
        _T.SPARES_READY,
        _FALSE,
        "AfterStart",
        "Spare nodes are taken once the job trains in full size: nothing that trains waits for them.",
    )
    SPARES_READY = (_T.SPARES_READY, _TRUE, "AllReady", "Every spare node is held ready.")
    SPARES_PENDING = (_T.SPARES_READY, _FALSE, "Pending", "Some spare nodes are not held yet.")
    SPARES_NOT_CREATED = (_T.SPARES_READY, _FALSE, "NotCreated", "Some spare pods are not created, or have ended.")

    PROTECTION_NOT_EVALUATED = (_T.DEGRADED, _UNKNOWN, "NotTraining", "Protection is evaluated while the job trains.")
    PROTECTED = (_T.DEGRADED, _FALSE, "Protected", "No action that the spec allows is known to lack anything.")
    CRD_OLDER = (
        _T.DEGRADED,
        _TRUE,
        "CRDOlder",
        "The installed CRD is older than this operator: what it lacks of the status is lost.",
    )
    FIELDS_NOT_READ = (
        _T.DEGRADED,
        _TRUE,
        "FieldsNotRead",
        "This operator is older than the CRD and does not know some fields of the spec: they are as if not set.",
    )
    MOVE_FAILED = (
        _T.DEGRADED,
        _TRUE,
        "MoveFailed",
        "Pods are still on a node that they were to leave; the training goes on there, and the move is tried again.",
    )
    PROTECTION_MISSING = (
        _T.DEGRADED,
        _TRUE,
        "ProtectionMissing",
        "Some actions lack a precondition; the message and status.recoverability name it.",
    )

    NOT_HELD = (_T.HELD, _FALSE, "NotHeld", "Hajob acts on faults of this job.")
    MODE_HOLD = (_T.HELD, _TRUE, "ModeHold", "spec.recovery.mode is Hold: nothing new is started.")
    WAITS_FOR_CONTROLLER = (
        _T.HELD,
        _TRUE,
        "WaitsForController",
        "A fault waits until a MindIO controller protects the job again; the training may stand meanwhile.",
    )
    MODE_OBSERVE = (_T.HELD, _TRUE, "ModeObserve", "spec.recovery.mode is Observe: decisions are only told.")

    BREAKER_OPEN = (
        _T.HELD,
        _TRUE,
        "BreakerOpen",
        "Too much is told of nodes and chips at once to be believed: nothing irreversible follows from it.",
    )

    NOT_SUSPENDED = (_T.SUSPENDED, _FALSE, "NotSuspended", "The job is not suspended.")
    SUSPENDING = (_T.SUSPENDED, _FALSE, "Suspending", "The pods of the job are being ended.")
    SUSPENDED = (_T.SUSPENDED, _TRUE, "Suspended", "The job has no pods; set spec.suspend to false to go on.")

    NOT_COMPLETE = (_T.COMPLETE, _FALSE, "NotComplete", "The training has not come to its end.")
    ALL_RANKS_FINISHED = (_T.COMPLETE, _TRUE, "AllRanksFinished", "Every rank ended with exit code 0.")
    SCRIPT_DISAGREES = (
        _T.COMPLETE,
        _TRUE,
        "ScriptDisagrees",
        "Every rank has finished its training; the start script ended with an error after it.",
    )

    NOT_FAILED = (_T.FAILED, _FALSE, "NotFailed", "Nothing has made the job give up.")
    IMAGE_UNAVAILABLE = (_T.FAILED, _TRUE, "ImageUnavailable", "An image could not be pulled.")
    CONTAINER_NOT_STARTED = (
        _T.FAILED,
        _TRUE,
        "ContainerNotStarted",
        "A container could not be started: its command, a mount or its configuration is wrong.",
    )
    IMAGE_UNUSABLE = (
        _T.FAILED,
        _TRUE,
        "ImageUnusable",
        "The training image lacks what Hajob needs: a fitting version of mindio_ttp, or a rendezvous store.",
    )
    MINDIO_TLS_MISMATCH = (
        _T.FAILED,
        _TRUE,
        "MindIOTLSMismatch",
        "The trainer speaks TLS to MindIO, and Hajob's side does not.",
    )
    SCRIPT_ENDED = (
        _T.FAILED,
        _TRUE,
        "ScriptEnded",
        "The start script ended without starting its ranks: it has to call torchrun or msrun.",
    )
    PROGRAM_FAILED = (
        _T.FAILED,
        _TRUE,
        "ProgramFailed",
        "The training program failed more often than spec.recovery.maxProgramFailures allows.",
    )
    STARTUP_DEADLINE = (
        _T.FAILED,
        _TRUE,
        "StartupDeadlineExceeded",
        "The ranks did not all train within spec.startupDeadlineSeconds.",
    )
    ACTIVE_DEADLINE = (
        _T.FAILED,
        _TRUE,
        "ActiveDeadlineExceeded",
        "The job ran longer than spec.activeDeadlineSeconds.",
    )
    CAPACITY_TIMEOUT = (
        _T.FAILED,
        _TRUE,
        "CapacityTimeoutExceeded",
        "Quota or nodes were missing for longer than spec.scheduling.capacityTimeoutSeconds.",
    )
    RESTARTS_EXHAUSTED = (
        _T.FAILED,
        _TRUE,
        "RestartsExhausted",
        "The job was restarted more often than its recovery policy allows.",
    )
    NOT_RECOVERED = (_T.FAILED, _TRUE, "NotRecovered", "No allowed action brought the training back.")

    def __init__(self, type_: ConditionType, status: ConditionStatus, word: str, sentence: str) -> None:
        self.type = type_
        self.status = status
        self.word = word
        self.sentence = sentence


def condition(reason: Reason, now: datetime, *, message: str = "", generation: int | None = None) -> Condition:
    """The condition that a reason stands for; without a message of its own it says the reason's sentence."""
    return Condition(
        type=reason.type,
        status=reason.status,
        reason=reason.word,
        message=message or reason.sentence,
        last_transition_time=now.replace(microsecond=0),
        observed_generation=generation,
    )


def with_condition(conditions: Sequence[Condition], new: Condition) -> tuple[Condition, ...]:
    """The conditions with one of them replaced or added; the transition time changes only with the status."""
    old = next((known for known in conditions if known.type == new.type), None)
    if old is not None and old.status == new.status:
        new = new.model_copy(update={"last_transition_time": old.last_transition_time})
    order = {str(type_): place for place, type_ in enumerate(ConditionType)}
    rest = [known for known in conditions if known.type != new.type]
    return tuple(sorted([*rest, new], key=lambda known: order.get(known.type, len(order))))


def find_condition(conditions: Sequence[Condition], type_: ConditionType) -> Condition | None:
    """The condition of that type, if it is there."""
    return next((known for known in conditions if known.type == type_), None)
