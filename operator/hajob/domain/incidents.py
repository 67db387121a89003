"""An incident: one outage, from the first fact to the end of the first step after it.

It is the journal of a recovery: it holds everything decided, ordered or reached, so that an operator killed at any
point continues from it. It is written into the status and must stay small: lost ranks and nodes, never all of them.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from hajob.domain.actions import Action
from hajob.domain.facts import Fact, FactKind, Origin, Source
from hajob.domain.text import harmless_text, last_lines


class IncidentOutcome(StrEnum):
    """Outcome of an incident."""

    OPEN = "Open"
    RECOVERED = "Recovered"
    FAILED = "Failed"
    DONE = "Done"


class RestoredFrom(StrEnum):
    """Source of the restarted ranks' state."""

    LIVE_RANK = "LiveRank"
    OPTIMIZER_COPY = "OptimizerCopy"
    SAVED_CHECKPOINT = "SavedCheckpoint"
    PERIODIC_CHECKPOINT = "PeriodicCheckpoint"
    NOWHERE = "Nowhere"


class Purpose(StrEnum):
    """Reason of an incident; everything but `FAULT` is planned and spends no fault budget."""

    FAULT = "Fault"
    COORDINATOR = "CoordinatorLost"
    REQUEST = "RestartRequested"
    SUSPEND = "SuspendRequested"
    EVICT = "Evicted"
    EXPAND = "Expand"
    GROW = "Grow"
    MIGRATE = "Migrate"
    PAUSE = "Pause"


@dataclass(frozen=True, slots=True)
class Cause:
    """Cause of an incident: the fact that opened it, shortened, or a later one that explains it.

    Attributes:
        unexplained: the fact says that something ended, and not why.
        base: if unexplained, the first incarnation of the attempt: facts of earlier attempts explain nothing.
    """

    kind: FactKind | None = None
    source: Source = Source.OPERATOR
    code: str = ""
    node_name: str = ""
    first_rank: int = -1
    num_ranks: int = 0
    message: str = ""
    time_ms: int = 0
    step: int = -1
    unexplained: bool = False
    base: int = 0

    @staticmethod
    def from_fact(fact: Fact, ranks: tuple[int, ...], step: int, message_limit: int = 1024) -> "Cause":
        """Shorten a fact; the message keeps its end, where programs say what went wrong."""
        code, first_rank = fact.code or fact.kind.value, ranks[0] if ranks else -1
        message = last_lines(harmless_text(fact.message), message_limit)
        return Cause(
            fact.kind,
            fact.source,
            code,
            fact.node_name,
            first_rank,
            len(ranks),
            message,
            fact.time_ms,
            step,
            unexplained=fact.unexplained,
        )

    def explained_by(self, fact: Fact) -> "Cause":
        """Return the cause told by a fact that explains it, where this one does not; time and step stay.

        A pod explains only what happened on its own node; it names no ranks.
        """
        tells_why = fact.tells_why_silent if self.kind is FactKind.AGENT_SILENT else self.unexplained and fact.tells_why
        if not tells_why or fact.incarnation < self.base:
            return self
        if not fact.ranks and fact.node_name != self.node_name:
            return self
        # When it happened stays what was seen first: the explanation comes later, and outages are counted from here.
        told = replace(Cause.from_fact(fact, fact.ranks, self.step), time_ms=self.time_ms, base=self.base)
        return told if fact.ranks else replace(told, first_rank=self.first_rank, num_ranks=self.num_ranks)


@dataclass(frozen=True, slots=True)
class Milestone:
    """A point in time of an incident; names are those of sidecar.proto plus the planner's own."""

    name: str
    time_ms: int


@dataclass(frozen=True, slots=True)
class RefusedAction:
    """An action smaller than the one taken that would not have worked, with its unmet preconditions."""

    action: Action
    unmet: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Incident:
    """One outage and how far its recovery has come.

    Attributes:
        number: its incarnation when it was opened; no two incidents share one.
        incarnation: of the newest pods and processes made in it; rises above `number` only when something that was
            made in this incident has to be made again.
        revision: of the newest order; rises when the incident is widened or escalates.
        purpose: a fault, or what was planned.
        origin: whose budget it spends; the machine's as soon as one of its facts is the machine's.
        action: the current action.
        escalated_from: actions that were given up, in order.
        lost_ranks: every rank to be named to MindIO, ascending.
        restart_ranks: of these, processes to be started again in their own pods.
        replaced_nodes: node ranks whose pods are recreated.
        fact_ids: facts that are already in it, newest last, bounded.
        stopped: MindIO has locked the training; of an incident that is held back: a fact in it ends the training.
        ready: every replacement stands at its gate.
        named: MindIO knows the lost ranks; none can be added any more.
        corrupted: a fact reported corrupted data; nothing is saved any more.
        restored_from: where the restarted ranks' state comes from.
        refused: smaller actions that were never tried, and why; the first reason of each counts.
        nodes: number of nodes of the attempt whose ranks it names; 0: all of the job.
        restarts: how often the whole job was started anew in it: one that fails again is counted, and no incident of
            its own, since nothing has trained in between.
    """

    number: int
    incarnation: int
    revision: int
    purpose: Purpose
    origin: Origin
    action: Action
    cause: Cause
    opened_ms: int
    escalated_from: tuple[Action, ...] = ()
    lost_ranks: tuple[int, ...] = ()
    restart_ranks: tuple[int, ...] = ()
    replaced_nodes: tuple[int, ...] = ()
    fact_ids: tuple[str, ...] = ()
    stopped: bool = False
    ready: bool = False
    named: bool = False
    corrupted: bool = False
    restored_from: RestoredFrom | None = None
    milestones: tuple[Milestone, ...] = ()
    refused: tuple[RefusedAction, ...] = ()
    nodes: int = 0
    restarts: int = 0
