"""The writes to the Kubernetes API that decisions lead to, without any API: what `kubectl hajob simulate` lists.

Built of the parts that the live operator runs: the states and which pods they want, the Events, and which change of the
status is urgent. A test runs a real job controller beside it. Two things depend on how
long a recovery takes and are not told here: a status whose write may wait is written once more for every three seconds
that pass, and what else is posted about the pods while they start.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hajob.api import constants as names
from hajob.job.status import announcements
from hajob.job.status.build import is_status_urgent
from hajob.plan.effects import CloseIncident
from hajob.plan.placements import CoordinatorPlacement, Placement, Placements, placements
from hajob.plan.simulate import SimulatedTurn, SimulationResult


@dataclass(frozen=True, slots=True)
class Write:
    """One write to the Kubernetes API.

    Attributes:
        verb: create, patch or delete.
        resource: plural name, with the subresource.
        node_rank: of a rank pod.
        role: of a pod.
        incarnation: of a pod, 0 for anything else.
        reason: of an Event.
    """

    verb: str
    resource: str
    node_rank: int | None = None
    role: str = ""
    incarnation: int = 0
    reason: str = ""


STATUS = Write("patch", "hatrainingjobs/status")


def writes_of_simulation(answer: SimulationResult) -> tuple[Write, ...]:
    """Return every write that a simulated recovery makes, in the order of the live operator."""
    num_nodes = answer.layout.num_nodes
    found: list[Write] = []
    late = False
    for turn in answer.turns:
        if late and turn.waited:
            found.append(STATUS)
            late = False
        urgent = is_status_urgent(turn.before, turn.transition.state, num_nodes)
        found += [STATUS] if urgent else []
        late = not urgent and (late or turn.transition.state is not turn.before)
        found += [Write("create", "events", reason=one.reason) for one in _announcements_of_turn(turn)]
        pods = placements(turn.before, num_nodes), placements(turn.transition.state, num_nodes)
        found += _pod_writes(*pods, by_volcano=answer.by_volcano)
    return (*found, STATUS) if late else tuple(found)


def _announcements_of_turn(turn: SimulatedTurn) -> Iterator[announcements.Announcement]:
    """The Events of one turn; how long an outage was does not matter here."""
    before, after = turn.before.incident, turn.transition.state.incident
    told = [announcements.event_of_effect(effect) for effect in turn.transition.effects]
    if after is not None and (before is None or before.number != after.number):
        told.insert(0, announcements.event_of_opening(after))
    incidents = {one.number: one for one in (before, after) if one is not None}
    for effect in turn.transition.effects:
        if isinstance(effect, CloseIncident) and effect.number in incidents:
            told.append(announcements.event_of_closing(effect, incidents[effect.number], 0))
    return (one for one in told if one is not None)


def _pod_writes(before: Placements, after: Placements, *, by_volcano: bool) -> Iterator[Write]:
    """Old pods first: they may hold what the new ones need. Those of Volcano leave their PodGroup before."""
    old, new = [_identity_of_pod(one) for one in before], [_identity_of_pod(one) for one in after]
    if by_volcano and after.ranks and len(_node_ranks(before)) != len(_node_ranks(after)):
        yield Write("patch", names.POD_GROUPS)
    for pod in old:
        if pod not in new:
            if by_volcano and pod[1] == names.ROLE_RANK:
                yield Write("patch", "pods", *pod)
            yield Write("delete", "pods", *pod)
    yield from (Write("create", "pods", *pod) for pod in new if pod not in old)


def _node_ranks(placed: Placements) -> set[int]:
    return {one.node_rank for one in placed.ranks}


def _identity_of_pod(placement: Placement | CoordinatorPlacement) -> tuple[int | None, str, int]:
    """Node rank, role and incarnation: what tells pods of a job apart."""
    if isinstance(placement, CoordinatorPlacement):
        return None, names.ROLE_COORDINATOR, placement.incarnation
    return placement.node_rank, names.ROLE_RANK, placement.incarnation
