"""Guards: the conditions of the table's rows, each with its sentence in docs/internals/state-machine.md."""

from functools import partial
from typing import Final

from hajob.domain.actions import MINDIO_STRATEGY, STRATEGIES, Action
from hajob.domain.facts import CONTAINER_ENDED, NO_SUCCESSOR, TAKES_THE_NODE, FactKind
from hajob.domain.facts import SICK_NODE as SICK_NODES
from hajob.domain.incidents import Purpose
from hajob.plan import events
from hajob.plan.context import Context, Guard
from hajob.plan.evaluator import NOT_SERVING, Trigger, budget_exhausted, count_budget_uses
from hajob.plan.ignored import Ignored, IgnoreReason
from hajob.plan.policy import (
    MAINTENANCE_BACKOFF_SECONDS,
    MAINTENANCE_WINDOW_SECONDS,
    WITHOUT_MINDIO,
    CoordinatorLossPolicy,
    Mode,
)
from hajob.plan.state import HELD_UP, MAINTENANCE_BUDGET, UNTRAINED, Deadline, JobPhase


def chooses_action(trigger: Trigger, action: Action) -> Guard:
    """Return a guard: this action is the smallest that works on this trigger."""
    sentence = f"on the trigger {trigger.name} {action} is the smallest action that works"
    return Guard(f"{trigger.name}: {action}", sentence, lambda context: context.decide_action(trigger).action is action)


def is_fact_about(name: str, sentence: str, kinds: frozenset[FactKind]) -> Guard:
    """Return a guard: the fact is of one of these kinds."""
    return Guard(name, sentence, lambda context: context.required_fact.kind in kinds)


def has_result(*codes: int, strategy: str = "") -> Guard:
    """Return a guard: MindIO's result has one of these codes (and is about this strategy, when it names one)."""
    words = " or ".join(map(str, codes))
    about = f" of {strategy}" if strategy else ""
    return Guard(
        f"result {words}{about}", f"MindIO's code is {words}{about}", partial(_has_result_code, codes, strategy)
    )


def _has_result_code(codes: tuple[int, ...], strategy: str, context: Context) -> bool:
    event = context.event_of(events.ResultReported)
    return event.code in codes and (not strategy or event.strategy in {"", strategy})


def _has_saved_training(context: Context) -> bool:
    event = context.event_of(events.ResultReported)
    return event.code == 0 and event.strategy == MINDIO_STRATEGY[Action.CHECKPOINT]


def both_guards(first: Guard, second: Guard) -> Guard:
    """Return a guard: both conditions hold."""
    name, sentence = f"{first.name}, {second.name}", f"{first.sentence}, and {second.sentence}"
    return Guard(name, sentence, lambda context: first.test(context) and second.test(context))


def is_deadline_due(context: Context, name: str) -> bool:
    """Return whether the event is the named deadline, set and passed."""
    event = context.event_of(events.DeadlineReached)
    at = context.state.deadlines.get(event.name)
    return event.name == name and at is not None and context.now_ms >= at


def unknown_ranks(context: Context) -> tuple[int, ...]:
    """Return the ranks that MindIO reports lost and the incident does not."""
    event, incident = context.event, context.incident
    if not isinstance(event, events.Stopped) or incident is None:
        return ()
    known = set(incident.lost_ranks)
    return tuple(sorted(rank for rank in set(event.ranks) - known if 0 <= rank < context.view.layout.world_size))


def _only_a_start(context: Context) -> bool:
    """Whether nothing but another start can follow what was held back."""
    return context.state.phase is JobPhase.HELD and (context.state.is_untrained or context.state.blind)


def _goes_on_starting(context: Context) -> bool:
    """Whether the event is of a start that was under way when its incident was held back, and goes on."""
    state, number = context.state, context.event.incarnation
    return state.going_on in UNTRAINED and (not number or number >= state.base)


def _names_strange_strategy(context: Context) -> bool:
    """Whether the event names a strategy that MindIO does not have; `ignored` then names it."""
    event = context.event
    if isinstance(event, events.StrategiesOffered):
        strange = event.names if not STRATEGIES & set(event.names) else ()
    else:
        assert isinstance(event, events.ResultReported)
        strange = (event.strategy,) if event.strategy and event.strategy not in STRATEGIES else ()
    if strange:
        context.ignored = Ignored(IgnoreReason.UNKNOWN_STRATEGY, ", ".join(strange))
    return bool(strange)


def start_due_ms(context: Context) -> int | None:
    """Return when a start without further progress is given up; None when no progress is known."""
    seen = context.view.start_sign_ms
    return None if seen is None else seen + 1000 * context.policy.startup_deadline_seconds


def _old_revision(context: Context) -> bool:
    event, incident = context.event, context.incident
    assert isinstance(event, events.Named | events.ReplacementsReady)
    return incident is not None and 0 < event.revision < incident.revision


def _other_attempt(context: Context) -> bool:
    event = context.event
    assert isinstance(event, events.AllRanksStarted | events.LastStepEnded)
    return event.attempt not in {0, context.state.attempt}


def _is_action_offered(context: Context) -> bool:
    event, incident = context.event_of(events.StrategiesOffered), context.incident
    return incident is None or MINDIO_STRATEGY[incident.action] in event.names


def _save_offered(context: Context) -> bool:
    event = context.event_of(events.StrategiesOffered)
    return _is_action_offered(context) or MINDIO_STRATEGY[Action.CHECKPOINT] in event.names


def _nodes_wanted(context: Context) -> int:
    shrunk = context.state.shrunk
    if shrunk is None:
        return 0
    return len(shrunk.absent_nodes(released=context.policy.release_shrunk_pods))


def count_free_nodes(context: Context) -> int | None:
    """Return the free nodes from the event, or else from the view; None: they are not counted."""
    event = context.event
    return event.nodes if isinstance(event, events.CapacityAvailable) else context.view.free_nodes


def _has_enough_nodes(context: Context) -> bool:
    free = count_free_nodes(context)
    return free is None or free >= _nodes_wanted(context)


def _nodes_for_all(context: Context) -> bool:
    free = count_free_nodes(context)
    return free is None or free >= context.view.layout.num_nodes


def _may_expand_now(context: Context) -> bool:
    return (
        context.policy.mode is Mode.ENFORCE
        and _has_enough_nodes(context)
        and not context.state.store_lost
        and not is_budget_spent(context, Action.EXPAND)
    )


MANAGER_STAYS: Final = (
    "ManagerAlive: node rank 0 carries TaskD's manager and the rendezvous store, which no second process takes over"
)


def why_no_move(context: Context) -> str:
    """Return why no pod can be moved now; empty when one can."""
    event, view, policy = context.event, context.view, context.policy
    if context.state.phase is not JobPhase.RUNNING:
        return f"the job is {context.state.phase}; a move can begin only while it is Running"
    if policy.mode is not Mode.ENFORCE:
        return f"recovery.mode is {policy.mode}"
    if not policy.hot_switch:
        return "ProcessRecovery: MindSpore takes second processes in only where InPlace or Replace can work"
    if not policy.through_mindio:
        return WITHOUT_MINDIO
    if isinstance(event, events.MigrateRequested) and (why := _why_nodes_stay(event.nodes, context)):
        return why
    if view.step < 1:
        return "the first step has not ended yet"
    if not view.coordinator_ready:
        return NOT_SERVING
    if context.state.store_lost:
        return "StoreKept: the rendezvous store was lost with the coordinator pod"
    if is_budget_spent(context, Action.MIGRATE):
        limits = policy.limits[Action.MIGRATE]
        return budget_exhausted(limits.max_count, limits)
    return ""


def _why_nodes_stay(nodes: tuple[int, ...], context: Context) -> str:
    count = context.view.layout.num_nodes
    if not _do_all_nodes_exist(nodes, count):
        return f"node ranks are 0 to {count - 1}"
    return MANAGER_STAYS if context.policy.taskd_starts_ranks and 0 in nodes else ""


def _do_all_nodes_exist(nodes: tuple[int, ...], count: int) -> bool:
    return bool(nodes) and all(0 <= node < count for node in nodes)


def is_budget_spent(context: Context, action: Action) -> bool:
    """Return whether the budget of an action is used up for now."""
    limits = context.policy.limits[action]
    return count_budget_uses(context.state, action.value, limits.window_seconds, context.now_ms) >= limits.max_count


def _may_restart_again(context: Context) -> bool:
    """Whether the next restart for a lost coordinator is due: the gap doubles with each of them within the window."""
    since = context.now_ms - 1000 * MAINTENANCE_WINDOW_SECONDS
    times = [one.time_ms for one in context.state.spent if one.budget == MAINTENANCE_BUDGET and one.time_ms > since]
    distance = MAINTENANCE_BACKOFF_SECONDS * 2 ** (len(times) - 1) if times else 0
    return not times or context.now_ms - max(times) >= 1000 * distance


def why_coordinator_stays(context: Context) -> str:
    """Return why no other coordinator takes over; empty when one may."""
    if context.policy.mode is not Mode.ENFORCE:
        return f"recovery.mode is {context.policy.mode}"
    return "" if context.view.coordinator_ready else NOT_SERVING


_ACTED_UPON: Final = frozenset({*HELD_UP, JobPhase.SAVING})
"""Phases in which something was done for the incident, which its end does not undo."""


def _nothing_left(context: Context) -> bool:
    event, incident = context.event_of(events.FactsWithdrawn), context.incident
    if incident is None or context.state.held_from in _ACTED_UPON:
        return False
    return bool(incident.fact_ids) and set(incident.fact_ids) <= set(event.ids)


def _kept_pod_lost(context: Context) -> bool:
    fact, shrunk, ignored = context.required_fact, context.state.shrunk, context.relevance.ignored
    if shrunk is None or ignored is None or ignored.reason is not IgnoreReason.DROPPED:
        return False
    kept = set(shrunk.nodes).difference(shrunk.lost_nodes, context.state.released)
    takes = fact.kind in TAKES_THE_NODE and fact.kind not in SICK_NODES
    return takes and not kept.isdisjoint(context.view.layout.nodes_of_ranks(context.fact_ranks()))


def _are_ranks_returning(context: Context) -> bool:
    incident = context.incident
    return incident is not None and set(context.fact_ranks()) <= set(incident.lost_ranks)


def _is_waited_for(context: Context) -> bool:
    return not context.state.deadlines.keys().isdisjoint({Deadline.UNREACHABLE, Deadline.COORDINATOR})


def _another_goes_on(context: Context) -> bool:
    incident, seen = context.incident, context.seen_fact
    if incident is None or context.state.is_untrained or (seen is not None and seen.code != CONTAINER_ENDED):
        return False
    taken = isinstance(context.event, events.CoordinatorLost) and not context.event.program
    return taken or context.state.coordinator < incident.number


ALWAYS: Final = Guard("always", "in every other case", lambda _context: True)

UNCONCERNED: Final = Guard(
    "unconcerned",
    "the fact is stale, a duplicate, of another job, nonsense, or tolerated by policy",
    lambda context: not context.concerns_job(),
)
KEPT_POD_LOST: Final = Guard(
    "kept pod lost",
    "the fact takes a healthy pod of a dropped data-parallel rank, which was kept for growing back",
    _kept_pod_lost,
)
STRANGE: Final = Guard("unknown strategy", "a strategy that MindIO does not have", _names_strange_strategy)
UNOPENED: Final = Guard(
    "unopened",
    "the coordinator has numbered an incident that no fact has opened here",
    lambda context: context.event.incarnation > context.state.incarnation,
)
FOREIGN: Final = Guard("foreign", "the event belongs to another incarnation", lambda context: context.is_foreign_event)
NOTHING_LEFT: Final = Guard("nothing is left", "the incident has no other fact", _nothing_left)
NOTE: Final = is_fact_about("note", "the fact loses nothing, it explains", frozenset({FactKind.POD_UNSTARTABLE}))
STANDING_SAVE: Final = Guard(
    "saved unasked",
    "MindIO has saved, because the coordinator's standing orders say so where a decision or a pod does not come",
    _has_saved_training,
)
CONTROLLER_FACT: Final = is_fact_about(
    "controller lost", "the fact says the controller is gone", frozenset({FactKind.CONTROLLER_LOST})
)
BLIND_FACT: Final = Guard(
    "no successor",
    "the fact says that no other controller can take its place",
    lambda context: context.seen_fact is not None and context.seen_fact.code == NO_SUCCESSOR,
)
SMALL: Final = Guard("smaller", "data-parallel ranks are left out", lambda context: context.state.shrunk is not None)
BLIND: Final = Guard(
    "blind", "no other controller can take the place of the lost one", lambda context: context.state.blind
)
TAKING_OVER: Final = Guard(
    "another controller comes",
    "another controller is about to take the place of the lost one",
    lambda context: not context.state.blind and bool(context.policy.through_mindio),
)
AWAITED: Final = Guard(
    "coordinator awaited",
    "the coordinator has not been heard for a moment, and is not given up yet",
    _is_waited_for,
)
RELIEVED_HEARD: Final = Guard(
    "to be relieved",
    "it is still the one that another one shall relieve",
    lambda context: context.view.relieved_heard,
)
MISSED: Final = Guard(
    "coordinator missed",
    "the coordinator has not been heard for a moment; it comes back, or another one takes its place",
    lambda context: (
        not context.view.coordinator_ready
        and (context.view.coordinator_silent or _is_waited_for(context))
        and bool(context.policy.through_mindio)
    ),
)
UNSERVED: Final = Guard(
    "unserved",
    "no controller serves, and the one that did is not waited for",
    lambda context: not context.view.coordinator_ready and not _is_waited_for(context),
)
ANOTHER_GOES_ON: Final = Guard(
    "another one goes on",
    "its pod was taken, or it has ended for the first time since the incident began",
    _another_goes_on,
)
SICK_NODE: Final = is_fact_about("sick node", "the fact is about a node that still works", SICK_NODES)
SERVING: Final = Guard("serves again", "the controller serves", lambda context: context.view.coordinator_ready)
RELEASED: Final = Guard("released", "mode is Enforce again", lambda context: context.policy.mode is Mode.ENFORCE)
WATCHING: Final = Guard("watching", "mode is Observe or Hold", lambda context: context.policy.mode is not Mode.ENFORCE)
ONLY_A_START: Final = Guard(
    "only a start",
    "no step of this attempt has ended, or MindIO offers nothing but the end",
    _only_a_start,
)
HELD_AT_START: Final = Guard(
    "held at its start",
    "it was held back before a step of this attempt had ended",
    lambda context: context.state.is_untrained,
)
GOES_ON_STARTING: Final = Guard(
    "goes on starting",
    "what was held back at the start has stopped nothing, and a step of the attempt has ended",
    _goes_on_starting,
)
NAMED_ALREADY: Final = Guard(
    "named already",
    "data-parallel ranks are left out, or MindIO has been told the lost ranks",
    lambda context: context.state.shrunk is not None or (context.incident is not None and context.incident.named),
)
MOVE: Final = Guard(
    "move asked",
    "the node still works and the policy wants to move off it",
    lambda context: context.asks_for_a_move,
)
RESTART_NOW: Final = Guard(
    "immediately",
    "mode is Enforce, coordinatorLossPolicy is Immediately, and the last such restart was long enough ago",
    lambda context: (
        context.policy.mode is Mode.ENFORCE
        and context.policy.coordinator_loss is CoordinatorLossPolicy.IMMEDIATELY
        and _may_restart_again(context)
    ),
)
RESTART_AT_CHECKPOINT: Final = Guard(
    "at next checkpoint",
    "mode is Enforce, coordinatorLossPolicy is not Never, and the last such restart was long enough ago",
    lambda context: (
        context.policy.mode is Mode.ENFORCE
        and context.policy.coordinator_loss is not CoordinatorLossPolicy.NEVER
        and _may_restart_again(context)
    ),
)
SUSPENDING: Final = Guard(
    "suspending",
    "suspend was asked for, or the queue takes the job's quota back",
    lambda context: context.incident is not None and context.incident.purpose in {Purpose.SUSPEND, Purpose.EVICT},
)
START_GOES_ON: Final = Guard(
    "start goes on",
    "startupDeadlineSeconds are over since it began, but not since it was last seen to go on",
    lambda context: (start_due_ms(context) or 0) > context.now_ms,
)
FIRST_START: Final = Guard(
    "first start", "no incident is open: a person waits for this start", lambda context: context.incident is None
)
CONFIRMED: Final = Guard(
    "confirmed",
    "MindIO has already said that it succeeded",
    lambda context: any(mark.name == "Result" for mark in context.incident.milestones) if context.incident else False,
)
NAMED_TOO_FEW: Final = Guard("named too few", "ranks were named before the newest loss had joined", _old_revision)
OLD_REVISION: Final = Guard("older order", "the answer to an older order", _old_revision)
OTHER_ATTEMPT: Final = Guard("other attempt", "of another attempt", _other_attempt)
NOT_OFFERED: Final = Guard(
    "not offered", "MindIO does not offer what is wanted", lambda context: not _is_action_offered(context)
)
NO_SAVE_OFFERED: Final = Guard(
    "no save offered", "MindIO offers neither what is wanted nor to save", lambda context: not _save_offered(context)
)
MORE_RANKS: Final = Guard(
    "more ranks", "MindIO names ranks that were not known to be lost", lambda context: bool(unknown_ranks(context))
)
DUE_STARTUP: Final = Guard(
    "startup due", "startupDeadlineSeconds are over", lambda context: is_deadline_due(context, Deadline.STARTUP)
)
DUE_RECOVERY: Final = Guard(
    "recovery due",
    "the deadline of the running step is over",
    lambda context: is_deadline_due(context, Deadline.RECOVERY),
)
DUE_FIT: Final = Guard(
    "fit due", "a start anew has waited for nodes for a minute", lambda context: is_deadline_due(context, Deadline.FIT)
)
DUE_EXPAND: Final = Guard(
    "expand due", "expandDelaySeconds are over", lambda context: is_deadline_due(context, Deadline.EXPAND)
)
DUE_ACTIVE: Final = Guard(
    "active due", "activeDeadlineSeconds are over", lambda context: is_deadline_due(context, Deadline.ACTIVE)
)
DUE_CAPACITY: Final = Guard(
    "capacity due",
    "scheduling.capacityTimeoutSeconds are over",
    lambda context: is_deadline_due(context, Deadline.CAPACITY),
)
DUE_RELEASE: Final = Guard(
    "release due",
    "a start has held chips in vain, or has done without, for a minute",
    lambda context: is_deadline_due(context, Deadline.RELEASE) and context.state.waiting is not None,
)
RELEASED_CHIPS: Final = Guard(
    "chips released",
    "the start has given its chips back",
    lambda context: context.state.waiting is not None and context.state.waiting.released,
)
HOLDS_CHIPS: Final = Guard(
    "holds chips", "some of its rank pods have a node", lambda context: bool(context.view.node_names)
)
NODES_FOR_ALL: Final = Guard("nodes for all", "there are nodes for every rank pod", _nodes_for_all)
RESTED: Final = Guard(
    "for a minute",
    "and has done without for a minute",
    lambda context: Deadline.RELEASE not in context.state.deadlines,
)
MISSING_COMMAND: Final = Guard(
    "missing command",
    "mode is Enforce, no step of the job has ever ended, and its command does not exist or cannot be executed",
    lambda context: (
        context.policy.mode is Mode.ENFORCE
        and not context.state.resumed_ms
        and context.required_fact.is_missing_command
    ),
)
TAKEN_BY_CLUSTER: Final = Guard(
    "taken by the cluster",
    "the pod was deleted, preempted, evicted or refused, or its node turned bad before the pod had started",
    lambda context: context.required_fact.takes_only_the_pod,
)
NEVER_PLACED: Final = Guard(
    "never placed",
    "the pod is gone before it had a node: nothing ran in it, and Hajob itself replaces pods that wait",
    lambda context: context.required_fact.takes_no_node,
)
DUE_UNPLACED: Final = Guard(
    "unplaced due",
    "the coordinator has found no node of its own for a moment",
    lambda context: is_deadline_due(context, Deadline.UNPLACED),
)
DUE_UNREACHABLE: Final = Guard(
    "unreachable due",
    "the coordinator has not been reached for a moment",
    lambda context: is_deadline_due(context, Deadline.UNREACHABLE),
)
DUE_COORDINATOR: Final = Guard(
    "coordinator due",
    "the coordinator could not be reached for too long",
    lambda context: is_deadline_due(context, Deadline.COORDINATOR),
)
PASSED: Final = Guard(
    "passed",
    "it is set, it has passed, and nothing waits for it any more",
    lambda context: is_deadline_due(context, context.event_of(events.DeadlineReached).name),
)
NO_POD_AWAITED: Final = Guard(
    "no pod awaited",
    "only processes are being made anew",
    lambda context: context.incident is not None and not context.incident.replaced_nodes,
)
RETRYING: Final = Guard(
    "retrying",
    "a step is being repeated",
    lambda context: context.incident is not None and context.incident.action is Action.RETRY,
)
ENOUGH_NODES: Final = Guard("enough nodes", "there are nodes for every pod that left", _has_enough_nodes)
STEADY_CAPACITY: Final = Guard(
    "steady capacity",
    "mode is Enforce, there have been nodes for the whole delay, and the budget of Expand is not spent",
    lambda context: bool(context.state.shrunk and context.state.shrunk.capacity_ms) and _may_expand_now(context),
)
FRESH_CAPACITY: Final = Guard(
    "fresh capacity",
    "there are nodes now, and there were none before",
    lambda context: bool(context.state.shrunk and not context.state.shrunk.capacity_ms) and _has_enough_nodes(context),
)
MAY_MIGRATE: Final = Guard(
    "may migrate",
    "mode is Enforce, the framework knows moves, the nodes exist, the first step has ended, the budget is not spent",
    lambda context: not why_no_move(context),
)
MAY_HAND_OVER: Final = Guard(
    "may hand over",
    "mode is Enforce, and a controller protects the job",
    lambda context: not why_coordinator_stays(context),
)
RETURNING: Final = Guard(
    "of a returning rank", "the fact concerns only ranks that are not training yet", _are_ranks_returning
)
