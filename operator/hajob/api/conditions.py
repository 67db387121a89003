"""Every condition and reason of a HATrainingJob, declared once, each with the sentence that explains it.

A reason belongs to one condition and one status, so that a caller names the reason and cannot get the rest wrong.
`docs/user/reference.md` is the same table for readers.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import Enum, StrEnum, unique
from typing import Final

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
    """One reason: its condition, the status it stands for, the word, the sentence, and what to do where it is bad."""

    NOT_CHECKED = (_T.ACCEPTED, _UNKNOWN, "NotChecked", "The operator has not checked the job yet.")
    VALID = (_T.ACCEPTED, _TRUE, "Valid", "The spec is valid and the API server accepts the pods.")
    POD_REFUSED = (
        _T.ACCEPTED,
        _FALSE,
        "PodRefused",
        "The API server refuses the pods of this job.",
        "Read the API server's answer in the message; fix the template, a missing Secret or a policy of the namespace.",
    )
    INVALID = (
        _T.ACCEPTED,
        _FALSE,
        "Invalid",
        "The spec is invalid; the message names the field.",
        "Fix the field that the message names, and apply the job again.",
    )

    SPEC_NOT_READ = (
        _T.ACCEPTED,
        _UNKNOWN,
        "SpecNotRead",
        "This operator cannot read the newest spec: it serves the last one that it has read, or leaves the job alone.",
        "Run the operator version of the installed CRD, or take back the value that the message names.",
    )
    JOURNAL_NEWER = (
        _T.ACCEPTED,
        _UNKNOWN,
        "JournalNewer",
        "A newer operator wrote the journal of this job; this operator leaves the job untouched.",
        "Run the operator version that wrote the journal, or a newer one.",
    )
    JOURNAL_UNREADABLE = (
        _T.ACCEPTED,
        _UNKNOWN,
        "JournalUnreadable",
        "status.journal is damaged; this operator leaves the job untouched.",
        "The training goes on unattended: let it save a checkpoint, then delete the job and apply it again.",
    )

    NO_PODS = (_T.SCHEDULED, _UNKNOWN, "NoPods", "The job has no pods to schedule.")
    ALL_PLACED = (_T.SCHEDULED, _TRUE, "AllPlaced", "Every pod has a node.")
    PODS_PENDING = (
        _T.SCHEDULED,
        _FALSE,
        "PodsPending",
        "Some pods are waiting for the scheduler.",
        "Wait; if it stays, see whether the scheduler named in the template runs.",
    )
    PODS_MISSING = (
        _T.SCHEDULED,
        _FALSE,
        "PodsMissing",
        "Some rank pods are not there, and a fault is held back.",
        "See condition Held; set spec.recovery.mode to Enforce, or request a restart.",
    )
    QUOTA_EXCEEDED = (
        _T.SCHEDULED,
        _FALSE,
        "QuotaExceeded",
        "A ResourceQuota has no room for some pods.",
        "Raise the quota that the message names, or wait until other pods free it.",
    )
    PODS_NOT_CREATED = (
        _T.SCHEDULED,
        _FALSE,
        "PodsNotCreated",
        "The API server does not create some pods.",
        "Read the API server's answer in the message; it is often a policy or webhook of the namespace.",
    )
    WAITING_FOR_CAPACITY = (
        _T.SCHEDULED,
        _FALSE,
        "WaitingForCapacity",
        "The scheduler finds no node for some pods; spec.startupDeadlineSeconds is paused.",
        "Free or add nodes, or relax the nodeSelector, affinity or tolerations that the message names.",
    )
    WAITING_FOR_VOLUME = (
        _T.SCHEDULED,
        _FALSE,
        "WaitingForVolume",
        "A PersistentVolumeClaim of some pods is missing or not bound; spec.startupDeadlineSeconds is paused.",
        "Make the claim that the message names, or see why its volume is not bound: kubectl describe pvc.",
    )
    WAITING_IN_QUEUE = (
        _T.SCHEDULED,
        _FALSE,
        "WaitingInQueue",
        "A queue has not admitted the job yet; it has no pods until then.",
        "The message begins with the queue's name and has its own words: raise its quota, or wait for others to end.",
    )
    UNSATISFIABLE = (
        _T.SCHEDULED,
        _FALSE,
        "Unsatisfiable",
        "No node of the cluster can ever take a rank pod of this job, whatever becomes free.",
        "Change the field that the message names, or add such nodes; the job starts as soon as one fits.",
    )

    NOT_STARTED = (_T.RUNNING, _FALSE, "NotStarted", "The training has not started yet.")
    STARTING = (_T.RUNNING, _FALSE, "Starting", "Pods and ranks are starting.")
    TRAINING = (_T.RUNNING, _TRUE, "Training", "The ranks are training.")
    NO_STEP_ENDED = (
        _T.RUNNING,
        _FALSE,
        "NoStepEnded",
        "The ranks run, and no step has ended for a while: they load, compile, or wait for something.",
        "Run `kubectl hajob stacks JOB` twice: ranks that stand at one place both times hang; otherwise wait for them.",
    )
    NO_RANK_STARTED = (
        _T.RUNNING,
        _FALSE,
        "NoRankStarted",
        "All pods run, and no rank has been started for a while: a start script has not called torchrun or msrun yet.",
        "See what it prints, `kubectl logs POD -c trainer`, and what it runs: `kubectl exec POD -c trainer -- ps -ef`.",
    )
    RECOVERING = (_T.RUNNING, _FALSE, "Recovering", "Hajob is recovering the training from a fault.")
    FINISHING = (_T.RUNNING, _TRUE, "Finishing", "The last step has ended; the ranks save and end.")
    FAULT_HELD = (
        _T.RUNNING,
        _FALSE,
        "Held",
        "A fault stops the training and waits to be decided; condition Held says for what.",
        "Set spec.recovery.mode to Enforce, or spec.restartRequestTime to start the job anew by hand.",
    )
    PAUSED = (_T.RUNNING, _FALSE, "Paused", "Every rank waits at the end of a step, as spec.pause requests.")
    RESTARTING = (_T.RUNNING, _FALSE, "Restarting", "The whole job is restarting from a checkpoint.")
    RUNNING_ENDED = (_T.RUNNING, _FALSE, "Ended", "The training has ended.")
    RUNNING_SUSPENDED = (_T.RUNNING, _FALSE, "Suspended", "The job is suspended.")

    NOT_EVALUATED = (_T.RECOVERABLE, _UNKNOWN, "NotTraining", "Recovery is evaluated while the job trains.")
    RECOVERABLE = (_T.RECOVERABLE, _TRUE, "PreconditionsMet", "Hajob can recover a lost process or node.")
    UNRECOVERABLE = (
        _T.RECOVERABLE,
        _FALSE,
        "PreconditionsUnmet",
        "Some recovery actions would not work now; status.protection says which, why, and what to change.",
        "Change what status.protection names; `kubectl hajob doctor JOB` shows it, too (docs/user/preconditions.md).",
    )

    COPIES_NOT_REGISTERED = (
        _T.RECOVERABLE,
        _FALSE,
        "CopiesNotRegistered",
        "The trainer has not registered its optimizer copies with MindIO, so every fault costs a restart.",
        "Start the training from a pretrain entry, which registers handlers and copies with MindIO.",
    )

    NOT_ALL_KNOWN = (
        _T.RECOVERABLE,
        _TRUE,
        "PreconditionsUnknown",
        "Hajob can recover a lost process or node, as far as it can see; the message names what it cannot see.",
    )

    COORDINATOR_ABSENT = (_T.COORDINATOR_READY, _UNKNOWN, "NoPod", "The coordinator pod does not exist yet.")
    COORDINATOR_NOT_NEEDED = (
        _T.COORDINATOR_READY,
        _FALSE,
        "NotNeeded",
        "The job is not running and has no coordinator.",
    )
    COORDINATOR_PENDING = (
        _T.COORDINATOR_READY,
        _FALSE,
        "PodPending",
        "The coordinator pod is waiting for a node.",
        "Add a node without chips for coordinators, or make room on one.",
    )
    COORDINATOR_STARTING = (_T.COORDINATOR_READY, _FALSE, "Starting", "The coordinator pod is starting.")
    COORDINATOR_SERVING = (
        _T.COORDINATOR_READY,
        _TRUE,
        "Serving",
        "The coordinator and its MindIO controller are serving.",
    )
    COORDINATOR_SHARES_NODE = (
        _T.COORDINATOR_READY,
        _TRUE,
        "SharesNode",
        "The coordinator serves, but shares a node with ranks of its job: losing that node costs a restart.",
        "Add a node without chips for coordinators, or accept that losing this node costs a restart.",
    )
    COORDINATOR_UNREACHABLE = (
        _T.COORDINATOR_READY,
        _FALSE,
        "Unreachable",
        "The operator cannot reach the coordinator.",
        "Check the network between operator and coordinator pod, and the NetworkPolicies of both namespaces.",
    )
    CONTROLLER_NOT_STARTED = (
        _T.COORDINATOR_READY,
        _FALSE,
        "ControllerNotStarted",
        "The MindIO controller or its rendezvous store cannot start from the training image.",
        "Install a matching mindio_ttp in the image, in the Python that spec.coordinator.pythonPath names.",
    )
    TAKING_OVER = (
        _T.COORDINATOR_READY,
        _FALSE,
        "TakingOver",
        "The MindIO controller was lost and another one is taking over; the training goes on, and faults wait for it.",
    )
    CONTROLLER_LOST = (
        _T.COORDINATOR_READY,
        _FALSE,
        "ControllerLost",
        "The MindIO controller is lost for good; the training goes on unprotected until the job restarts.",
        "Set spec.restartRequestTime to restart now; otherwise spec.recovery.coordinatorLossPolicy decides when.",
    )

    FULL_SIZE = (_T.SHRUNK, _FALSE, "FullSize", "All data-parallel ranks train.")
    FEWER_RANKS = (
        _T.SHRUNK,
        _TRUE,
        "FewerDataParallelRanks",
        "The job trains with fewer data-parallel ranks than spec.numNodes gives.",
        "Free or add nodes: status.dataParallel says how many the job needs to grow back.",
    )

    SPARES_NOT_ASKED = (
        _T.SPARES_READY,
        _UNKNOWN,
        "NotAsked",
        "scheduling.numSpareNodes is 0: the job reserves no spare nodes.",
    )
    SPARES_AFTER_START = (
        _T.SPARES_READY,
        _FALSE,
        "AfterStart",
        "Hajob reserves spare nodes once the job trains at full size, so that no start waits for them.",
    )
    SPARES_READY = (_T.SPARES_READY, _TRUE, "AllReady", "All spare nodes are reserved.")
    SPARES_PENDING = (
        _T.SPARES_READY,
        _FALSE,
        "Pending",
        "Some spare nodes are not reserved yet.",
        "Free or add nodes that fit the job, or lower spec.scheduling.numSpareNodes.",
    )
    SPARES_NOT_CREATED = (
        _T.SPARES_READY,
        _FALSE,
        "NotCreated",
        "Some spare pods were refused or have ended.",
        "Read the answer of the API server or the pod in the message; raise the quota, or fix what ends the pod.",
    )

    NOT_DEGRADED = (_T.DEGRADED, _FALSE, "NotDegraded", "Nothing keeps Hajob from serving the job as the spec says.")
    CRD_OLDER = (
        _T.DEGRADED,
        _TRUE,
        "CRDOlder",
        "The installed CRD is older than this operator; status fields it lacks are dropped.",
        "Run `kubectl apply --server-side -f crds/` with the files of the operator's version.",
    )
    FIELDS_NOT_READ = (
        _T.DEGRADED,
        _TRUE,
        "FieldsNotRead",
        "This operator is older than the CRD and does not know some fields of the spec; it ignores these fields.",
        "Run the operator version that knows the fields, or remove them from the spec.",
    )
    LOG_RULE_OFF = (
        _T.DEGRADED,
        _TRUE,
        "LogRuleOff",
        "A log rule of the job is not applied, or not to every line; no fault follows from that.",
        "Change the pattern that the message names in spec.recovery.logRules (docs/user/training-images.md).",
    )
    CHECKPOINT_VOLUME_FULL = (
        _T.DEGRADED,
        _TRUE,
        "CheckpointVolumeFull",
        "The volume of the checkpoints is full: the next save fails, and a restart loads an older checkpoint.",
        "Make room on the volume: remove directories that end in _tmp, and have the script keep fewer checkpoints.",
    )
    QUOTA_UNKNOWN = (
        _T.DEGRADED,
        _TRUE,
        "QuotaUnknown",
        "The job trains, and its queue does not say any more that it has quota; it stops only when the queue asks.",
        "See whether Kueue runs, and whether the job's Workload is there: kubectl get workloads.",
    )
    MOVE_FAILED = (
        _T.DEGRADED,
        _TRUE,
        "MoveFailed",
        "A move failed: pods still run on a node that they should leave. Hajob tries again.",
        "Read the reason in the message; a move needs a free node, recovery.mode Enforce and a MindIO controller.",
    )

    NOT_HELD = (_T.HELD, _FALSE, "NotHeld", "Hajob acts on faults of this job.")
    MODE_HOLD = (
        _T.HELD,
        _TRUE,
        "ModeHold",
        "spec.recovery.mode is Hold: Hajob starts no recovery.",
        "Set spec.recovery.mode to Enforce when Hajob may act again.",
    )
    WAITS_FOR_CONTROLLER = (
        _T.HELD,
        _TRUE,
        "WaitsForController",
        "A fault waits until a MindIO controller protects the job again; the training may stand still meanwhile.",
        "Wait up to ten minutes for the new MindIO controller; condition CoordinatorReady says why it does not come.",
    )
    MODE_OBSERVE = (
        _T.HELD,
        _TRUE,
        "ModeObserve",
        "spec.recovery.mode is Observe: Hajob reports its decisions and does not carry them out.",
        "Set spec.recovery.mode to Enforce when Hajob may act.",
    )

    BREAKER_OPEN = (
        _T.HELD,
        _TRUE,
        "BreakerOpen",
        "Too many nodes or chips were reported faulty at once; Hajob takes no irreversible action until it closes.",
        "Run `kubectl hajob breaker` to see why; for real faults add `--believe` (docs/admin/faults.md#the-breaker).",
    )

    NOT_SUSPENDED = (_T.SUSPENDED, _FALSE, "NotSuspended", "The job is not suspended.")
    SUSPENDING = (_T.SUSPENDED, _FALSE, "Suspending", "Hajob is ending the pods of the job.")
    EVICTING = (
        _T.SUSPENDED,
        _FALSE,
        "Evicting",
        "The queue takes the job's quota back; Hajob saves the training, ends its pods, and gives the quota back.",
    )
    EVICTED = (
        _T.SUSPENDED,
        _TRUE,
        "Evicted",
        "The queue has taken the job's quota back; the job resumes by itself once it is admitted again.",
    )
    SUSPENDED = (_T.SUSPENDED, _TRUE, "Suspended", "The job has no pods; set spec.suspend to false to resume it.")

    NOT_COMPLETE = (_T.COMPLETE, _FALSE, "NotComplete", "The training is not complete.")
    ALL_RANKS_FINISHED = (_T.COMPLETE, _TRUE, "AllRanksFinished", "Every rank ended with exit code 0.")
    SCRIPT_DISAGREES = (
        _T.COMPLETE,
        _TRUE,
        "ScriptDisagrees",
        "Every rank finished its training; the start script then ended with an error.",
        "Fix the end of the start script; a common cause is `tee` into a missing directory.",
    )

    NOT_FAILED = (_T.FAILED, _FALSE, "NotFailed", "The job has not failed.")
    IMAGE_UNAVAILABLE = (
        _T.FAILED,
        _TRUE,
        "ImageUnavailable",
        "An image could not be pulled.",
        "Check the image's name and tag, the imagePullSecrets, and the registry from that node.",
    )
    CONTAINER_NOT_STARTED = (
        _T.FAILED,
        _TRUE,
        "ContainerNotStarted",
        "A container could not be started: its command, a mount or its configuration is wrong.",
        "Fix the command, mount, ConfigMap or Secret that the message names.",
    )
    IMAGE_UNUSABLE = (
        _T.FAILED,
        _TRUE,
        "ImageUnusable",
        "The training image lacks what Hajob needs: a matching mindio_ttp, or a rendezvous store.",
        "Install what the message names in the image (docs/user/training-images.md).",
    )
    MINDIO_TLS_MISMATCH = (
        _T.FAILED,
        _TRUE,
        "MindIOTLSMismatch",
        "The trainer speaks TLS to MindIO, and its gate speaks none or has other certificates.",
        "Switch MindIO's own TLS off in the start script, or give it the job's certificates.",
    )
    SCRIPT_ENDED = (
        _T.FAILED,
        _TRUE,
        "ScriptEnded",
        "The start script ended without starting its ranks: it must call torchrun or msrun.",
        "Call torchrun, torch.distributed.run or msrun from the start script (docs/user/training-images.md).",
    )
    PROGRAM_FAILED = (
        _T.FAILED,
        _TRUE,
        "ProgramFailed",
        "The training program failed more often than spec.recovery.maxProgramFailures allows.",
        "Read the failing rank's output with `kubectl hajob logs JOB --failed`, and fix the program.",
    )
    STARTUP_DEADLINE = (
        _T.FAILED,
        _TRUE,
        "StartupDeadlineExceeded",
        "The start made no progress for spec.startupDeadlineSeconds.",
        "Read the ranks' output with `kubectl hajob logs JOB --rank R`; raise the deadline if the start is only slow.",
    )
    ACTIVE_DEADLINE = (
        _T.FAILED,
        _TRUE,
        "ActiveDeadlineExceeded",
        "The job ran longer than spec.activeDeadlineSeconds.",
        "Raise or remove spec.activeDeadlineSeconds, and set spec.restartRequestTime to go on from the checkpoint.",
    )
    CAPACITY_TIMEOUT = (
        _T.FAILED,
        _TRUE,
        "CapacityTimeoutExceeded",
        "Quota or nodes were missing for longer than spec.scheduling.capacityTimeoutSeconds.",
        "Free or add nodes or quota, then set spec.restartRequestTime.",
    )
    RESTARTS_EXHAUSTED = (
        _T.FAILED,
        _TRUE,
        "RestartsExhausted",
        "The job needed more restarts than spec.recovery.actions allows.",
        "Find the repeated cause in status.incidents and remove it, then set spec.restartRequestTime.",
    )
    NOT_RECOVERED = (
        _T.FAILED,
        _TRUE,
        "NotRecovered",
        "No allowed action recovered the training.",
        "Read in status.incidents why actions were refused; fix a precondition, then set spec.restartRequestTime.",
    )

    def __init__(
        self, type_: ConditionType, status: ConditionStatus, word: str, sentence: str, remedy: str = ""
    ) -> None:
        self.type = type_
        self.status = status
        self.word = word
        self.sentence = sentence
        self.remedy = remedy


QUIET_REASONS: Final = (Reason.NO_RANK_STARTED, Reason.NO_STEP_ENDED)
"""Reasons of a job whose pods run and which does not get on: people are told, and nothing follows."""


def reason_of(type_: str, word: str) -> Reason | None:
    """Return the reason that a condition of a status names; None where this version does not know it."""
    return next((reason for reason in Reason if (reason.type, reason.word) == (type_, word)), None)


def build_condition(reason: Reason, now: datetime, *, message: str = "", generation: int | None = None) -> Condition:
    """Build the condition that a reason stands for; an empty message is replaced by the reason's sentence."""
    return Condition(
        type=reason.type,
        status=reason.status,
        reason=reason.word,
        message=message or reason.sentence,
        last_transition_time=now.replace(microsecond=0),
        observed_generation=generation,
    )


def with_condition(conditions: Sequence[Condition], new: Condition) -> tuple[Condition, ...]:
    """Replace one condition, or add it, in the order of display; the transition time changes only with the status."""
    old = next((known for known in conditions if known.type == new.type), None)
    if old is not None and old.status == new.status:
        new = new.model_copy(update={"last_transition_time": old.last_transition_time})
    order = {str(type_): place for place, type_ in enumerate(ConditionType)}
    rest = [known for known in conditions if known.type != new.type]
    return tuple(sorted([*rest, new], key=lambda known: order.get(known.type, len(order))))


def find_condition(conditions: Sequence[Condition], type_: ConditionType) -> Condition | None:
    """Return the condition of this type; None where there is none."""
    return next((known for known in conditions if known.type == type_), None)
