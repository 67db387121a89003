"""The PodGroups of one job under `gangPolicy: Volcano`: they exist while it has pods, and who serves is in one.

A level: a pod that is going away is out of its group, whoever deleted it, and a rank pod that serves is in it. The pods
that Hajob itself deletes leave with their deletion (`hajob.job.wants.deletion_of_pod`). A group goes with the pods of a
job that is suspended or has ended, because a queue counts what it asks for as long as it exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.enums import GangPolicy
from hajob.job.pod_index import is_serving_pod
from hajob.job.snapshot import JobSnapshot
from hajob.job.wants import GONE, Change, Create, Delete, Patch, Wants, departure_from_group, patch_of_group
from hajob.plan.placements import WITHOUT_RANK_PODS
from hajob.plan.state import ENDED
from hajob.pods.naming import pod_group_name
from hajob.pods.pod_group import build_pod_group, policy_annotations, queue_name
from hajob.sources.pod import PodView
from hajob.sources.pod_group import PATIENCE_SECONDS, PodGroupView

ROLES = (names.ROLE_RANK, names.ROLE_SPARE)


def want_pod_groups(snapshot: JobSnapshot) -> Wants:
    """Want the PodGroups as they should be, pods that go out of them, and rank pods that serve in theirs."""
    if not snapshot.pods_are_known:
        return Wants()
    group = snapshot.pod_group_of_role(names.ROLE_RANK)
    is_new = group is not None and not group.phase and not group.is_overdue(snapshot.wall_seconds)
    return Wants(
        changes=(*_changes_of_groups(snapshot), *_changes_of_members(snapshot)),
        # That nobody looks at it is told by no event.
        again_at=snapshot.now + PATIENCE_SECONDS if is_new else inf,
    )


def wanted_members(snapshot: JobSnapshot, role: str) -> int:
    """Return how many pods Volcano is to place together in the group of this role; 0: there is to be no group."""
    state, scheduling = snapshot.state, snapshot.job.spec.scheduling
    if scheduling.gang_policy is not GangPolicy.VOLCANO or state.phase in WITHOUT_RANK_PODS or state.phase in ENDED:
        return 0
    if role == names.ROLE_SPARE:
        has_spares = scheduling.num_spare_nodes or any(pod.is_spare_pod for pod in snapshot.pods.pods.values())
        return 1 if has_spares else 0  # each comes as it can
    return len({placement.node_rank for placement in snapshot.desired_pods.ranks})


def _changes_of_groups(snapshot: JobSnapshot) -> Iterator[Change]:
    for role in ROLES:
        members, group = wanted_members(snapshot, role), snapshot.pod_group_of_role(role)
        # A queue of Volcano counts what a group asks for: one that Kueue has not admitted yet holds nothing there.
        if group is None and members and not snapshot.queue.may_make_pods:
            continue
        if group is None and members:
            yield Create(
                resource=names.POD_GROUPS,
                namespace=snapshot.job.metadata.namespace,
                name=pod_group_name(snapshot.job, role),
                body=build_pod_group(snapshot.job_as_started, role, members, in_blocks=_is_in_blocks(snapshot, role)),
            )
        elif group is not None and members:
            yield from _patches_of_group(snapshot, group, role, members)
        elif group is not None:
            yield Delete(
                resource=names.POD_GROUPS,
                namespace=group.namespace,
                name=group.name,
                uid=group.uid,
                settled_by=GONE,
                done=f"PodGroup {group.name} is deleted",
            )


def _is_in_blocks(snapshot: JobSnapshot, role: str) -> bool:
    return role == names.ROLE_RANK and snapshot.is_placed_in_blocks


def _patches_of_group(snapshot: JobSnapshot, group: PodGroupView, role: str, members: int) -> Iterator[Patch]:
    """The patch of what differs; never an update: the scheduler writes the whole object, the status with it."""
    wanted = {"minMember": members, "queue": queue_name(snapshot.job)}
    policy = policy_annotations(snapshot.job, in_blocks=_is_in_blocks(snapshot, role))
    body: Json = {}
    if (group.min_member, group.queue) != tuple(wanted.values()):
        body["spec"] = wanted
    if group.policy != tuple(value or "" for value in policy.values()):
        body["metadata"] = {"annotations": policy}
    if body:
        yield Patch(
            resource=names.POD_GROUPS,
            namespace=group.namespace,
            name=group.name,
            uid=group.uid,
            body=body,
            settled_by=GONE,
        )


def _changes_of_members(snapshot: JobSnapshot) -> Iterator[Patch]:
    """Pods that go and are still in a group, however they came to go; and serving rank pods that are in none."""
    joins = snapshot.job.spec.scheduling.gang_policy is GangPolicy.VOLCANO
    group = pod_group_name(snapshot.job)
    for pod in snapshot.pods.pods.values():
        if pod.deleting and (departure := departure_from_group(snapshot.job, pod)) is not None:
            yield departure
        elif joins and pod.group != group and _trains_on_node(snapshot, pod):
            yield patch_of_group(pod, group)


def _trains_on_node(snapshot: JobSnapshot, pod: PodView) -> bool:
    return bool(pod.node_name) and not pod.deleting and not pod.has_ended and is_serving_pod(pod, snapshot.state)
