"""Rules that hold in every phase, whatever row of the table answers: mode, budgets, fences, one process for each rank.

`permitted_row` is the gate: `hajob.plan.machine` asks it once for each event, and a row that would break the rule does
not answer. `broken_rules` checks a transition that was made. Tests ask it about every cell of the table; production
does not: a job that runs is worth more than a rule, and nothing that could be done instead is known to be safer.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from hajob.domain.actions import OrderCommand
from hajob.domain.incidents import Purpose
from hajob.domain.layout import Layout
from hajob.plan import events
from hajob.plan.context import Context, Handler, TableRow, Transition
from hajob.plan.effects import FailJob, SendOrder
from hajob.plan.evaluator import count_budget_uses
from hajob.plan.fencing import FENCE_SECONDS
from hajob.plan.guards import ALWAYS
from hajob.plan.incident_state import RENEWED_LIMIT
from hajob.plan.lifecycle import hold_fault
from hajob.plan.placements import Placement, PodPurpose, placements, same_placements
from hajob.plan.policy import MAINTENANCE_LIMIT, MAINTENANCE_WINDOW_SECONDS, PROGRAM_WINDOW_SECONDS, Mode, Policy
from hajob.plan.state import MAINTENANCE_BUDGET, PROGRAM_BUDGET, WITHOUT_PODS, Deadline, JobPhase, JobState

# ---------------------------------------------------------------------- the gate: recovery.mode

HOLD: Final = TableRow(
    tuple(JobPhase),
    events.FactSeen,
    ALWAYS,
    Handler("hold", "keep the fault open, start nothing", hold_fault),
    JobPhase.HELD,
)
"""Answers instead of every row that decides about a fault while `recovery.mode` is not Enforce."""


def permitted_row(row: TableRow, context: Context) -> TableRow:
    """Return the row, or HOLD where `recovery.mode` forbids the decision that the row carries out.

    A person who sets Observe or Hold wants to look at the job as the fault has left it.
    """
    if row.trigger is None or context.policy.mode is Mode.ENFORCE or context.is_asked_for:
        return row
    context.held_back = row.trigger
    return HOLD


# ---------------------------------------------------------------------- checks


@dataclass(frozen=True, slots=True)
class Step:
    """One transition and all that it was decided from, for a check.

    Attributes:
        before: state before the event.
        event: what happened.
        done: the transition.
        layout: of the attempt.
        policy: what the user allows.
        now_ms: time of the event.
    """

    before: JobState
    event: events.JobEvent
    done: Transition
    layout: Layout
    policy: Policy
    now_ms: int

    @property
    def new_state(self) -> JobState:
        """State after the event."""
        return self.done.state

    @property
    def sent_orders(self) -> tuple[SendOrder, ...]:
        """Orders of the transition."""
        return tuple(effect for effect in self.done.effects if isinstance(effect, SendOrder))

    @property
    def is_new_start(self) -> bool:
        """Whether the transition gives every pod a new incarnation."""
        return self.new_state.base != self.before.base

    @property
    def common_nodes(self) -> range:
        """Node ranks that the attempt has before and after the event; another start may have more."""
        return range(min(self.new_state.nodes or self.layout.num_nodes, self.layout.num_nodes))


# ------------------------------------------------------------ mode

ASKED: Final = (
    events.Accepted,
    events.SuspendRequested,
    events.ResumeRequested,
    events.RestartRequested,
    events.PauseRequested,
    events.PauseEnded,
    events.Deleted,
)
"""Orders of a person, which are carried out in every mode."""
LIMITS: Final = frozenset({Deadline.ACTIVE, Deadline.CAPACITY, Deadline.STARTUP})
"""Deadlines that the spec sets for the job itself."""
NO_DECISION: Final = {
    "another goes on": "Hajob's own part: a coordinator",
    "another": "Hajob's own part: a coordinator",
    "new coordinator": "Hajob's own part: a coordinator",
    "share": "Hajob's own part: a coordinator",
    "complete": "the training has ended",
    "let end": "the training has ended",
    "moved": "an action under way comes to its end",
    "shrunk": "an action under way comes to its end",
    "restart from saved": "an action under way comes to its end",
    "give up growing": "an action under way is given up, the training goes on",
    "give up moving": "an action under way is given up, the training goes on",
    "go on": "a pause ends that a person has asked for",
    "delete all": "a person has asked for a suspend, which was saving",
    "place anew": "a pod that waits for a node of its start",
    "give back": "waitingPodPolicy: Release",
    "make all anew": "waitingPodPolicy: Release",
}
"""Handlers that may change pods or order something in every mode, and why that decides nothing about a fault."""


def unpermitted_decisions(step: Step) -> Iterator[str]:
    """Let Hajob decide nothing by itself unless `recovery.mode` is Enforce: a person looks at the job meanwhile."""
    name = step.done.row.handler.name
    if step.policy.mode is Mode.ENFORCE or isinstance(step.event, ASKED) or name in NO_DECISION:
        return
    commands = {order.command for order in step.sent_orders}
    failed = any(isinstance(effect, FailJob) for effect in step.done.effects)
    pods = not same_placements(step.before, step.new_state, step.layout.num_nodes)
    if not (commands or failed or pods):
        return
    what = f"{sorted(commands)}{', fails' if failed else ''}{', changes pods' if pods else ''}"
    if step.new_state.phase is JobPhase.HELD:
        beside = step.before.phase in {JobPhase.EXPANDING, JobPhase.MIGRATING}
        if failed or not commands <= {OrderCommand.CONTINUE, OrderCommand.SHRINK} or (pods and not beside):
            yield f"what is held back starts nothing, but {what}"
        return
    of_limit = isinstance(step.event, events.DeadlineReached) and step.event.name in LIMITS
    if name == "fail" and (of_limit or isinstance(step.event, events.Unworkable)):
        return
    incident = step.before.incident
    asked = incident is not None and incident.purpose is Purpose.REQUEST and step.before.phase is JobPhase.SAVING
    if name != "restart" or not asked:
        yield f"in mode {step.policy.mode} nothing is decided, but {name}: {what}"


# ------------------------------------------------------------ budgets


def overspent_budgets(step: Step) -> Iterator[str]:
    """Book no use of a budget that is spent: a fault that comes back for ever has to end in a larger action."""
    limits = {action.value: (limit.max_count, limit.window_seconds) for action, limit in step.policy.limits.items()}
    limits[PROGRAM_BUDGET] = (step.policy.max_program_failures, PROGRAM_WINDOW_SECONDS)
    limits[MAINTENANCE_BUDGET] = (MAINTENANCE_LIMIT, MAINTENANCE_WINDOW_SECONDS)
    alone = step.done.row.handler.name == "restart for controller"  # limited by a gap that doubles
    for budget, (most, window) in limits.items():
        used, then = (count_budget_uses(state, budget, window, step.now_ms) for state in (step.before, step.new_state))
        if then > used and then > most and not (alone and budget == MAINTENANCE_BUDGET):
            yield f"{budget} is used {then} times in {window} s, {most} allowed"


_PAID: Final = frozenset({Purpose.EXPAND, Purpose.MIGRATE, Purpose.GROW, Purpose.COORDINATOR})
"""Purposes other than a fault whose action has a budget from its beginning."""


def unbooked_actions(step: Step) -> Iterator[str]:
    """Book every action that is begun, unless a person has asked for it: a free one could be repeated for ever."""
    before, after = step.before.incident, step.new_state.incident
    if after is None or step.new_state.phase is JobPhase.HELD:
        return
    same = before is not None and before.number == after.number
    if after.purpose is Purpose.FAULT:
        taken = any(verdict.taken and verdict.action is after.action for verdict in step.done.considered)
        widens = same and before is not None and before.action is after.action and not step.is_new_start
        begun = taken and not widens
    else:
        begun = after.purpose in _PAID and not same
    if begun and not {*map(id, step.new_state.spent)} - {*map(id, step.before.spent)}:
        yield f"{after.action} is begun for {after.purpose}, and no budget pays for it"


# ------------------------------------------------------------ fences


def fallen_incarnations(step: Step) -> Iterator[str]:
    """Let incarnations only grow, and none be above the newest: a fact about an older one has to be told as stale."""
    before, after = step.before, step.new_state
    if after.incarnation < before.incarnation or after.base < before.base or after.attempt < before.attempt:
        yield f"numbers fall: {before.incarnation, before.base, before.attempt} to {after.incarnation, after.base}"
    used = [after.base, after.coordinator, after.relieved, *after.renewed.values(), *after.pods.values()]
    if after.incident is not None:
        used += [after.incident.number, after.incident.incarnation]
        if after.incident.incarnation < after.incident.number:
            yield "an incident is older than its number"
    if max(used) > after.incarnation:
        yield f"{max(used)} is in use, the newest incarnation is {after.incarnation}"
    low = [node for node in step.common_nodes if after.pod_incarnation(node) < before.pod_incarnation(node)]
    if low:
        yield f"pods of node ranks {low} grow younger"
    if after.forgotten_ms == before.forgotten_ms:
        ranks = [rank for node in step.common_nodes for rank in step.layout.ranks_of_node(node)]
        low = [
            rank for rank in ranks if _incarnation_of_rank(after, step, rank) < _incarnation_of_rank(before, step, rank)
        ]
        if low:
            yield f"processes of ranks {low} grow younger"


def _incarnation_of_rank(state: JobState, step: Step, rank: int) -> int:
    return state.incarnation_of(rank, step.layout.node_of_rank(rank))


def reused_incarnations(step: Step) -> Iterator[str]:
    """Give everything made anew a number that was never used: an agent tells its order from an older one by that."""
    before, after = step.before, step.new_state
    newest = max(before.incarnation, step.event.incarnation if isinstance(step.event, events.FactSeen) else 0)
    incident = after.incident or before.incident
    made: dict[str, int] = {}
    if step.is_new_start:
        made["start"] = after.base
        if after.pods or after.renewed or (after.released and after.phase not in WITHOUT_PODS):
            yield "a new start keeps pods or processes of the one before"
    if after.coordinator > before.coordinator:
        made["coordinator"] = after.coordinator
    for node, number in after.pods.items():
        # a pod that joins an incident, or that a move has made already, has the incident's number
        if number != before.pods.get(node) and (incident is None or number != incident.incarnation):
            made[f"pod of node rank {node}"] = number
    for what, number in made.items():
        if number <= newest:
            yield f"the {what} has the number {number}, {newest} was used before"


def reused_incidents(step: Step) -> Iterator[str]:
    """Give an incident a number above everything used, also when what it has made is made again: its orders carry it.

    A new one takes the number under which the coordinator has opened it by itself.
    """
    before, after, used = step.before.incident, step.new_state.incident, step.before.incarnation
    if after is None:
        return
    if before is None or before.number != after.number:
        if after.number <= used:
            yield f"the incident has the number {after.number}, {used} was used before"
    elif after.incarnation != before.incarnation and after.incarnation <= max(used, step.event.incarnation):
        yield f"the incident goes on as {after.incarnation}, {used} and {step.event.incarnation} were used before"


def misnumbered_orders(step: Step) -> Iterator[str]:
    """Give every order a number above the one before, and that of what it is for: a coordinator drops any other."""
    incident = step.before.incident
    last = (incident.incarnation, incident.revision) if incident is not None else (step.before.base, 0)
    for order in step.sent_orders:
        number = (order.incarnation, order.revision)
        if number <= last:
            yield f"order {order.command} {number} is not above {last}"
        last = number
        if order.incarnation > step.new_state.incarnation:
            yield f"order {order.command} {number} is above the newest incarnation {step.new_state.incarnation}"
        if order.command is OrderCommand.START and order.incarnation != step.new_state.base:
            yield f"the order to start is numbered {order.incarnation}, the start {step.new_state.base}"
    newest = step.new_state.incident
    if step.sent_orders and newest is not None and (newest.incarnation, newest.revision) < last:
        yield f"the incident is at {newest.incarnation, newest.revision}, its order at {last}"


def forgotten_fences(step: Step) -> Iterator[str]:
    """Remember a node that could not be reached until its ranks have certainly ended; a start waits for that."""
    for name, at_ms in step.before.unreachable.items():
        fenced = step.now_ms - at_ms >= 1000 * FENCE_SECONDS
        if not fenced and step.new_state.unreachable.get(name, at_ms - 1) < at_ms:
            yield f"node {name} is forgotten before its ranks have ended"


# ------------------------------------------------------------ never two processes for a rank


def doubled_pods(step: Step) -> Iterator[str]:
    """Want one serving pod for each node rank, and a second, newer one only during a move."""
    wanted = placements(step.new_state, step.layout.num_nodes).ranks
    serving: dict[int, Placement] = {}
    for one in (each for each in wanted if each.purpose is PodPurpose.SERVING):
        if one.node_rank in serving:
            yield f"node rank {one.node_rank} has two serving pods"
        serving[one.node_rank] = one
    for one in (each for each in wanted if each.purpose is PodPurpose.SECOND_PLACE):
        first = serving.get(one.node_rank)
        if step.new_state.phase is not JobPhase.MIGRATING:
            yield f"node rank {one.node_rank} has a second pod in {step.new_state.phase}"
        if first is None or first.incarnation >= one.incarnation:
            yield f"the second pod of node rank {one.node_rank} is not newer than {first}"


def doubled_processes(step: Step) -> Iterator[str]:
    """Restart no process in a pod that goes, is being made or is left out: its agent would start it a second time."""
    before, after = step.before, step.new_state
    for order in step.sent_orders:
        unmarked = [rank for rank in order.restart_ranks if after.renewed.get(rank) != order.incarnation]
        if unmarked and len(order.restart_ranks) <= RENEWED_LIMIT:
            yield f"{order.command} restarts ranks {unmarked}, which are not noted as new"
        for node in {step.layout.node_of_rank(rank) for rank in order.restart_ranks}:
            if after.pod_incarnation(node) != before.pod_incarnation(node):
                yield f"{order.command} restarts processes of node rank {node}, whose pod is made anew"
            if node in after.released:
                yield f"{order.command} restarts processes of node rank {node}, which has no pod"
        if any(node not in step.common_nodes for node in order.replaced_nodes):
            yield f"{order.command} replaces pods that the attempt does not have"
        if order.command is OrderCommand.REPLACE or order.command is OrderCommand.EXPAND:
            old = [node for node in order.replaced_nodes if after.pod_incarnation(node) == after.base]
            if old:
                yield f"{order.command} replaces node ranks {old}, whose pods stay as they are"


_KEEP_A_START: Final = frozenset({JobPhase.HELD, JobPhase.ENDING})
"""Phases in which a start that has given its chips back stays as it is."""


def unexplained_releases(step: Step) -> Iterator[str]:
    """Leave out only pods that a shrink has dropped, or all of a start that gave its chips back: others have ranks."""
    after, shrunk = step.new_state, step.new_state.shrunk
    if after.phase in WITHOUT_PODS or (after.waiting is not None and after.waiting.released):
        return
    out, given_back = set(after.released), step.before.waiting is not None and step.before.waiting.released
    if step.before.is_untrained and (given_back or out <= set(step.before.released)) and after.phase in _KEEP_A_START:
        return
    dropped = set(shrunk.nodes) if shrunk is not None else set()
    if out - dropped:
        yield f"node ranks {sorted(out - dropped)} have no pod, and nothing says why"
    if shrunk is None:
        return
    for node in out.difference(shrunk.lost_nodes):
        if not set(shrunk.ranks).issuperset(step.layout.ranks_of_node(node)):
            yield f"node rank {node} has no pod, and ranks that were not dropped"
    if not dropped.issuperset(shrunk.lost_nodes):
        yield f"node ranks {sorted(shrunk.lost_nodes)} count as lost, {sorted(dropped)} were dropped"


CHECKS: Final[tuple[Callable[[Step], Iterator[str]], ...]] = (
    unpermitted_decisions,
    overspent_budgets,
    unbooked_actions,
    fallen_incarnations,
    reused_incarnations,
    reused_incidents,
    misnumbered_orders,
    forgotten_fences,
    doubled_pods,
    doubled_processes,
    unexplained_releases,
)
"""Rules that are checked after a transition."""


def broken_rules(step: Step) -> list[str]:
    """Return every rule that a transition breaks, with how it does so; empty for each that is sound."""
    return [f"{check.__name__}: {words}" for check in CHECKS for words in check(step)]
