"""What a job waits for in a queue of Volcano, in words. Pure.

What a PodGroup says of itself names neither its queue nor a queue's limit, and is never taken back
(docs/admin/schedulers.md); so the phase decides what is read, and queues are looked up.
"""

from __future__ import annotations

import re
from typing import Final

from hajob.capacity.pod_groups import PodGroups
from hajob.sources.pod_group import INQUEUE, PENDING, RUNNING, PodGroupView

_WANTED: Final = re.compile(r"require npu num is (\d+), but cluster npu num is (\d+)")
_REFUSED_BY_PLUGIN: Final = ("JobValidateFailed", "BatchOrderFailed")
_NO_NODE: Final = ("NodePredicateFailed", *_REFUSED_BY_PLUGIN)
_BARE: Final = re.compile(r"^Predicated-Nodes count: \d+, nodes: \[.*?\][. ,]*")
"""The nodes that would do: something else keeps the pods off them, nearly always the queue's limit. What follows is
said of the other nodes; where there are none, nothing."""
_ENDING: Final = "NotEnoughPod"
_WAITING: Final = frozenset({PENDING, INQUEUE})
_SHOWN: Final = 3
_QUEUE_OF: Final = "queue {} of Volcano"


def why_group_waits(
    group: PodGroupView, known: PodGroups, resource: str, missing: int | None = None, otherwise: str = ""
) -> str:
    """Return why the pods of a PodGroup get no node, its queue first; empty while Volcano says nothing of it.

    Args:
        group: the PodGroup, some pods of which have no node.
        known: queues, and the PodGroups of others.
        resource: name of the chips.
        missing: how many chips the pods without a node ask for; None: those of the whole group.
        otherwise: what the pods themselves say, where the PodGroup says nothing.
    """
    wanted = dict(group.requests).get(resource, 0) if missing is None else missing
    if not group.phase:
        return with_queue_first(group.queue, _why_not_looked_at(group, known))
    why = with_queue_first(group.queue, _why_by_phase(group, known, resource, wanted) or otherwise)
    ahead = _groups_ahead(group, known) if why else []
    if not ahead:
        return why
    more = f" and {len(ahead) - _SHOWN} more" if len(ahead) > _SHOWN else ""
    return f"{why}; before it wait {', '.join(ahead[:_SHOWN])}{more}"


def with_queue_first(queue: str, why: str) -> str:
    """Return these words with the name of the queue before them; empty for none."""
    title = _QUEUE_OF.format(queue)
    return f"{title}: {why}" if why and not why.startswith(title) else why


def _groups_ahead(group: PodGroupView, known: PodGroups) -> list[str]:
    """Return who waits longer in the same queue. Of another priority class it is not known who comes first."""
    if group.phase not in _WAITING:
        return []
    return sorted(
        other.key
        for other in known.groups.values()
        if (other.queue, other.priority_class) == (group.queue, group.priority_class)
        and other.phase in _WAITING
        and other.made < group.made
    )


def _why_not_looked_at(group: PodGroupView, known: PodGroups) -> str:
    """Return why no scheduler has looked at the PodGroup."""
    queue = known.queues.get(group.queue)
    if queue is None and known.queues_are_known:
        return "there is no such queue: create it, or name another one in spec.scheduling.queueName"
    if queue is not None and not queue.is_open:
        return "the queue is closed: open it, or name another one in spec.scheduling.queueName"
    return "no scheduler has looked at the job's PodGroup: does Volcano's scheduler run?"


def _why_by_phase(group: PodGroupView, known: PodGroups, resource: str, wanted: int) -> str:
    if group.phase == PENDING:
        return _why_not_let_in(group, known, resource)
    if group.phase not in {INQUEUE, RUNNING, "Unknown"}:
        return f"its PodGroup is {group.phase}"
    reason, message = group.newest_message(*_NO_NODE)
    if _ENDING in message:
        return "pods of the job that are ending hold the others"
    if reason in _REFUSED_BY_PLUGIN:
        return f"its Ascend plugin refuses the job: {message}"
    # Before what is said of nodes: that names only those that would not do in any case, and never the limit.
    return why_queue_full(group, known, resource, wanted) or _BARE.sub("", message).strip()


def _why_not_let_in(group: PodGroupView, known: PodGroups, resource: str) -> str:
    """Return why a PodGroup is still outside: the plugin lets one in once the cluster has all of its chips free."""
    _, message = group.newest_message("JobEnqueueFailed")
    if found := _WANTED.search(message):
        return f"wanted at once: {found[1]} {resource}, free: {found[2]}"
    wanted = dict(group.requests).get(resource, 0)
    return why_queue_full(group, known, resource, wanted) or message or "the job is not let in yet"


def why_queue_full(group: PodGroupView, known: PodGroups, resource: str, wanted: int) -> str:
    """Return that the limit of the PodGroup's queue has no room for so many more chips; empty where it has, or none."""
    queue = known.queues.get(group.queue)
    left = queue.left_of(resource) if queue is not None else None
    if queue is None or left is None or left >= wanted:
        return ""
    limit, used = dict(queue.capability)[resource], dict(queue.allocated).get(resource, 0)
    title = _QUEUE_OF.format(group.queue)
    return f"{title} is full: it may have {limit} {resource} and has {used}; needed: {wanted}"
