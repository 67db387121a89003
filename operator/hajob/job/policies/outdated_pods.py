"""Pods of one job that wait for a node, or for the start of their gang, and exclude nodes that are free by now.

An exclusion cannot be taken back from a pod that exists, so the pod is replaced. A gang whose pods exclude different
nodes could be placed in part, and wait for ever with what it got.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hajob.job.snapshot import JobSnapshot
from hajob.job.wants import Wants, deletion_of_pod
from hajob.plan.policy import Mode
from hajob.plan.state import REMADE, JobPhase, JobState
from hajob.sources.node import NodeView


@dataclass(slots=True)
class BootMemo:
    """What is remembered of nodes that the open incident avoids; `boots`: node name to its machine's start then."""

    boots: dict[str, tuple[str, str]] = field(default_factory=dict)


def want_outdated_pods(snapshot: JobSnapshot, memo: BootMemo) -> Wants:
    """Want the pods deleted that would exclude fewer free nodes if they were made now."""
    if not snapshot.pods_are_known:
        return Wants()
    state, serving = snapshot.state, snapshot.serving_pods.values()
    waiting = [pod for pod in serving if (pod.unschedulable or pod.is_gated) and pod.excluded and not pod.deleting]
    returned = returned_nodes(snapshot, memo)
    # While the mode is not Enforce a replacement that goes is a fault that is held, and ends the action under way.
    replaces = state.phase is JobPhase.GATHERING and snapshot.policy.mode is Mode.ENFORCE
    if not waiting or (state.phase not in REMADE and not replaces):
        return Wants()
    free = set(snapshot.free_node_names).difference(snapshot.refused_nodes(len(waiting)))
    open_now = (free - _avoided_node_names(state)) | (free & returned)
    outdated = (pod for pod in waiting if not pod.excluded.isdisjoint(open_now))
    return Wants(changes=tuple(deletion_of_pod(snapshot, pod) for pod in outdated))


def returned_nodes(snapshot: JobSnapshot, memo: BootMemo) -> set[str]:
    """Return nodes that the open incident avoids, but that have restarted since and are well: usable again.

    Only this operator remembers their state before the restart; a new leader waits for the incident's end.
    """
    nodes, avoided = snapshot.nodes, _avoided_node_names(snapshot.state)
    memo.boots = {name: memo.boots.get(name, _identity_of_boot(nodes.get(name))) for name in avoided}
    well = {name for name in avoided if name in nodes and nodes[name].is_usable} - set(snapshot.cluster.marks.kept_out)
    return {name for name in well if _identity_of_boot(nodes[name]) != memo.boots[name]}


def _avoided_node_names(state: JobState) -> set[str]:
    """Return the nodes that the open incident keeps pods away from."""
    return {name for names in state.avoided.values() for name in names}


def _identity_of_boot(node: NodeView | None) -> tuple[str, str]:
    """Return an identity of a machine's start, which differs also when the machine is registered anew."""
    return ("", "") if node is None else (node.uid, node.boot)
