"""Simulation of a loss: the planner itself runs, in surroundings where every order succeeds.

There is no second planner: facts, table, evaluator and effects are those of the live operator, so that the
answer of `kubectl hajob simulate` is the decision that would be made. Only the surroundings are simulated: MindIO
answers at once, and replacements come exactly when there are free nodes for them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

from hajob.api.derived import nodes_per_block
from hajob.api.enums import GangPolicy
from hajob.api.spec import HATrainingJobSpec
from hajob.domain.actions import ACTION_ORDER, FAULT_ACTIONS, Action
from hajob.domain.batch import Batch
from hajob.domain.errors import HajobInputError
from hajob.domain.facts import Fact, FactKind, Origin
from hajob.domain.incidents import Cause, Incident, Purpose
from hajob.domain.layout import Layout
from hajob.domain.loss import Isolation, Repair, isolate_loss, plan_repairs
from hajob.domain.memory import MemoryCost, memory_of_layout
from hajob.plan import effects, events
from hajob.plan.evaluator import FAULT, ActionVerdict, Evaluator, Loss
from hajob.plan.flags import read_flags
from hajob.plan.machine import Transition, advance_job
from hajob.plan.placements import placements
from hajob.plan.policy import Mode, Policy, Refusal, layout_from_spec, parse_spec, policy_from_spec
from hajob.plan.recoverability import protection_in_words
from hajob.plan.state import Deadline, JobPhase, JobState
from hajob.plan.view import ClusterView

_STEP: Final = 10
_MOST_STEPS: Final = 32

_DURING: Final = {
    Action.RETRY: JobPhase.GATHERING,
    Action.IN_PLACE: JobPhase.GATHERING,
    Action.REPLACE: JobPhase.GATHERING,
    Action.SHRINK: JobPhase.SHRINKING,
    Action.CHECKPOINT: JobPhase.SAVING,
    Action.RESTART: JobPhase.RESTARTING,
    Action.EXPAND: JobPhase.EXPANDING,
    Action.MIGRATE: JobPhase.MIGRATING,
    Action.PAUSE: JobPhase.PAUSED,
}
"""State of a job while an action runs; of a recovery, the one before MindIO knows the lost ranks."""

_ANSWERS: Final[dict[JobPhase, events.JobEvent]] = {
    JobPhase.RESTARTING: events.PodsReady(),
    JobPhase.STARTING: events.AllRanksStarted(),
    JobPhase.WARMING: events.Resumed(step=_STEP),
    JobPhase.GATHERING: events.Named(),
    JobPhase.RESUMING: events.Resumed(step=_STEP + 1),
    JobPhase.CONFIRMING: events.ResultReported(),
    JobPhase.SHRINKING: events.Resumed(step=_STEP + 1),
    JobPhase.SAVING: events.ResultReported(strategy="dump"),
}
"""Event of the simulated coordinator in each state until the job trains or has failed; there is only one
incarnation, so the events carry none."""


@dataclass(frozen=True, slots=True)
class SimulationRequest:
    """Input of a simulation: lost ranks and nodes, number of free nodes, the action that runs already."""

    ranks: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    free_nodes: int = 0
    during: Action | None = None


@dataclass(frozen=True, slots=True)
class SimulatedTurn:
    """One event of a simulated run.

    Attributes:
        before: the state before the event.
        transition: its outcome.
        waited: a wait preceded it.
    """

    before: JobState
    transition: Transition
    waited: bool = False


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Decision of the operator and its consequences.

    Attributes:
        action: None when nothing is left and the job fails.
        fault_ranks: the lost ranks, including all of a lost node.
        isolation: what a shrink would drop, whatever action is chosen.
        current: data-parallel ranks that train afterwards.
        micro_batches: share of each of these; empty when the trainer's batch sizes are not visible.
        step_time: expected step time as a multiple of the full size's, where the batch sizes are visible.
        memory: what the copies cost on each chip, where the model's size is known.
        kept_nodes: node ranks whose pods stay as they are.
        considered: every action evaluated, smallest first.
        repairs: where each lost shard comes from.
        turns: event by event, until the job trains again; hajob.cli.simulated_writes tells what is written.
        failure: why the job fails, when it does.
        places: node ranks whose pods go onto spare nodes, with the spare.
        protection: which actions spec and arguments leave, and what is missing for the others; empty where nothing is.
        by_volcano: Volcano places the pods.
        blocks: of a job of blocks, the block of each node rank whose pod goes elsewhere.
    """

    layout: Layout
    action: Action | None
    fault_ranks: tuple[int, ...]
    isolation: Isolation
    current: int
    micro_batches: tuple[int, ...]
    step_time: Fraction | None
    memory: MemoryCost | None
    kept_nodes: tuple[int, ...]
    considered: tuple[ActionVerdict, ...]
    repairs: tuple[Repair, ...]
    turns: tuple[SimulatedTurn, ...]
    failure: str = ""
    places: Mapping[int, str] = field(default_factory=dict)
    protection: str = ""
    by_volcano: bool = False
    blocks: Mapping[int, int] = field(default_factory=dict)

    @property
    def refused_actions(self) -> dict[Action, tuple[str, ...]]:
        """Identifiers of the unmet preconditions of every refused action."""
        return {verdict.action: verdict.unmet for verdict in self.considered if not verdict.taken}


@dataclass(slots=True)
class _Run:
    """One simulated job; time only moves from deadline to deadline."""

    policy: Policy
    view: ClusterView
    state: JobState
    now_ms: int = 0
    verdicts: dict[Action, ActionVerdict] = field(default_factory=dict)
    turns: list[SimulatedTurn] = field(default_factory=list)
    failure: str = ""
    places: dict[int, str] = field(default_factory=dict)

    def feed_event(self, event: events.JobEvent, *, waited: bool = False) -> Transition:
        """Feed one event to the planner; record its verdicts and outcome."""
        self.now_ms += 1
        transition = advance_job(self.state, event, self.view, self.policy, self.now_ms)
        for verdict in transition.considered:
            late = any(refusal.name == "StillPossible" for refusal in verdict.refusals)
            if not (late and verdict.action in self.verdicts):
                self.verdicts[verdict.action] = verdict
        self.turns.append(SimulatedTurn(self.state, transition, waited))
        for effect in transition.effects:
            if isinstance(effect, effects.FailJob):
                self.failure = f"{effect.reason}: {effect.message}"
        self.state = transition.state
        self.places |= transition.state.places
        return transition


def simulate_loss(spec: Mapping[str, Any] | HATrainingJobSpec, question: SimulationRequest) -> SimulationResult:
    """Answer a question about a job.

    Raises:
        HajobInputError: the spec is none, or a rank or node rank is outside the job.
    """
    model = parse_spec(spec)
    layout, policy = layout_from_spec(model), replace(policy_from_spec(model), mode=Mode.ENFORCE)
    lost = _checked_lost_ranks(layout, question)
    spares = tuple(f"spare {number}" for number in range(model.scheduling.num_spare_nodes))
    left = layout.num_nodes - len(set(question.nodes)) + question.free_nodes + len(spares)
    # Each block in a super pod of its own: what is then possible is possible wherever some share one.
    size = nodes_per_block(model)
    view = ClusterView(
        layout,
        step=_STEP,
        free_nodes=question.free_nodes,
        start_nodes=left,
        spares=spares,
        super_pods={rank: str(rank // size) for rank in range(layout.num_nodes)} if size else {},
        spare_super_pods={name: str(at % (layout.num_nodes // size)) for at, name in enumerate(spares)} if size else {},
    )
    run = _Run(policy, view, _state_to_begin_with(question.during))
    for fact in _facts_of_loss(question, layout):
        run.feed_event(events.FactSeen(fact=fact))
    _let_deadline_pass(run, question.free_nodes)
    action = run.state.incident.action if run.state.incident else None
    _evaluate_larger(run, action, lost)
    _answer_with_success(run)
    return _build_answer(model, run, action, lost)


def _build_answer(
    model: HATrainingJobSpec, run: _Run, action: Action | None, lost: tuple[int, ...]
) -> SimulationResult:
    layout = run.view.layout
    isolation, batch = isolate_loss(layout, lost), _visible_batch(model, layout.data)
    current = layout.data - len(isolation.dropped) if action is Action.SHRINK else layout.data
    current = current * run.state.nodes // layout.num_nodes if run.state.nodes else current
    touched = _touched_nodes(run)
    gone = set(isolation.nodes) if action is Action.SHRINK else set()
    verdicts = [run.verdicts[one] for one in FAULT_ACTIONS if one in run.verdicts]
    return SimulationResult(
        layout=layout,
        action=action,
        fault_ranks=lost,
        isolation=isolation,
        current=current,
        micro_batches=batch.micro_batches_per_rank(current) if batch else (),
        step_time=batch.relative_step_time(current) if batch else None,
        memory=memory_of_layout(layout, model.model.parameters) if model.model else None,
        kept_nodes=tuple(node for node in range(layout.num_nodes) if node not in touched | gone),
        considered=tuple(one for one in verdicts if not _is_later_action(one, action)),
        repairs=plan_repairs(layout, lost),
        turns=tuple(run.turns),
        failure=run.failure,
        places=run.places,
        protection=protection_in_words(run.policy),
        by_volcano=model.scheduling.gang_policy is GangPolicy.VOLCANO,
        blocks={node: node // size for node in sorted(touched - gone)} if (size := nodes_per_block(model)) else {},
    )


def _is_later_action(verdict: ActionVerdict, action: Action | None) -> bool:
    """Whether the verdict is not part of the decision: the restart that follows a checkpoint."""
    return verdict.taken and verdict.action is not action


def _checked_lost_ranks(layout: Layout, question: SimulationRequest) -> tuple[int, ...]:
    """Return the lost ranks, checked."""
    if not question.ranks and not question.nodes:
        raise HajobInputError("no loss is given: name at least one rank or node")
    if question.free_nodes < 0:
        raise HajobInputError(f"--free-nodes {question.free_nodes}: give 0 or more")
    ranks = {layout.check_rank(rank) for rank in question.ranks}
    for node in question.nodes:
        ranks.update(layout.ranks_of_node(node))
    return tuple(sorted(ranks))


def _state_to_begin_with(during: Action | None) -> JobState:
    """Return the state of a job that trains, or in which an action runs that has lost nothing yet."""
    state = JobState(phase=JobPhase.RUNNING, incarnation=1, attempt=1, base=1, coordinator=1)
    if during is None:
        return state
    planned = {Action.EXPAND: Purpose.EXPAND, Action.MIGRATE: Purpose.MIGRATE, Action.PAUSE: Purpose.PAUSE}
    purpose = planned.get(during, Purpose.FAULT)
    incident = Incident(2, 2, 1, purpose, Origin.INFRASTRUCTURE, during, Cause(), opened_ms=0)
    base = 2 if during is Action.RESTART else 1
    return replace(state, phase=_DURING[during], incarnation=2, base=base, coordinator=base, incident=incident)


def _facts_of_loss(question: SimulationRequest, layout: Layout) -> list[Fact]:
    """Return the facts of the loss, whole nodes first: a rank of a lost node is lost with it."""
    nodes = sorted(set(question.nodes))
    facts = [Fact(f"node {node}", FactKind.AGENT_SILENT, node_rank=node) for node in nodes]
    ranks = [rank for rank in sorted(set(question.ranks)) if layout.node_of_rank(rank) not in nodes]
    return facts + [Fact(f"rank {rank}", FactKind.PROCESS_EXITED, ranks=(rank,)) for rank in ranks]


def _let_deadline_pass(run: _Run, free_nodes: int) -> None:
    """Let the replacement deadline pass where more pods are replaced than nodes are free."""
    incident = run.state.incident  # only one that is still gathering replaces pods
    missing = len(incident.replaced_nodes) - len(run.state.places) - free_nodes if incident else 0
    if missing <= 0:
        return
    run.now_ms = run.state.deadlines[Deadline.RECOVERY.value]
    run.feed_event(events.DeadlineReached(name=Deadline.RECOVERY.value), waited=True)
    run.verdicts[Action.REPLACE] = no_node_verdict(missing, run.policy.replacement_timeout_seconds)


def no_node_verdict(missing: int, seconds: int) -> ActionVerdict:
    """Return the verdict on a replacement given up after the wait."""
    nodes = "node is" if missing == 1 else "nodes are"
    text = f"{missing} more {nodes} needed; none became free within {seconds} s"
    return ActionVerdict(Action.REPLACE, taken=False, refusals=(Refusal("FreeNode", text),))


def _evaluate_larger(run: _Run, action: Action | None, lost: tuple[int, ...]) -> None:
    """Record which of the larger actions would not have worked, had they been the first to be tried."""
    if action is None:
        return
    evaluator = Evaluator(Loss(lost), FAULT, JobState(), run.view, run.policy, run.now_ms)
    for larger in FAULT_ACTIONS[ACTION_ORDER[action] + 1 :]:
        refusals = evaluator.refusals_of_action(larger)
        places = run.view.free_nodes or run.view.spares
        if larger is Action.REPLACE and not places and not refusals:
            refusals = no_node_verdict(1, run.policy.replacement_timeout_seconds).refusals
        if refusals:
            run.verdicts[larger] = ActionVerdict(larger, taken=False, refusals=refusals)


def _answer_with_success(run: _Run) -> None:
    """Answer every state with success until the job trains again, so that every write is recorded."""
    for _ in range(_MOST_STEPS):
        event = _ANSWERS.get(run.state.phase)
        if event is None:
            return
        run.feed_event(event)


def _visible_batch(spec: HATrainingJobSpec, desired: int) -> Batch | None:
    """Return the batch, where its sizes are visible."""
    flags = read_flags(spec.template)
    whole, micro = flags.number_of_option("global-batch-size"), flags.number_of_option("micro-batch-size")
    return Batch.from_sizes(whole, micro, desired) if whole and micro else None


def _touched_nodes(run: _Run) -> set[int]:
    """Return the node ranks whose pods are made, replaced or deleted."""
    nodes = run.view.layout.num_nodes
    found: set[int] = set()
    for turn in run.turns:
        before, after = (set(placements(state, nodes).ranks) for state in (turn.before, turn.transition.state))
        found.update(one.node_rank for one in before ^ after)
    return found
