"""Everything that can happen to a job, as the planner sees it.

Facts and milestones of a coordinator, what the shell found in Kubernetes, deadlines that ran out, and what people
ask for. Events of a coordinator carry the incarnation they belong to (0: not said); one of another incarnation
changes nothing and is counted.
"""

from hajob.domain.facts import Fact
from hajob.domain.records import record


@record
class Event:
    """Base of all events.

    Attributes:
        incarnation: of the incident it belongs to, 0 where it belongs to none or the sender did not say.
    """

    incarnation: int = 0


@record
class Accepted(Event):
    """The job is new and its spec has been accepted: make its pods."""


@record
class PodsReady(Event):
    """Every rank pod of the attempt runs, its agent is connected and its start script has asked for its ranks."""


@record
class AllRanksStarted(Event):
    """Every rank of the attempt is linked to MindIO (milestone STARTED).

    Attributes:
        attempt: of the coordinator's state; another attempt's is refused, 0 is not checked.
    """

    attempt: int = 0


@record
class FactSeen(Event):
    """Something was observed.

    `incarnation` is the highest number the coordinator knows, which may have minted one for its reflex.
    """

    fact: Fact = None  # type: ignore[assignment]  # required; dataclass order of the base forces a default


@record
class Stopped(Event):
    """MindIO has locked the training (milestone STOPPED); `ranks` is its own list of lost ranks."""

    ranks: tuple[int, ...] = ()


@record
class ReplacementsReady(Event):
    """Every replacement stands at its gate (milestone REPLACEMENTS_READY).

    Attributes:
        revision: of the order it answers (CoordinatorState.order_revision); 0 is not checked.
    """

    revision: int = 0


@record
class Named(Event):
    """MindIO has been told every lost rank (milestone NAMED).

    Attributes:
        revision: of the order whose ranks were named; 0 is not checked.
    """

    revision: int = 0


@record
class StrategiesOffered(Event):
    """What MindIO is ready to do (milestone STRATEGIES)."""

    names: tuple[str, ...] = ()


@record
class Resumed(Event):
    """The first step of an attempt, or the first step after an outage, has ended (milestone RESUMED)."""

    step: int = -1


@record
class ResultReported(Event):
    """MindIO's result (milestone RESULT); codes in docs/protocols/mindio.md."""

    code: int = 0
    text: str = ""
    strategy: str = ""
    ranks: tuple[int, ...] = ()


@record
class AllFinished(Event):
    """Every rank ended with 0 (milestone FINISHED_ALL)."""


@record
class PodsFinished(Event):
    """Every rank pod that trains has ended with 0: the word of Kubernetes, where no coordinator was there to tell."""


@record
class DeadlineReached(Event):
    """A deadline of the state has passed; one that is not set or not yet due changes nothing."""

    name: str = ""


@record
class CapacityAvailable(Event):
    """So many nodes could take a rank pod of this job now."""

    nodes: int = 0


@record
class CapacityLost(Event):
    """The capacity announced before is gone again."""


@record
class ExpandDue(Event):
    """Grow back now, without waiting for the delay (asked for by a person)."""


@record
class MigrateRequested(Event):
    """Move these node ranks' pods to other nodes without losing a step.

    Attributes:
        nodes: node ranks to be moved.
        avoid: names of nodes not to be placed on.
        reason: for people.
    """

    nodes: tuple[int, ...] = ()
    avoid: tuple[str, ...] = ()
    reason: str = ""


@record
class CoordinatorLost(Event):
    """The MindIO controller is gone; the training goes on unprotected.

    Attributes:
        message: for people.
        ended: its pod has ended or is gone. One that merely cannot be reached (False) may come back: a running
            training waits for it, a start or a recovery leaves it to its own deadline.
        program: it could not be started, or ended by its own doing: what is in the image fails, not the machine.
    """

    message: str = ""
    ended: bool = True
    program: bool = False


@record
class CoordinatorReady(Event):
    """A coordinator serves; after a loss its controller is blind until the next restart."""


@record
class CheckpointVerified(Event):
    """A complete periodic checkpoint of this step exists."""

    step: int = 0


@record
class Unworkable(Event):
    """Image or settings are such that MindIO cannot work with this job, and no restart changes that.

    Attributes:
        reason: of the condition Failed.
        message: what is wrong, and what to do.
    """

    reason: str = ""
    message: str = ""


@record
class SuspendRequested(Event):
    """spec.suspend became true."""


@record
class ResumeRequested(Event):
    """spec.suspend became false."""


@record
class RestartRequested(Event):
    """spec.restartRequestTime is newer than the last start."""


@record
class PolicyChanged(Event):
    """The recovery policy was edited; what was held may go on."""


@record
class Deleted(Event):
    """The CR is being deleted."""


EVENTS: tuple[type[Event], ...] = (
    Accepted,
    PodsReady,
    AllRanksStarted,
    FactSeen,
    Stopped,
    ReplacementsReady,
    Named,
    StrategiesOffered,
    Resumed,
    ResultReported,
    AllFinished,
    PodsFinished,
    DeadlineReached,
    CapacityAvailable,
    CapacityLost,
    ExpandDue,
    MigrateRequested,
    CoordinatorLost,
    CoordinatorReady,
    CheckpointVerified,
    Unworkable,
    SuspendRequested,
    ResumeRequested,
    RestartRequested,
    PolicyChanged,
    Deleted,
)
"""Every kind of event; the exhaustive walk of the table goes over these."""
