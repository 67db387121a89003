"""An incident: one outage, from the first fact to the end of the first step after it.

It is the journal of a recovery: whatever is decided, ordered or reached is in it, so that an operator that is killed
anywhere goes on from here. It is written into the status and must stay small: ranks and nodes that were lost, never
the world.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from hajob.domain.actions import Action
from hajob.domain.facts import Fact, FactKind, Origin, Source
from hajob.domain.text import last_lines


class IncidentOutcome(StrEnum):
    """How an incident stands."""

    OPEN = "Open"
    RECOVERED = "Recovered"
    FAILED = "Failed"


class RestoredFrom(StrEnum):
    """Where the state of the restarted ranks came from."""

    LIVE_RANK = "LiveRank"
    OPTIMIZER_COPY = "OptimizerCopy"
    SAVED_CHECKPOINT = "SavedCheckpoint"
    PERIODIC_CHECKPOINT = "PeriodicCheckpoint"
    NOWHERE = "Nowhere"


class Purpose(StrEnum):
    """Why the training is being disturbed; everything but `FAULT` is planned and spends no fault budget."""

    FAULT = "Fault"
    COORDINATOR = "CoordinatorLost"
    REQUEST = "RestartRequested"
    SUSPEND = "SuspendRequested"
    EXPAND = "Expand"
    GROW = "Grow"
    MIGRATE = "Migrate"
    PAUSE = "Pause"


@dataclass(frozen=True, slots=True)
class Cause:
    """What a reader wants to know first: the fact that opened the incident, in short, or a later one that tells why.

    Attributes:
        unexplained: the fact says that something ended, and not why.
        base: then, the incarnation that the attempt began with: nothing of an attempt before it tells why.
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
    def of(fact: Fact, ranks: tuple[int, ...], step: int, message_limit: int = 1024) -> "Cause":
        """Shorten a fact; the message keeps its end, where programs say what went wrong."""
        code, first_rank = fact.code or fact.kind.value, ranks[0] if ranks else -1
        message = last_lines(fact.message, message_limit)
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

    def explained(self, fact: Fact) -> "Cause":
        """The cause in the words of a fact that tells why, where this one does not; when and at which step stay.

        A pod explains only what happened on its own node; it names no ranks.
        """
        tells_why = fact.tells_why_silent if self.kind is FactKind.AGENT_SILENT else self.unexplained and fact.tells_why
        if not tells_why or fact.incarnation < self.base:
            return self
        if not fact.ranks and fact.node_name != self.node_name:
            return self
        told = replace(Cause.of(fact, fact.ranks, self.step), time_ms=self.time_ms, base=self.base)
        return told if fact.ranks else replace(told, first_rank=self.first_rank, num_ranks=self.num_ranks)


@dataclass(frozen=True, slots=True)
class Milestone:
    """A point in time of an incident; names are those of sidecar.proto plus the planner's own."""

    name: str
    time_ms: int


@dataclass(frozen=True, slots=True)
class RefusedAction:
    """An action that was smaller than the one taken and would not have worked: the preconditions that were not met."""

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
        action: what is being done now.
        escalated_from: actions that were given up, in order.
        lost_ranks: every rank MindIO has to be told of, ascending.
        restart_ranks: of these, processes to be started again in their own pods.
        replaced_nodes: node ranks whose pods come anew.
        fact_ids: facts that are already in it, newest last, bounded.
        stopped: MindIO has locked the training.
        ready: every replacement stands at its gate.
        named: MindIO has been told the ranks; from here on nothing can be added.
        corrupted: somebody reported corrupted data; nothing is saved any more.
        restored_from: where the restarted ranks' state comes from.
        refused: smaller actions that were never tried, and why; the first reason of each counts.
        nodes: of the attempt that its ranks are counted in; 0: all of the job.
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
