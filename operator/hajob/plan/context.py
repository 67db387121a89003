"""One look at one job at one time, and the shape of a row of the table.

A `Context` holds what a guard or a step may look at and computes the costly parts once: whether the event concerns
the job, what is lost, what the evaluator says. Guards ask it, handlers use its answers, so that the decision a guard
saw is the decision the handler carries out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hajob.domain.actions import ACTION_ORDER, Action
from hajob.domain.errors import RankError
from hajob.domain.facts import INFORMATION, PROCESS_LIVES, SICK_NODE, TAKES_THE_NODE, Fact, FactKind, Origin
from hajob.domain.incidents import Incident, Purpose
from hajob.plan.effects import Effect
from hajob.plan.evaluator import Choice, Evaluator, Loss, Trigger
from hajob.plan.events import CoordinatorLost, DeadlineReached, FactSeen, JobEvent
from hajob.plan.ignored import Ignored, IgnoreReason
from hajob.plan.policy import NodePolicy, Policy
from hajob.plan.state import JobPhase, JobState
from hajob.plan.view import ClusterView

_NO_FACT: Final = Fact("", FactKind.POD_UNSTARTABLE)
_ASK_THE_POLICY: Final = frozenset({FactKind.LOG_RULE, FactKind.SUB_HEALTH})
"""Kinds whose first action the user chooses."""


@dataclass(slots=True)
class Context:
    """State, event, view, policy and time, and what follows from them.

    Attributes:
        ignored: why the event changes nothing; None while it does.
        choice: the evaluator's answer, once a guard has asked for it.
        fact: of a `FactSeen`; rows ask for it on no other event.
    """

    state: JobState
    event: JobEvent
    view: ClusterView
    policy: Policy
    now_ms: int
    ignored: Ignored | None = None
    choice: Choice | None = None
    loss: Loss | None = None
    evaluator: Evaluator | None = None
    _looked: bool = False
    _ranks: tuple[int, ...] = ()
    fact: Fact = _NO_FACT

    def __post_init__(self) -> None:
        """The fact is asked for by every guard of a `FactSeen`: fetch it once."""
        if isinstance(self.event, FactSeen):
            self.fact = self.event.fact

    @property
    def incident(self) -> Incident | None:
        """The open incident."""
        return self.state.incident

    @property
    def joins(self) -> Incident | None:
        """The open incident that a fault joins; one that only awaits MindIO's word is over."""
        incident = self.state.incident
        if incident is None or incident.purpose is not Purpose.FAULT or self.state.phase is JobPhase.CONFIRMING:
            return None
        return incident

    def fact_ranks(self) -> tuple[int, ...]:
        """Every rank the fact loses: its own, or all of its node's; `concerns` must have been asked before."""
        return self._ranks

    def _named_ranks(self) -> tuple[int, ...]:
        fact, layout = self.fact, self.view.layout
        for rank in fact.ranks:
            layout.check_rank(rank)
        if fact.node_rank is not None and (fact.kind in TAKES_THE_NODE or not fact.ranks):
            return tuple(layout.ranks_of(fact.node_rank))
        if fact.kind in TAKES_THE_NODE:
            return tuple(rank for node in layout.nodes_of(fact.ranks) for rank in layout.ranks_of(node))
        return fact.ranks if len(fact.ranks) == 1 else tuple(sorted(set(fact.ranks)))

    def concerns(self) -> bool:
        """Whether the fact is new, of this job and of a process that still exists; `ignored` says why not."""
        if not self._looked:
            self._looked = True
            self.ignored = self._why_ignored()
        return self.ignored is None

    def _why_ignored(self) -> Ignored | None:
        fact, state = self.fact, self.state
        try:
            ranks = self._named_ranks()
        except RankError as error:
            return Ignored(IgnoreReason.INVALID, f"fact {fact.id}: {error}")
        if not ranks and fact.kind not in INFORMATION:
            return Ignored(
                IgnoreReason.INVALID, f"fact {fact.id} of kind {fact.kind} names neither a rank nor a node rank"
            )
        if fact.id in state.fact_ids or (state.incident is not None and fact.id in state.incident.fact_ids):
            return Ignored(IgnoreReason.DUPLICATE, f"fact {fact.id}")
        if fact.kind is FactKind.CONTROLLER_LOST and 0 < fact.incarnation < state.base:
            return Ignored(IgnoreReason.STALE, f"fact {fact.id} is about the controller of an attempt that is over")
        self._ranks = ranks if fact.incarnation < 0 else self._current(ranks)
        if ranks and not self._ranks:
            return Ignored(
                IgnoreReason.STALE,
                f"fact {fact.id} is of incarnation {fact.incarnation}, rank {ranks[0]} has a newer one",
            )
        return self._why_stale(fact)

    def _current(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """Those of the ranks whose process, or pod, is still the one that was observed."""
        fact, state, chips = self.fact, self.state, self.view.layout.chips_per_node
        seen = fact.incarnation
        if seen >= max(state.incarnation, self.event.incarnation):
            return ranks
        if fact.kind in TAKES_THE_NODE:
            return tuple(rank for rank in ranks if seen >= state.pod_incarnation(rank // chips))
        return tuple(rank for rank in ranks if seen >= state.incarnation_of(rank, rank // chips))

    def _why_stale(self, fact: Fact) -> Ignored | None:
        state, ranks = self.state, self._ranks
        newest = max(state.incarnation, self.event.incarnation)
        if fact.incarnation > newest:
            return Ignored(
                IgnoreReason.INVALID, f"fact {fact.id} is of incarnation {fact.incarnation}, the newest is {newest}"
            )
        alive = fact.kind in PROCESS_LIVES
        if alive and self.joins and set(ranks) <= set(self.joins.lost_ranks) and not self._worse():
            return Ignored(IgnoreReason.KNOWN, f"fact {fact.id} concerns ranks that are being cured")
        if fact.time_ms < (state.resumed_ms if alive else state.forgotten_ms):
            return Ignored(IgnoreReason.STALE, f"fact {fact.id} is older than the recovery it would disturb")
        if (
            state.shrunk is not None
            and ranks
            and set(ranks) <= set(state.shrunk.ranks)
            and state.phase is JobPhase.SHRUNK
        ):
            return Ignored(IgnoreReason.DROPPED, f"fact {fact.id} concerns ranks that left with the shrink")
        return self._why_tolerated(fact) if fact.kind in SICK_NODE else None

    def _why_tolerated(self, fact: Fact) -> Ignored | None:
        """Facts about nodes that still work are the policy's to ignore."""
        sick = fact.kind is FactKind.SUB_HEALTH
        name, policy = ("subHealth", self.policy.sub_health) if sick else ("cordon", self.policy.cordon)
        if policy is not NodePolicy.IGNORE:
            return None
        return Ignored(IgnoreReason.TOLERATED, f"fact {fact.id}, {name}Policy is Ignore")

    def _worse(self) -> bool:
        """The first word of corrupted data makes a known loss worse."""
        return self.fact.kind is FactKind.DATA_CORRUPTED and self.joins is not None and not self.joins.corrupted

    def first_action(self) -> Action:
        """The smallest action that can cure the fact, by kind, log rule or node policy."""
        fact = self.fact
        if fact.kind not in _ASK_THE_POLICY:
            return fact.first_action
        if fact.kind is FactKind.LOG_RULE:
            return self.policy.log_rules.get(fact.code, Action.RESTART)
        if fact.kind is FactKind.SUB_HEALTH and self.policy.sub_health is NodePolicy.CHECKPOINT:
            return Action.CHECKPOINT
        return fact.first_action

    def decide(self, trigger: Trigger) -> Choice:
        """What the evaluator says on this trigger; computed once."""
        if self.choice is None or self.evaluator is None or self.evaluator.trigger is not trigger:
            self.loss = self._loss_of_incident() if self.fact is _NO_FACT else self.loss_of_fact()
            self.evaluator = Evaluator(self.loss, trigger, self.state, self.view, self.policy, self.now_ms)
            self.choice = self.evaluator.choose()
        return self.choice

    def loss_of_fact(self) -> Loss:
        """The fact alone, or united with the open incident."""
        fact, incident, own = self.fact, self.joins, self._ranks
        ranks = own
        floor = self.first_action()
        newly: tuple[int, ...] = ()
        allows = self.policy.allows
        with_its_pod = floor is Action.IN_PLACE and not allows(Action.IN_PLACE) and allows(Action.REPLACE)
        if floor is Action.REPLACE or with_its_pod:
            newly = self.view.layout.nodes_of(ranks)
        nodes = newly
        program = self.is_programs_doing
        continues: Action | None = None
        corrupted = fact.kind is FactKind.DATA_CORRUPTED
        if incident is not None:
            again = incident.action is Action.RESTART or any(rank in incident.lost_ranks for rank in ranks)
            ranks = tuple(sorted({*incident.lost_ranks, *ranks}))
            nodes = tuple(sorted({*incident.replaced_nodes, *nodes}))
            floor = max(floor, incident.action, key=ACTION_ORDER.__getitem__)
            program = program and again
            continues = None if again else incident.action
            corrupted = corrupted or incident.corrupted
        rank, step = own[0] if own else -1, self.view.step if fact.step is None else fact.step
        return Loss(ranks, nodes, newly, floor, program, rank, step, corrupted, continues=continues)

    def _loss_of_incident(self) -> Loss:
        """The open incident as it stands, after something has failed; or nothing lost, for what is asked for."""
        incident, program = self.incident, self.is_programs_doing
        if incident is None:
            return Loss(ranks=(), program_failure=program, counted=program)
        floor = incident.action if incident.action in ACTION_ORDER else Action.RETRY
        return Loss(
            ranks=incident.lost_ranks if incident.purpose is Purpose.FAULT else (),
            nodes=incident.replaced_nodes,
            floor=floor,
            rank=incident.cause.first_rank,
            step=incident.cause.step,
            corrupted=incident.corrupted,
            program_failure=program,
            counted=program
            or incident.purpose in {Purpose.FAULT, Purpose.COORDINATOR}
            or isinstance(self.event, DeadlineReached),
        )

    @property
    def is_programs_doing(self) -> bool:
        """Whether the event says that what is in the image has failed."""
        if isinstance(self.event, CoordinatorLost):
            return self.event.program
        return self.fact is not _NO_FACT and self.fact.origin is Origin.PROGRAM

    @property
    def asks_for_a_move(self) -> bool:
        """A fact about a node that still works, where the policy wants to move off it."""
        kind = self.fact.kind
        return (kind is FactKind.SUB_HEALTH and self.policy.sub_health is NodePolicy.MIGRATE) or (
            kind is FactKind.CORDONED and self.policy.cordon is NodePolicy.MIGRATE
        )

    @property
    def foreign(self) -> bool:
        """Whether the event belongs to another incarnation than the open incident or the running attempt."""
        number = self.event.incarnation
        if not number:
            return False
        low = self.incident.number if self.incident else self.state.base
        return not low <= number <= self.state.incarnation


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition of a row.

    Attributes:
        name: a short one.
        sentence: for docs/state-machine.md.
        test: whether it holds.
    """

    name: str
    sentence: str
    test: Callable[[Context], bool]


HandlerResult = tuple[JobState, tuple[Effect, ...]]


@dataclass(frozen=True, slots=True)
class Handler:
    """What a row does: a short name for the diagram, a sentence, a function."""

    name: str
    sentence: str
    run: Callable[[Context], HandlerResult]


@dataclass(frozen=True, slots=True)
class TableRow:
    """One line of the table.

    Attributes:
        states: where it applies.
        event: on which event.
        guard: under which condition; rows of one cell are asked in the order of the table.
        handler: what is done.
        target: the next state, None stays.
    """

    states: tuple[JobPhase, ...]
    event: type[JobEvent]
    guard: Guard
    handler: Handler
    target: JobPhase | None = None
