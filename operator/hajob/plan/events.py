"""Events: everything that can happen to a job, as the planner sees it.

Facts and milestones from a coordinator, findings of the shell in Kubernetes, expired deadlines, and requests of
users. A coordinator's event carries its incarnation (0: unknown); an event of another incarnation changes nothing
and is counted.
"""

from dataclasses import dataclass

from hajob.api.event_reasons import EventReason
from hajob.domain.facts import Fact


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Base of all events.

    Attributes:
        incarnation: of the event's incident, 0 if it has none or the sender did not say.
    """

    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class Accepted(JobEvent):
    """The job is new and its spec has been accepted: make its pods."""


@dataclass(frozen=True, slots=True)
class PodsReady(JobEvent):
    """Every rank pod of the attempt runs, its agent is connected and its start script has asked for its ranks."""


@dataclass(frozen=True, slots=True)
class AllRanksStarted(JobEvent):
    """Every rank of the attempt is linked to MindIO (milestone STARTED).

    Attributes:
        attempt: of the coordinator's state; another attempt is refused, 0 is not checked.
    """

    attempt: int = 0


@dataclass(frozen=True, slots=True)
class FactSeen(JobEvent):
    """Something was observed.

    `incarnation` is the highest number that the coordinator knows; it may have minted one for a standing order.
    """

    fact: Fact = None  # type: ignore[assignment]  # required; dataclass order of the base forces a default


@dataclass(frozen=True, slots=True)
class FactsWithdrawn(JobEvent):
    """Faults that had opened or joined the incident do not stand any more; `ids` are those of the facts."""

    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stopped(JobEvent):
    """MindIO has locked the training (milestone STOPPED); `ranks` is its own list of lost ranks."""

    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplacementsReady(JobEvent):
    """Every replacement stands at its gate (milestone REPLACEMENTS_READY).

    Attributes:
        revision: of the order it answers (CoordinatorState.order_revision); 0 is not checked.
    """

    revision: int = 0


@dataclass(frozen=True, slots=True)
class Named(JobEvent):
    """MindIO has been told every lost rank (milestone NAMED).

    Attributes:
        revision: of the order whose ranks were named; 0 is not checked.
    """

    revision: int = 0


@dataclass(frozen=True, slots=True)
class StrategiesOffered(JobEvent):
    """What MindIO is ready to do (milestone STRATEGIES)."""

    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resumed(JobEvent):
    """The first step of an attempt, or the first step after an outage, has ended (milestone RESUMED)."""

    step: int = -1


@dataclass(frozen=True, slots=True)
class ResultReported(JobEvent):
    """MindIO's result (milestone RESULT); codes in docs/protocols/mindio.md.

    Attributes:
        unverified: Of a save that MindIO reports: why nobody has found it on the volume. Empty: it was found there.
    """

    code: int = 0
    text: str = ""
    strategy: str = ""
    ranks: tuple[int, ...] = ()
    unverified: str = ""


@dataclass(frozen=True, slots=True)
class AllFinished(JobEvent):
    """No rank works any more, and nothing is left to train (milestone FINISHED_ALL).

    Attributes:
        nodes: node ranks whose ranks have all ended with 0; their start scripts may go on.
    """

    nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LastStepEnded(JobEvent):
    """The last step has ended on every rank, or a rank has ended in order: nothing is left to train.

    Attributes:
        saved: the checkpoint of that step is complete.
        nodes: node ranks whose ranks have all ended with 0.
        attempt: of these ranks; another attempt is refused, 0 is not checked.
    """

    saved: bool = False
    nodes: tuple[int, ...] = ()
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class PodsFinished(JobEvent):
    """Every rank pod that trains has ended with 0: the word of Kubernetes, where no coordinator was there to tell."""


@dataclass(frozen=True, slots=True)
class DeadlineReached(JobEvent):
    """A deadline of the state has passed; one that is not set or not yet due changes nothing."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class CoordinatorMoveRequested(JobEvent):
    """The coordinator's node is to be emptied.

    Attributes:
        message: for people.
    """

    message: str = ""


@dataclass(frozen=True, slots=True)
class RanksUnreachable(JobEvent):
    """Rank pods are about to be deleted without grace: nobody on these nodes could end their ranks."""

    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CapacityAvailable(JobEvent):
    """So many nodes could take a rank pod of this job now."""

    nodes: int = 0


@dataclass(frozen=True, slots=True)
class CapacityLost(JobEvent):
    """The capacity announced before is gone again."""


@dataclass(frozen=True, slots=True)
class PlacesMissing(JobEvent):
    """Quota or nodes are missing for pods that should exist.

    Attributes:
        message: what is missing.
        reason: of the Event.
    """

    message: str = ""
    reason: EventReason = EventReason.WAITING_FOR_CAPACITY


@dataclass(frozen=True, slots=True)
class PlacesFound(JobEvent):
    """Every pod that should exist is created and has a node."""


@dataclass(frozen=True, slots=True)
class MigrateRequested(JobEvent):
    """Move these node ranks' pods to other nodes without losing a step.

    Attributes:
        nodes: node ranks to be moved.
        avoid: names of nodes not to be placed on.
        reason: for people.
    """

    nodes: tuple[int, ...] = ()
    avoid: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PauseRequested(JobEvent):
    """The training is to be held at the end of a step while other work is done.

    Attributes:
        request: tells one request from the next; not empty.
        seconds: longest time that the training may be held.
        reason: a sentence for the incident's cause.
        refused: why the work cannot be done; empty where it can.
    """

    request: str = ""
    seconds: int = 0
    reason: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class PauseEnded(JobEvent):
    """The work of a pause is done; `message` says how it went."""

    message: str = ""


@dataclass(frozen=True, slots=True)
class CoordinatorLost(JobEvent):
    """The coordinator's pod has ended or is gone, and the MindIO controller with it.

    Attributes:
        message: for people.
        program: the coordinator failed to start or ended by itself: the image fails, not the machine.
    """

    message: str = ""
    program: bool = False


@dataclass(frozen=True, slots=True)
class CoordinatorUnreachable(JobEvent):
    """There is a coordinator to dial, and no word from it: now, or when a new leader began to dial.

    A running training waits for it to come back; a start or a recovery relies on its own deadline.
    """


@dataclass(frozen=True, slots=True)
class CoordinatorReachable(JobEvent):
    """The coordinator is heard again; whether its controller serves is another matter."""


@dataclass(frozen=True, slots=True)
class CoordinatorUnplaced(JobEvent):
    """The scheduler finds no node for the coordinator's pod."""


@dataclass(frozen=True, slots=True)
class CoordinatorPlaced(JobEvent):
    """The coordinator's pod has a node."""


@dataclass(frozen=True, slots=True)
class CoordinatorReady(JobEvent):
    """A coordinator serves: its controller knows every rank."""


@dataclass(frozen=True, slots=True)
class ControllerTakenOver(JobEvent):
    """Another MindIO controller has taken the place of a lost one; so long nobody protected the ranks.

    `store_kept`: the new coordinator holds the contents of the lost rendezvous store.
    """

    duration_ms: int = 0
    store_kept: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointVerified(JobEvent):
    """A complete periodic checkpoint of this step exists."""

    step: int = 0


@dataclass(frozen=True, slots=True)
class Unworkable(JobEvent):
    """Image or settings are such that MindIO cannot work with this job, and no restart changes that.

    Attributes:
        reason: of the condition Failed.
        message: what is wrong, and what to do.
    """

    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class SuspendRequested(JobEvent):
    """spec.suspend became true, or the queue takes the job's quota back.

    Attributes:
        message: why the queue does; empty where a person asks.
    """

    message: str = ""


@dataclass(frozen=True, slots=True)
class ResumeRequested(JobEvent):
    """spec.suspend became false, or the queue has admitted the job again."""


@dataclass(frozen=True, slots=True)
class RestartRequested(JobEvent):
    """spec.restartRequestTime is newer than the last start.

    Attributes:
        must_save: only if the present step is saved before.
    """

    must_save: bool = False


@dataclass(frozen=True, slots=True)
class PolicyChanged(JobEvent):
    """The recovery policy was edited; what was held may go on."""


@dataclass(frozen=True, slots=True)
class Deleted(JobEvent):
    """The CR is being deleted."""


EVENTS: tuple[type[JobEvent], ...] = (
    ControllerTakenOver,
    Accepted,
    PodsReady,
    AllRanksStarted,
    FactSeen,
    FactsWithdrawn,
    Stopped,
    ReplacementsReady,
    Named,
    StrategiesOffered,
    Resumed,
    ResultReported,
    LastStepEnded,
    AllFinished,
    PodsFinished,
    DeadlineReached,
    CapacityAvailable,
    CapacityLost,
    PlacesMissing,
    PlacesFound,
    MigrateRequested,
    PauseRequested,
    PauseEnded,
    CoordinatorMoveRequested,
    RanksUnreachable,
    CoordinatorLost,
    CoordinatorUnreachable,
    CoordinatorReachable,
    CoordinatorUnplaced,
    CoordinatorPlaced,
    CoordinatorReady,
    CheckpointVerified,
    Unworkable,
    SuspendRequested,
    ResumeRequested,
    RestartRequested,
    PolicyChanged,
    Deleted,
)
"""Every kind of event; the exhaustive test of the table walks these."""
