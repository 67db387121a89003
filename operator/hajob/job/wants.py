"""What policies want: changes of objects, as values, beside what they tell the table and people.

A policy says the same again as long as it wants it. One place carries changes out and remembers which are done
(hajob.job.apply), so a policy needs no API, no timer and no memory of its tries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.job.snapshot import JobSnapshot
from hajob.job.status.announcements import Announcement
from hajob.plan import events
from hajob.plan.placements import CoordinatorPlacement, Placement
from hajob.pods.naming import pod_group_name
from hajob.pods.pod_group import left_group_name
from hajob.sources.pod import PodView

LONGEST_RETRY_SECONDS: Final = 30.0
RETRY_SECONDS: Final = (1.0, LONGEST_RETRY_SECONDS)
"""First and longest delay before a refused change is tried again."""
GONE: Final = frozenset({404, 409})
"""Nothing of this name is left to delete, or another object has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of one object.

    Attributes:
        resource: its plural.
        namespace: empty for objects of the cluster.
        name: of the object.
        retry_seconds: first and longest delay before it is tried again.
        settled_by: HTTP statuses of a refusal after which nothing is left to do.
        follows_status: it waits until the server has the status with the decision that it follows from.
        done: said in the log once it is done; empty: nothing.
        counted_as: label under which a refusal is counted in `hajob_refused`; empty: it is not.
    """

    resource: str
    namespace: str
    name: str
    retry_seconds: tuple[float, float] = RETRY_SECONDS
    settled_by: frozenset[int] = frozenset()
    follows_status: bool = False
    done: str = ""
    counted_as: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """Return the identity of the change: a later one with this key takes its place."""
        return type(self).__name__, self.resource, self.namespace, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Create(Change):
    """Create an object; one of this name that exists already will do.

    Attributes:
        body: the whole object.
        if_there: merge patch for one that exists already; None: it will do as it is.
    """

    body: Json
    if_there: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch(Change):
    """Patch an object.

    Attributes:
        uid: of the object that is meant; another one of its name is left alone (hajob.job.apply sees to that).
        body: a merge patch, or the operations of a JSON patch.
        subresource: that is patched; empty: the object itself.
    """

    uid: str
    body: Json | Sequence[Json]
    subresource: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """Return the identity of the change, which ends with the object's."""
        return "Patch", self.resource, self.namespace, self.name, self.uid, self.subresource


@dataclass(frozen=True, slots=True, kw_only=True)
class Put(Change):
    """Create an object, or give an existing one these fields of the spec: an earlier leader may have made it.

    Attributes:
        body: the whole object.
        fields: of its spec that are compared, and written where they differ.
    """

    body: Json
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(Change):
    """Delete an object; another one of its name is left alone.

    Attributes:
        uid: of the object that is meant, so that one which was made meanwhile under its name is never hit.
        grace_seconds: for a pod's processes to end by themselves; None: as the pod says.
        ranks_may_live_on: node on which its ranks may go on without it; empty: they end before it is gone.
        before: patch that the object gets first; what refuses it does not keep the object. None: none.
    """

    uid: str
    grace_seconds: int | None = None
    ranks_may_live_on: str = ""
    before: Patch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MakePods(Change):
    """Make pods of the job: refused for one reason, they are tried again together (hajob.job.pod_maker).

    Attributes:
        placements: of the pods.
        gated: whether rank pods get the scheduling gate.
        returned: nodes that placements avoid and need not any more.
    """

    placements: tuple[Placement | CoordinatorPlacement, ...]
    gated: bool = False
    returned: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Wants:
    """What one policy wants now, or several together.

    Attributes:
        changes: of objects.
        events: for the table.
        announcements: to post as Events.
        again_at: when time alone changes what it wants, in seconds of the monotonic clock; inf: never.
    """

    changes: tuple[Change, ...] = ()
    events: tuple[events.JobEvent, ...] = ()
    announcements: tuple[Announcement, ...] = ()
    again_at: float = inf


def patch_of_pod(
    pod: PodView,
    body: Json | Sequence[Json],
    *,
    subresource: str = "",
    settled_by: frozenset[int] = frozenset(),
    follows_status: bool = False,
    done: str = "",
) -> Patch:
    """Return the change that patches this pod; the arguments are those of `Patch`."""
    return Patch(
        resource="pods",
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        body=body,
        subresource=subresource,
        settled_by=settled_by,
        follows_status=follows_status,
        done=done,
    )


def departure_from_group(job: HATrainingJob, pod: PodView) -> Patch | None:
    """Return the patch that takes a pod which goes out of this job's PodGroup; None: it is in none, or has left.

    As long as a pod of a group is Terminating, on a dead node for ever, Volcano places no other pod of the group. With
    the job goes its group.
    """
    left = pod.group
    if left not in {pod_group_name(job), pod_group_name(job, names.ROLE_SPARE)} or job.metadata.deletion_timestamp:
        return None
    return patch_of_group(pod, left_group_name(left), done=f"pod {pod.name} has left PodGroup {left}")


def patch_of_group(pod: PodView, group: str, *, done: str = "") -> Patch:
    """Return the change that makes the pod one of this PodGroup."""
    body = {"metadata": {"annotations": {names.ANNOTATION_GROUP_NAME: group}}}
    return patch_of_pod(pod, body, settled_by=GONE, done=done)


def deletion_of_pod(
    snapshot: JobSnapshot,
    pod: PodView,
    *,
    follows_status: bool = False,
    retry_seconds: tuple[float, float] = RETRY_SECONDS,
) -> Delete:
    """Return the change that deletes this pod, without grace where nothing on its node could end it.

    Nobody is there who could end it in time, and its gate is shut by then
    (docs/decisions/0005-a-gate-in-every-rank-pod.md).
    """
    forced = snapshot.pods.is_unreachable(pod, snapshot.nodes)
    return Delete(
        resource="pods",
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        grace_seconds=0 if forced else None,
        before=departure_from_group(snapshot.job, pod),
        ranks_may_live_on=pod.node_name if forced and pod.is_rank_pod and pod.phase == "Running" else "",
        retry_seconds=retry_seconds,
        settled_by=GONE,
        follows_status=follows_status,
        done=f"pod {pod.name} is deleted" + (" without grace" if forced else ""),
    )


def merge_wants(wants: Iterable[Wants]) -> Wants:
    """Put together what several policies want.

    Of two changes with one key the later one counts. A pod that one policy wants deleted is not patched for another.
    """
    found = tuple(wants)
    changes = {change.key: change for one in found for change in one.changes}
    deleted = {change.uid for change in changes.values() if isinstance(change, Delete)}
    changes = {
        key: change for key, change in changes.items() if not (isinstance(change, Patch) and change.uid in deleted)
    }
    return Wants(
        changes=tuple(changes.values()),
        events=tuple(event for one in found for event in one.events),
        announcements=tuple(told for one in found for told in one.announcements),
        again_at=min((one.again_at for one in found), default=inf),
    )
