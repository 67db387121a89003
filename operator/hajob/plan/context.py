"""The input of one decision about a job, and the types that make up a row of the table.

A `Context` holds the input of guards and handlers and computes the costly parts once: whether the event concerns
the job, what is lost, what the evaluator chooses. Guards and handlers share these results, so that a handler
carries out exactly the decision that its guard saw.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypeVar

from hajob.domain.actions import ACTION_ORDER, Action
from hajob.domain.facts import DISRUPTIONS, Fact, FactKind, Origin
from hajob.domain.incidents import Incident, Purpose
from hajob.plan.effects import Effect
from hajob.plan.evaluator import ActionVerdict, Choice, Evaluator, Loss, Trigger
from hajob.plan.events import CoordinatorLost, DeadlineReached, FactSeen, JobEvent
from hajob.plan.ignored import Ignored
from hajob.plan.policy import NodePolicy, Policy
from hajob.plan.relevance import Relevance, joined_by_faults, relevance_of_fact
from hajob.plan.repeats import is_failure_repeated, step_of_failure
from hajob.plan.state import HELD_UP, JobPhase, JobState
from hajob.plan.view import ClusterView

_ASK_THE_POLICY: Final = frozenset({FactKind.LOG_RULE, FactKind.SUB_HEALTH})
"""Kinds whose first action the user chooses."""

_LEADS_TO_A_START: Final = frozenset({Purpose.REQUEST, Purpose.SUSPEND, Purpose.EVICT, Purpose.GROW})
"""Purposes of a save after which the processes end as they were meant to, however the save went: no budget pays."""

E = TypeVar("E", bound=JobEvent)


@dataclass(slots=True)
class Context:
    """State, event, view, policy and time of one decision, and values derived from them.

    Attributes:
        ignored: why the event changes nothing; None when it changes something.
        held_back: the decision that `recovery.mode` forbids; None when it forbids nothing.
        choice: the evaluator's answer, once a guard has asked for it.
        loss: the loss that `choice` answers.
        evaluator: the evaluator that made `choice`; handlers reuse its results.
        relevance: what the event's fact means for the job.
        repeats: the fact is a failure that has happened before, and the program's therefore.
    """

    state: JobState
    event: JobEvent
    view: ClusterView
    policy: Policy
    now_ms: int
    ignored: Ignored | None = None
    held_back: Trigger | None = None
    choice: Choice | None = None
    loss: Loss | None = None
    evaluator: Evaluator | None = None
    relevance: Relevance = field(init=False)
    repeats: bool = field(init=False)

    def __post_init__(self) -> None:
        """Evaluate the fact of a `FactSeen` once for all guards."""
        fact, newest = self.seen_fact, max(self.state.incarnation, self.event.incarnation)
        known = relevance_of_fact(fact, newest, self.state, self.view.layout, self.policy) if fact else Relevance()
        self.relevance = known
        self.repeats = (
            fact is not None and known.ignored is None and is_failure_repeated(fact, known.ranks, self.state, self.view)
        )

    def with_state(self, state: JobState) -> Self:
        """Return the same decision in another state, for a handler that goes on as another one."""
        other = copy(self)
        other.state = state
        return other

    def event_of(self, kind: type[E]) -> E:
        """Return the event, which the caller's row guarantees to be of this kind."""
        assert isinstance(self.event, kind)
        return self.event

    @property
    def open_incident(self) -> Incident:
        """The open incident, for rows of states that always have one."""
        assert self.state.incident is not None
        return self.state.incident

    @property
    def seen_fact(self) -> Fact | None:
        """The event's fact; None for any other event."""
        return self.event.fact if isinstance(self.event, FactSeen) else None

    @property
    def required_fact(self) -> Fact:
        """The event's fact, for rows on `FactSeen` only."""
        assert isinstance(self.event, FactSeen)
        return self.event.fact

    @property
    def incident(self) -> Incident | None:
        """The open incident."""
        return self.state.incident

    def fact_ranks(self) -> tuple[int, ...]:
        """Return every rank that the fact loses: its own, or all of its node's."""
        return self.relevance.ranks

    def concerns_job(self) -> bool:
        """Return whether the fact is new, of this job and of a process that still exists; `ignored` says why not."""
        self.ignored = self.relevance.ignored
        return self.ignored is None

    def first_action(self) -> Action:
        """Return the smallest action that can cure the fact, by kind, log rule or node policy."""
        fact = self.required_fact
        if fact.kind not in _ASK_THE_POLICY:
            return fact.first_action
        if fact.kind is FactKind.LOG_RULE:
            return self.policy.log_rules.get(fact.code, Action.RESTART)
        if fact.kind is FactKind.SUB_HEALTH and self.policy.sub_health is NodePolicy.CHECKPOINT:
            return Action.CHECKPOINT
        return fact.first_action

    def decide_action(self, trigger: Trigger) -> Choice:
        """Return the evaluator's choice on this trigger; computed once."""
        if self.choice is None or self.evaluator is None or self.evaluator.trigger is not trigger:
            loss = self._loss_of_incident() if self.seen_fact is None else self.loss_of_fact()
            self.loss = replace(loss, counted=False, asked=True) if self.is_asked_for else loss
            later = self.seen_fact is not None and self.state.phase in HELD_UP
            self.evaluator = Evaluator(self.loss, trigger, self.state, self.view, self.policy, self.now_ms, later)
            self.choice = self.evaluator.choose_action()
        return self.choice

    def loss_of_fact(self) -> Loss:
        """Return the loss of the fact, merged with the open incident that it joins."""
        own, fact = self._loss_of_fact_alone(), self.required_fact
        incident = joined_by_faults(self.state)
        if incident is None:
            return own
        # A rank lost again shows that the current action has failed: it spends another use of its budget, and a program
        # failure one of the program's. A rank that only joins spends nothing.
        again = incident.action is Action.RESTART or any(rank in incident.lost_ranks for rank in own.ranks)
        return replace(
            own,
            ranks=tuple(sorted({*incident.lost_ranks, *own.ranks})),
            nodes=tuple(sorted({*incident.replaced_nodes, *own.nodes})),
            floor=max(own.floor, incident.action, key=ACTION_ORDER.__getitem__),
            program_failure=own.program_failure and again,
            corrupted=fact.kind is FactKind.DATA_CORRUPTED or incident.corrupted,
            continues=None if again else incident.action,
        )

    def _loss_of_fact_alone(self) -> Loss:
        fact, ranks, floor = self.required_fact, self.fact_ranks(), self.first_action()
        # When the spec forbids InPlace, the pod is replaced with the process.
        allows = self.policy.allows_action
        with_its_pod = floor is Action.IN_PLACE and not allows(Action.IN_PLACE) and allows(Action.REPLACE)
        nodes = self.view.layout.nodes_of_ranks(ranks) if floor is Action.REPLACE or with_its_pod else ()
        return Loss(
            ranks,
            nodes,
            newly=nodes,
            floor=floor,
            program_failure=self.is_programs_doing,
            rank=ranks[0] if ranks else -1,
            step=self._step_of_fact(fact),
            corrupted=fact.kind is FactKind.DATA_CORRUPTED,
            checks_progress=not self.state.is_untrained or self.repeats,
            maintenance=fact.code in DISRUPTIONS,
        )

    def _step_of_fact(self, fact: Fact) -> int:
        """Return the step at which the no-progress rule counts the fact."""
        if self.repeats:
            return step_of_failure(fact, self.view)
        return self.view.step if fact.step is None else fact.step

    def _loss_of_incident(self) -> Loss:
        """Return the loss of the open incident after a failed step; an empty loss where none is open."""
        incident, program = self.incident, self.is_programs_doing
        if incident is None:
            return Loss(ranks=(), program_failure=program, maintenance=self._lost_its_coordinator)
        floor = incident.action if incident.action in ACTION_ORDER else Action.RETRY
        program = program or (self.state.phase is JobPhase.HELD and incident.origin is Origin.PROGRAM)
        return Loss(
            ranks=incident.lost_ranks if incident.purpose is Purpose.FAULT else (),
            nodes=incident.replaced_nodes,
            floor=floor,
            rank=incident.cause.first_rank,
            step=incident.cause.step,
            corrupted=incident.corrupted,
            maintenance=incident.cause.code in DISRUPTIONS or self._lost_its_coordinator,
            program_failure=program,
            # a start that had all its nodes and its whole deadline and did not train has made no progress
            checks_progress=not self.state.is_untrained or isinstance(self.event, DeadlineReached),
            counted=program or incident.purpose not in _LEADS_TO_A_START or isinstance(self.event, DeadlineReached),
        )

    @property
    def is_asked_for(self) -> bool:
        """Whether a person has asked for the restart that follows the save under way."""
        incident = self.incident
        return incident is not None and incident.purpose is Purpose.REQUEST and self.state.phase is JobPhase.SAVING

    @property
    def _lost_its_coordinator(self) -> bool:
        """Whether the coordinator was lost for a reason other than a failing image."""
        return isinstance(self.event, CoordinatorLost) and not self.event.program

    @property
    def is_programs_doing(self) -> bool:
        """Whether the event reports a failure of the program in the image."""
        if isinstance(self.event, CoordinatorLost):
            return self.event.program
        return self.seen_fact is not None and (self.seen_fact.origin is Origin.PROGRAM or self.repeats)

    @property
    def asks_for_a_move(self) -> bool:
        """Whether the fact is about a working node that the policy moves pods off."""
        kind = self.required_fact.kind
        return (kind is FactKind.SUB_HEALTH and self.policy.sub_health is NodePolicy.MIGRATE) or (
            kind is FactKind.CORDONED and self.policy.cordon is NodePolicy.MIGRATE
        )

    @property
    def is_foreign_event(self) -> bool:
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
        name: short name.
        sentence: for docs/internals/state-machine.md.
        test: the condition itself.
    """

    name: str
    sentence: str
    test: Callable[[Context], bool]


HandlerResult = tuple[JobState, tuple[Effect, ...]]


@dataclass(frozen=True, slots=True)
class Handler:
    """Effect of a row: a short name for the diagram, a sentence, a function."""

    name: str
    sentence: str
    run: Callable[[Context], HandlerResult]


@dataclass(frozen=True, slots=True)
class TableRow:
    """One line of the table.

    Attributes:
        states: states in which the row applies.
        event: kind of event that the row answers.
        guard: its condition; the rows of one cell are tested in table order.
        handler: makes the new state and effects.
        target: the next state; None keeps the state.
        trigger: the decision against a fault that the row carries out, None for any other row. Where `recovery.mode`
            forbids it, the fault is held back instead (hajob.plan.machine).
    """

    states: tuple[JobPhase, ...]
    event: type[JobEvent]
    guard: Guard
    handler: Handler
    target: JobPhase | None = None
    trigger: Trigger | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """Outcome of one event.

    Attributes:
        state: the new state; the same object when nothing changed.
        effects: what the shell is to do, in this order.
        considered: the actions evaluated for it, smallest first, each taken or refused with words.
        row: the row of the table that answered.
        ignored: why the event changed nothing, to be counted; None when it changed something.
    """

    state: JobState
    effects: tuple[Effect, ...]
    considered: tuple[ActionVerdict, ...]
    row: TableRow
    ignored: Ignored | None = None
