"""The writes to the Kubernetes API that decisions lead to, without any API: what `kubectl hajob simulate` lists.

Built of the parts that the live operator runs: the wanted pods and what changes them, which pods those are, the
Events, and which change of the status is urgent. A test runs a real job controller beside it. Two things depend on how
long a recovery takes and are not told here: a status whose write may wait is written once more for every three seconds
that pass, and what else is posted about the pods while they start.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hajob.objects.wanted_pods import Place, WantedPods, apply
from hajob.plan.effects import CloseIncident
from hajob.plan.simulate import SimulationResult, Turn
from hajob.status import announcements
from hajob.status.build import is_urgent


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


def writes(answer: SimulationResult) -> tuple[Write, ...]:
    """Every write that a simulated recovery makes, in the order of the live operator."""
    begin = answer.turns[0].before
    wanted = WantedPods(attempt=begin.attempt, coordinator=begin.base, base=begin.base)
    found: list[Write] = []
    late = False
    for turn in answer.turns:
        if late and turn.waited:
            found.append(STATUS)
            late = False
        urgent = is_urgent(turn.before, turn.transition.state, turn.transition.effects)
        found += [STATUS] if urgent else []
        late = not urgent and (late or turn.transition.state is not turn.before)
        found += [Write("create", "events", reason=one.reason) for one in _told(turn)]
        after = wanted
        for effect in turn.transition.effects:
            after = apply(after, effect, {})
        found += _pods(wanted, after, answer.layout.num_nodes)
        wanted = after
    return (*found, STATUS) if late else tuple(found)


def _told(turn: Turn) -> Iterator[announcements.Announcement]:
    """The Events of one turn; how long an outage was does not matter here."""
    before, after = turn.before.incident, turn.transition.state.incident
    told = [announcements.of_effect(effect) for effect in turn.transition.effects]
    if after is not None and (before is None or before.number != after.number):
        told.insert(0, announcements.of_opening(after))
    actions = {one.number: one.action for one in (before, after) if one is not None}
    for effect in turn.transition.effects:
        if isinstance(effect, CloseIncident) and effect.number in actions:
            told.append(announcements.of_closing(effect, actions[effect.number], 0))
    return (one for one in told if one is not None)


def _pods(before: WantedPods, after: WantedPods, num_nodes: int) -> Iterator[Write]:
    """New pods first: their start-up is what everybody waits for."""
    old, new = before.places(num_nodes), after.places(num_nodes)
    yield from (_pod("create", place) for place in new if place not in old)
    yield from (_pod("delete", place) for place in old if place not in new)


def _pod(verb: str, place: Place) -> Write:
    node_rank = None if place.node_rank < 0 else place.node_rank
    return Write(verb, "pods", node_rank, place.role, place.incarnation)
