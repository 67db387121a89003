"""A start with fewer nodes than the spec says, and the planned start with all of them afterwards.

MindIO drops ranks from a running training and takes the same ones in again; it never knows more ranks than the training
began with. So a job that was started smaller grows by a save and another start.
"""

from dataclasses import replace
from typing import Final

from hajob.domain.actions import Action
from hajob.domain.incidents import Purpose
from hajob.plan import events
from hajob.plan.context import Context, Guard, HandlerResult
from hajob.plan.elastic import delay_seconds, set_next_look
from hajob.plan.guards import count_free_nodes, is_budget_spent
from hajob.plan.incident_state import book_use
from hajob.plan.lifecycle import may_save_training, open_planned_incident, save_for_purpose
from hajob.plan.policy import Mode
from hajob.plan.recovery import launch_attempt
from hajob.plan.state import JobState

# ---------------------------------------------------------------------- a start that waits


def _fits_smaller(context: Context) -> bool:
    """Whether fewer nodes than this start needs are available, and enough to train with."""
    sizes, state = context.policy.sizes, context.state
    if sizes is None or state.waiting is None or state.attempt < 2 or context.policy.mode is not Mode.ENFORCE:
        return False
    nodes = sizes.largest_fitting(context.view.start_nodes)
    return bool(nodes) and nodes != state.nodes


FITS_SMALLER: Final = Guard(
    "fits smaller",
    "mode is Enforce, a smaller start than this one would find its nodes, and the spec allows it",
    _fits_smaller,
)


def start_smaller(context: Context) -> HandlerResult:
    """Start anew with the available nodes: those for this start do not come.

    The order to stop what waits is above the one that started it: a coordinator takes only what is above.
    """
    incident = context.incident
    if incident is not None:
        incident = replace(incident, revision=incident.revision + 1)
    return launch_attempt(context, context.state, incident, [])


# ---------------------------------------------------------------------- the way back


def _has_enough_nodes(context: Context) -> bool:
    smaller = context.state.smaller
    return smaller is not None and (count_free_nodes(context) or 0) >= smaller.missing


def _is_capacity_steady(context: Context) -> bool:
    """Whether nodes for the missing pods have been free for the whole delay, and the budget allows another try."""
    smaller, policy = context.state.smaller, context.policy
    if smaller is None or not smaller.capacity_ms or policy.mode is not Mode.ENFORCE or not _has_enough_nodes(context):
        return False
    lasted = context.now_ms - smaller.capacity_ms >= 1000 * delay_seconds(context)
    return lasted and not is_budget_spent(context, Action.EXPAND)


SMALLER: Final = Guard(
    "started smaller", "it was started with fewer nodes", lambda context: context.state.smaller is not None
)
ENOUGH: Final = Guard(
    "nodes for the missing", "it was started with fewer nodes, and the others are there", _has_enough_nodes
)
MAY_GROW: Final = Guard(
    "steady nodes, may save",
    "it was started with fewer nodes, the others have been there for the whole delay, mode is Enforce, the budget of "
    "Expand is not spent, and MindIO could save now",
    lambda context: _is_capacity_steady(context) and may_save_training(context),
)
ROOM_HAS_LASTED: Final = Guard(
    "steady nodes",
    "it was started with fewer nodes, the others have been there for the whole delay, mode is Enforce, and the budget "
    "of Expand is not spent",
    _is_capacity_steady,
)


def note_capacity(context: Context) -> HandlerResult:
    """Note since when there are nodes for the missing pods, and look again after the delay.

    If they have lasted and the job still cannot grow, there is no hurry: MindIO may be able to save later.
    """
    smaller = context.state.smaller
    assert smaller is not None
    if smaller.capacity_ms and isinstance(context.event, events.CapacityAvailable):
        return context.state, ()
    if not _has_enough_nodes(context):
        return _look_for_nodes_again(context, 0), ()
    if smaller.capacity_ms:
        return set_next_look(context, context.state, 0), ()
    return _look_for_nodes_again(context, context.now_ms), ()


def note_lost_capacity(context: Context) -> HandlerResult:
    """Note that the nodes for the missing pods are gone, and look again."""
    return _look_for_nodes_again(context, 0), ()


def _look_for_nodes_again(context: Context, capacity_ms: int) -> JobState:
    assert context.state.smaller is not None
    smaller = replace(context.state.smaller, capacity_ms=capacity_ms)
    return set_next_look(context, replace(context.state, smaller=smaller), capacity_ms)


def begin_growth(context: Context) -> HandlerResult:
    """Save, then start with all nodes."""
    return save_for_purpose(Purpose.GROW, context.with_state(book_use(context, context.state, Action.EXPAND)))


def grow_from_periodic(context: Context) -> HandlerResult:
    """Start with all nodes from the periodic checkpoint just saved: MindIO itself cannot save."""
    context = context.with_state(book_use(context, context.state, Action.EXPAND))
    state, incident, out = open_planned_incident(context, Purpose.GROW, Action.RESTART)
    return launch_attempt(context, state, incident, out)
