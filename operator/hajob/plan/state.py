"""The state of one job: everything the planner remembers, small enough to be written into the status.

Frozen values only, so that a transition is a function and a test can keep every state it has seen. Mappings are
never changed in place. `hajob.job.status.journal` writes and reads it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from hajob.domain.actions import Action
from hajob.domain.facts import FactKind
from hajob.domain.incidents import Incident


class JobPhase(StrEnum):
    """The states of the table; docs/internals/state-machine.md has a sentence for each."""

    NEW = "New"
    PENDING = "Pending"
    STARTING = "Starting"
    WARMING = "Warming"
    RUNNING = "Running"
    UNPROTECTED = "Unprotected"
    HELD = "Held"
    GATHERING = "Gathering"
    RESUMING = "Resuming"
    CONFIRMING = "Confirming"
    SHRINKING = "Shrinking"
    SHRUNK = "Shrunk"
    EXPANDING = "Expanding"
    MIGRATING = "Migrating"
    PAUSED = "Paused"
    SAVING = "Saving"
    ENDING = "Ending"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"
    DELETED = "Deleted"


JOB_PHASE_SENTENCE: Final = {
    JobPhase.NEW: "nothing has been made yet",
    JobPhase.PENDING: "pods and coordinator are being made, scheduled and started",
    JobPhase.STARTING: "the pods run; the ranks are being started and linked",
    JobPhase.WARMING: "every rank is linked; the first step has not ended, so MindIO can recover nothing",
    JobPhase.RUNNING: "training at the size it was started with, protected",
    JobPhase.UNPROTECTED: "training goes on, but the MindIO controller is gone",
    JobPhase.HELD: "an incident is open and waits, by policy or for a MindIO controller",
    JobPhase.GATHERING: "the training is locked; replacements are being made, every further loss joins",
    JobPhase.RESUMING: "MindIO has been told the lost ranks and repairs; nothing can join any more",
    JobPhase.CONFIRMING: "training again; MindIO's late result is awaited",
    JobPhase.SHRINKING: "MindIO drops data-parallel ranks",
    JobPhase.SHRUNK: "training with fewer data-parallel ranks",
    JobPhase.EXPANDING: "dropped ranks are coming back; the others train on until all are there",
    JobPhase.MIGRATING: "second pods are being made for pods that shall move",
    JobPhase.PAUSED: "every rank waits at the end of a step, by request, while other work is done",
    JobPhase.SAVING: "MindIO saves a checkpoint of the step where the training stands",
    JobPhase.ENDING: "the last step has ended: nothing is left to train, ranks save and end",
    JobPhase.RESTARTING: "every process ends and the job starts anew from a checkpoint",
    JobPhase.SUSPENDED: "no pods, by request",
    JobPhase.COMPLETE: "every rank has ended with 0",
    JobPhase.FAILED: "given up, with a reason",
    JobPhase.DELETED: "the job is being deleted",
}

ENDED: Final = frozenset({JobPhase.COMPLETE, JobPhase.FAILED, JobPhase.DELETED})
UNTRAINED: Final = (JobPhase.PENDING, JobPhase.STARTING, JobPhase.WARMING, JobPhase.RESTARTING)
"""Phases in which no step of the attempt has ended."""
REMADE: Final = frozenset({JobPhase.PENDING, JobPhase.RESTARTING})
"""Phases in which a deleted pod is recreated without further consequences."""
HELD_UP: Final = (JobPhase.GATHERING, JobPhase.RESUMING, JobPhase.SHRINKING, JobPhase.PAUSED)
"""Phases in which every rank stands, or is about to, while a coordinator carries out an order."""
LIVE: Final = tuple(phase for phase in JobPhase if phase not in ENDED)
WITHOUT_PODS: Final = frozenset({JobPhase.NEW, JobPhase.SUSPENDED, *ENDED})
"""Phases in which a job has no pods."""
STEADY: Final = frozenset(
    {JobPhase.RUNNING, JobPhase.SHRUNK, JobPhase.UNPROTECTED, JobPhase.HELD, JobPhase.SUSPENDED, JobPhase.NEW}
)
"""Phases that may last without a deadline: the job trains, or waits for a person."""


ALL_MADE: Final = frozenset({JobPhase.RUNNING, JobPhase.UNPROTECTED, JobPhase.SHRUNK, JobPhase.HELD})
"""Phases in which every rank pod has been made before, unless a start is held: one that is missing was lost."""


class Deadline(StrEnum):
    """Name of a deadline; a state has at most one of each."""

    STARTUP = "Startup"
    RECOVERY = "Recovery"
    EXPAND = "Expand"
    UNPLACED = "Unplaced"
    UNREACHABLE = "Unreachable"
    COORDINATOR = "Coordinator"
    ACTIVE = "Active"
    CAPACITY = "Capacity"
    RELEASE = "Release"
    FIT = "Fit"
    FINISH = "Finish"


EVERY_NODE_RANK: Final = -1
"""Key of entries that hold for every node rank."""
OF_COORDINATOR: Final = (Deadline.UNPLACED, Deadline.UNREACHABLE, Deadline.COORDINATOR)
"""Deadlines of one coordinator, cleared with it."""
PROGRAM_BUDGET: Final = "Program"
"""Name of the budget of faults that the program caused itself."""
MAINTENANCE_BUDGET: Final = "Maintenance"
"""Name of the budget for drains, preemption and lost coordinators."""


@dataclass(frozen=True, slots=True)
class Spend:
    """One use of a budget (an action's name or `PROGRAM_BUDGET`) at a time."""

    budget: str
    time_ms: int


@dataclass(frozen=True, slots=True)
class Stall:
    """How often an action was taken because of the same rank (-1: the whole job) at the same step."""

    action: Action
    rank: int
    step: int
    count: int


@dataclass(frozen=True, slots=True)
class Failure:
    """The newest failure of a rank, for the question whether it repeats (hajob.plan.repeats).

    Attributes:
        step: the last step that had ended.
        count: failures of the rank at this step so far; 0: a fault of the machine explains the newest.
        kind: of the fact that told it.
        incarnation: of the process.
        node_name: where it ran, empty where that is not known.
        time_ms: when it was decided upon.
    """

    rank: int
    step: int
    count: int
    kind: FactKind
    incarnation: int = 0
    node_name: str = ""
    time_ms: int = 0


@dataclass(frozen=True, slots=True)
class Shrunk:
    """Ranks and pods that a shrink dropped.

    Attributes:
        dropped: data-parallel ranks that left.
        ranks: isolated ranks.
        nodes: pods that left.
        lost_nodes: those of `nodes` that are gone or useless; the others may be kept for growing back.
        since_ms: time of the shrink.
        capacity_ms: since when there have been nodes for all of them, 0 while there are not.
        full_step_ms: how long a step took at full size, 0 where that is not known.
    """

    dropped: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    lost_nodes: tuple[int, ...] = ()
    since_ms: int = 0
    capacity_ms: int = 0
    full_step_ms: int = 0

    def absent_nodes(self, *, released: bool) -> tuple[int, ...]:
        """Return the node ranks that need a node for growing back; `released`: the healthy pods were given up, too."""
        return self.nodes if released else self.lost_nodes


@dataclass(frozen=True, slots=True)
class Smaller:
    """An attempt that was started without some of the job's nodes; it has node ranks 0 to `nodes` - 1.

    Attributes:
        nodes: number of nodes it was started with.
        missing: number of nodes it lacks.
        since_ms: since when the job has had fewer than all.
        capacity_ms: since when there have been nodes for all of the missing, 0 while there are not.
    """

    nodes: int
    missing: int
    since_ms: int = 0
    capacity_ms: int = 0

    @property
    def absent_nodes(self) -> tuple[int, ...]:
        """Node ranks that need a node for growing back."""
        return tuple(range(self.nodes, self.nodes + self.missing))


@dataclass(frozen=True, slots=True)
class Ending:
    """An attempt whose last step has ended.

    Attributes:
        since_ms: when that was known.
        saved: the checkpoint of the last step is complete.
        over: node ranks whose ranks have all ended with 0; what happens to their pods is no loss.
    """

    since_ms: int
    saved: bool = False
    over: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """A start that waits for quota or nodes.

    Attributes:
        since_ms: begin of the wait.
        start_left_ms: how much of its start-up time was left then.
        released: its rank pods were deleted, so that other jobs can use the chips meanwhile.
    """

    since_ms: int
    start_left_ms: int = 0
    released: bool = False


@dataclass(frozen=True, slots=True)
class JobState:
    """Everything that the planner remembers about one job.

    Attributes:
        phase: state of the table.
        held_from: the phase in which the open incident was held back, None while it is not: the phase goes on as long
            as the incident stops nothing, and it tells what is still possible when the incident is decided.
        incarnation: highest number ever used; every new pod, process and order carries one.
        attempt: rises with every start of the whole job; the first is 1.
        base: incarnation of the attempt's start, of every pod and process not named below.
        renewed: rank to the incarnation of its process, where it was started anew; bounded, oldest forgotten.
        pods: node rank to the incarnation of its pod, where the pod was recreated.
        released: node ranks that have no pod now, dropped by a shrink.
        avoided: node rank to the names of nodes where its pod must not be placed again while the incident lasts. Kept
            for longer, a job that lives long enough would have no node left.
        places: node rank to the name of the spare node where its pod is placed, while the incident lasts.
        coordinator: incarnation of the newest coordinator pod.
        relieved: incarnation of a coordinator that serves on until the newest one has taken over; 0: there is none.
        apart: the coordinator may not share a node with a rank; False where nothing else fits.
        blind: no other controller can take the place of the lost one; only a start protects the ranks again.
        successors: coordinators made in vain since one was last heard; the wait for the next one grows with it.
        store_lost: the rendezvous store was lost with the coordinator's pod; running ranks cannot rendezvous again.
        takeovers: how often another controller has taken a lost one's place.
        takeover_ms: how long the newest of them took, from when the coordinator knew of the loss.
        forgotten_ms: an older fact may concern something forgotten, and is stale.
        resumed_ms: end of the last outage; an older observation of a living process is stale.
        step: newest finished step that an event has told.
        incident: the open incident, if any.
        shrunk: what a shrink dropped, None at the size of the attempt.
        smaller: the reduced size of the attempt, None with all nodes.
        spent: uses of budgets, oldest first, pruned to the longest window.
        stalls: for the no-progress rule, newest last, bounded.
        failures: the newest failure of each rank, oldest first, bounded.
        fact_ids: newest facts of closed incidents, bounded.
        unreachable: node name to the time at which a rank pod there was deleted while nothing could end its ranks.
        deadlines: name to time in milliseconds.
        startup_seconds: `startupDeadlineSeconds` with which the deadline of the start was set, 0 while there is none.
        waiting: the start waits for quota or nodes, None while it does not.
        ending: how the attempt ends, None before its last step has ended.
        failed_loads: steps of the checkpoints that starts since the last step could not load, oldest first, bounded.
        active_since_ms: when the job began to count as active, None while it does not (not begun, suspended, ended).
        active_ms: for how long it was active before that.
        unmoved: why pods of a requested move are still on their nodes; empty after a move that worked.
        pause_seen: the newest pause request that was answered.
        problem: the newest note that explains why a start takes long.
        restarts_infrastructure: restarts of the whole job that the machine caused.
        restarts_program: restarts of the whole job that the program caused.
    """

    phase: JobPhase = JobPhase.NEW
    held_from: JobPhase | None = None
    incarnation: int = 0
    attempt: int = 0
    base: int = 0
    renewed: Mapping[int, int] = field(default_factory=dict)
    pods: Mapping[int, int] = field(default_factory=dict)
    released: tuple[int, ...] = ()
    avoided: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    places: Mapping[int, str] = field(default_factory=dict)
    coordinator: int = 0
    relieved: int = 0
    apart: bool = True
    blind: bool = False
    successors: int = 0
    store_lost: bool = False
    takeovers: int = 0
    takeover_ms: int = 0
    forgotten_ms: int = 0
    resumed_ms: int = 0
    step: int = -1
    incident: Incident | None = None
    shrunk: Shrunk | None = None
    smaller: Smaller | None = None
    spent: tuple[Spend, ...] = ()
    stalls: tuple[Stall, ...] = ()
    failures: tuple[Failure, ...] = ()
    fact_ids: tuple[str, ...] = ()
    unreachable: Mapping[str, int] = field(default_factory=dict)
    deadlines: Mapping[str, int] = field(default_factory=dict)
    startup_seconds: int = 0
    waiting: Waiting | None = None
    ending: Ending | None = None
    failed_loads: tuple[int, ...] = ()
    active_since_ms: int | None = None
    active_ms: int = 0
    unmoved: str = ""
    pause_seen: str = ""
    problem: str = ""
    restarts_infrastructure: int = 0
    restarts_program: int = 0

    @property
    def going_on(self) -> JobPhase:
        """The phase as far as the training is concerned: a held incident that stops nothing leaves it as it was."""
        stands = self.incident is None or self.incident.stopped
        return self.phase if self.held_from is None or stands else self.held_from

    @property
    def is_untrained(self) -> bool:
        """Whether no step of the attempt has ended."""
        return (self.held_from or self.phase) in UNTRAINED

    @property
    def nodes(self) -> int:
        """Nodes that the attempt was started with; 0: all of the job."""
        return self.smaller.nodes if self.smaller is not None else 0

    @property
    def passed_over(self) -> tuple[int, ...]:
        """Steps of checkpoints that are not loaded again: two starts failed with the first, one with each older one."""
        loads = self.failed_loads
        return tuple(sorted({step for place, step in enumerate(loads) if place}))

    @property
    def holds_still(self) -> bool:
        """Whether every rank waits in a planned pause, and other work may be done."""
        incident = self.incident
        return self.phase is JobPhase.PAUSED and incident is not None and incident.stopped and not incident.ready

    def pod_incarnation(self, node_rank: int) -> int:
        """Return the incarnation of the pod that is the node rank now."""
        return self.pods.get(node_rank, self.base)

    def incarnation_of(self, rank: int, node_rank: int) -> int:
        """Return the incarnation of the process that is the rank now; a process is never older than its pod."""
        return max(self.renewed.get(rank, self.base), self.pod_incarnation(node_rank))
