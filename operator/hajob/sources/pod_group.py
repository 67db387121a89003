"""What the operator keeps of Volcano's PodGroups and Queues.

Volcano never takes a condition of a PodGroup back: one that runs still says that it is unschedulable. So the phase
counts, and of the conditions the newest. Its scheduler writes them anew every second; what only repeats is no change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any, Final

from hajob.api import constants as names
from hajob.sources.pod import Requests
from hajob.sources.reading import (
    extended_amounts,
    items,
    mapping,
    milliseconds_of,
    parse_whole_number,
    text,
    uid_of_controlling_job,
)

PENDING: Final = "Pending"
INQUEUE: Final = "Inqueue"
RUNNING: Final = "Running"

PATIENCE_SECONDS: Final = 5.0
"""A scheduler that runs has looked at a PodGroup, and let in what fits, within two of its periods of a second."""
_OPEN: Final = "Open"
_SHORT: Final = "NotEnoughResources"
"""Said in every session in which the group is short of pods with a node. What else is true is said in the same one."""
_SESSION_SECONDS: Final = 5.0
"""No session takes longer."""


@dataclass(frozen=True, slots=True)
class PodGroupView:
    """The part of a PodGroup that the operator keeps.

    Attributes:
        job_uid: of the job that controls it, by its owner reference; empty for none.
        min_member: pods that are placed together or not at all.
        queue: its queue.
        phase: as its scheduler says; empty: no scheduler has looked at it.
        requests: amounts in `minResources` of resources like chips.
        made: when it was made, as RFC 3339 text.
        reasons: reason and message of its conditions, the newest first, without those that are said no more.
        policy: how nodes are chosen, as its annotations say: policy and chips of a block.
        priority_class: name of its PriorityClass; empty for none.
    """

    namespace: str
    name: str
    uid: str
    job_uid: str = ""
    min_member: int = 0
    queue: str = ""
    phase: str = ""
    requests: Requests = ()
    made: str = ""
    reasons: tuple[tuple[str, str], ...] = ()
    policy: tuple[str, str] = ("", "")
    priority_class: str = ""

    @property
    def key(self) -> str:
        """Return namespace and name."""
        return f"{self.namespace}/{self.name}"

    def is_overdue(self, wall_seconds: float) -> bool:
        """Return whether it was made long ago, and no scheduler has let it in."""
        if self.phase not in {"", PENDING}:
            return False
        return wall_seconds - (milliseconds_of(self.made) or 0) / 1000 >= PATIENCE_SECONDS

    def newest_message(self, *reasons: str) -> tuple[str, str]:
        """Return reason and message of its newest condition with one of these reasons; two empty texts for none."""
        return next((found for found in self.reasons if found[0] in reasons), ("", ""))


@dataclass(frozen=True, slots=True)
class VolcanoQueue:
    """The part of a Queue of Volcano that the operator keeps.

    Attributes:
        is_open: it takes jobs.
        capability: limits of resources like chips, by name and amount; what is not listed has none.
        allocated: what its jobs have of them.
    """

    name: str
    is_open: bool = True
    capability: Requests = ()
    allocated: Requests = ()

    def left_of(self, resource: str, own: int = 0) -> int | None:
        """Return how much of a resource it may give, what is `own` of it among that; None: it sets no limit."""
        limits, used = dict(self.capability), dict(self.allocated)
        return max(0, limits[resource] - used.get(resource, 0) + own) if resource in limits else None


def pod_group_view_of(raw: Mapping[str, Any]) -> PodGroupView:
    """Build the view of a raw PodGroup; missing fields read as one that nobody has looked at."""
    metadata, spec, status = mapping(raw.get("metadata")), mapping(raw.get("spec")), mapping(raw.get("status"))
    annotations = mapping(metadata.get("annotations"))
    return PodGroupView(
        namespace=intern(text(metadata.get("namespace"))),
        name=text(metadata.get("name")),
        uid=text(metadata.get("uid")),
        job_uid=uid_of_controlling_job(metadata),
        min_member=parse_whole_number(spec.get("minMember")) or 0,
        queue=intern(text(spec.get("queue"))),
        phase=intern(text(status.get("phase"))),
        requests=extended_amounts(spec.get("minResources")),
        made=text(metadata.get("creationTimestamp")),
        reasons=tuple(_newest_reasons(status)),
        policy=(
            text(annotations.get(names.ANNOTATION_SCHEDULE_POLICY)),
            text(annotations.get(names.ANNOTATION_SUPER_POD_BLOCK)),
        ),
        priority_class=intern(text(spec.get("priorityClassName"))),
    )


def queue_view_of(raw: Mapping[str, Any]) -> VolcanoQueue:
    """Build the view of a raw Queue."""
    spec, status = mapping(raw.get("spec")), mapping(raw.get("status"))
    return VolcanoQueue(
        name=text(mapping(raw.get("metadata")).get("name")),
        is_open=text(status.get("state")) in {"", _OPEN},
        capability=extended_amounts(spec.get("capability")),
        allocated=extended_amounts(status.get("allocated")),
    )


def _newest_reasons(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Reason and message of each condition that is still said, the newest first."""
    found = list(map(mapping, items(status.get("conditions"))))[::-1]  # of two in one second the later one
    found.sort(key=lambda one: text(one.get("lastTransitionTime")), reverse=True)
    short = next((_time_of(one) for one in found if one.get("reason") == _SHORT), 0.0)
    return (
        (text(one.get("reason")), text(one.get("message")))
        for one in found
        if _time_of(one) >= short - _SESSION_SECONDS
    )


def _time_of(condition: Mapping[str, Any]) -> float:
    return (milliseconds_of(text(condition.get("lastTransitionTime"))) or 0) / 1000
