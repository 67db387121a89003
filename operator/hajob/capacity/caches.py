"""The pods and nodes of the cluster as the informers see them, indexed so that one event costs little."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hajob.api import constants as names
from hajob.capacity.nodes import Capacity
from hajob.capacity.quotas import Quotas
from hajob.sources.hardware import Seat, seat_on_chip
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView


class Caches:
    """Pods of all jobs, nodes, and the free nodes.

    Args:
        own_labels: labels of the nodes that this operator quarantines and counts; empty: all nodes.
        topology: label of nodes by which the pods of a job keep apart.

    Attributes:
        own_nodes: those nodes by name.
        pods: of jobs, by namespace and name.
        capacity: nodes and what occupies them, pods of other tenants included.
        quotas: of all namespaces.
    """

    def __init__(self, own_labels: Mapping[str, str] | None = None, topology: str = names.LABEL_HOSTNAME) -> None:
        self._own_labels = dict(own_labels or {})
        self.own_nodes: dict[str, NodeView] = {}
        self.pods: dict[str, PodView] = {}
        self.capacity = Capacity(topology)
        self.quotas = Quotas()
        self._listed: dict[str, str] = {}
        self._jobs_on: dict[str, dict[str, int]] = {}
        self._by_job: dict[str, dict[str, PodView]] = {}

    @property
    def all_nodes(self) -> dict[str, NodeView]:
        """Return nodes by name."""
        return self.capacity.nodes

    def store_node(self, node: NodeView) -> None:
        """Store a node as it is now."""
        self.capacity.store_node(node)
        # Labels change: a node may come into another operator's hands, and back.
        if self._own_labels.items() <= node.labels.items():
            self.own_nodes[node.name] = node
        else:
            self.own_nodes.pop(node.name, None)

    def remove_node(self, name: str) -> None:
        """Remove a deleted node."""
        self.capacity.remove_node(name)
        self.own_nodes.pop(name, None)

    def is_foreign_node(self, node: str) -> bool:
        """Return whether another operator may be responsible for the node: it has no such labels, or is gone."""
        return bool(self._own_labels) and node not in self.own_nodes

    def store_pod(self, pod: PodView) -> bool:
        """Store a pod of a job as it is now; return whether it changes what is occupied."""
        before = self.pods.get(pod.key)
        self.pods[pod.key] = pod
        self._by_job.setdefault(pod.job_uid, {})[pod.key] = pod
        # Most events change only a status; the index is touched where the pod's place or job is another one.
        if before is None or (before.node_name, before.job_uid) != (pod.node_name, pod.job_uid):
            self._forget_place(before)
            if pod.node_name and pod.job_uid:
                there = self._jobs_on.setdefault(pod.node_name, {})
                there[pod.job_uid] = there.get(pod.job_uid, 0) + 1
        return self.capacity.store_pod(pod)

    def remove_pod(self, pod: PodView) -> bool:
        """Remove a deleted pod of a job; return whether it occupied anything."""
        before = self.pods.pop(pod.key, None)
        if before is not None:
            self._forget_place(before)
            of_job = self._by_job[before.job_uid]
            of_job.pop(pod.key, None)
            if not of_job:
                del self._by_job[before.job_uid]
        return self.capacity.remove_pod(pod.key)

    def _forget_place(self, pod: PodView | None) -> None:
        there = self._jobs_on.get(pod.node_name) if pod is not None else None
        if pod is None or there is None or pod.job_uid not in there:
            return
        there[pod.job_uid] -= 1
        if not there[pod.job_uid]:
            del there[pod.job_uid]
        if not there:
            del self._jobs_on[pod.node_name]

    def note_complete_list(self, version: str, namespace: str) -> None:
        """Note that a list of all pods of jobs in a namespace (empty: in all of them) was read to its end."""
        self._listed[namespace] = version

    def listed_version(self, namespace: str) -> str | None:
        """Return the resourceVersion of the last list that holds the namespace's pods; None before the first."""
        return self._listed.get(namespace, self._listed.get(""))

    def pods_of_job(self, job_uid: str) -> list[PodView]:
        """Return the pods of one job."""
        return list(self._by_job.get(job_uid, {}).values())

    def is_idle_chip(self, node: str, chip: str) -> bool:
        """Return whether a chip, by its number, is known to be no pod's; other tenants' pods do not tell theirs."""
        jobs, pods = self._jobs_on.get(node, {}), self._by_job
        mine = [pod for uid in jobs for pod in pods[uid].values() if pod.node_name == node and pod.requests]
        is_none_of_mine = all(pod.has_ended or seat_on_chip(chip, pod.chips, has_all=False) is Seat.OFF for pod in mine)
        return is_none_of_mine and not self.capacity.has_other_tenants(node)

    def jobs_on_nodes(self, nodes: Iterable[str]) -> list[str]:
        """Return the sorted UIDs of the jobs with pods on these nodes."""
        return sorted({uid for node in nodes for uid in self._jobs_on.get(node, ())})
