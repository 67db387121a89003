"""The core: the desks of all jobs, and the caches of pods and nodes that feed them.

It lives in the main thread's loop. The front desk (kopf, in a thread of its own) hands it the jobs; the informers
hand it pods and nodes as plain function calls. A standby keeps the caches warm and has no desks; it becomes the leader
by starting its front desk, which shows it every job.
"""

from __future__ import annotations

import logging

import pydantic

from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.runtime import metrics
from hajob.runtime.desk import Desk
from hajob.runtime.world import World
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView

log = logging.getLogger(__name__)


class Caches:
    """The pods of all jobs and the nodes, as the informers see them."""

    def __init__(self) -> None:
        self.pods: dict[str, PodView] = {}
        self.nodes: dict[str, NodeView] = {}
        self.pods_are_complete = False


class Core:
    """All desks. Every method is called in the core's loop."""

    def __init__(self, world: World, caches: Caches) -> None:
        self._world = world
        self._caches = caches
        self._desks: dict[str, Desk] = {}

    def job_seen(self, raw: Json) -> None:
        """A HATrainingJob as it is now."""
        try:
            job = HATrainingJob.from_object(raw)
        except pydantic.ValidationError as error:
            metrics.REFUSED.labels("job").inc()
            name = raw.get("metadata", {}).get("name")
            log.warning("job %s cannot be read by this version: %s", name, error)
            return
        if not job.is_ours or job.metadata.deletion_timestamp is not None:
            return
        desk = self._desks.get(job.metadata.uid)
        if desk is None:
            self._open(job)
        else:
            desk.job_seen(job)

    def _open(self, job: HATrainingJob) -> None:
        try:
            desk = Desk(job, self._world)
        except ValueError as error:
            metrics.REFUSED.labels("journal").inc()
            log.warning("job %s: its journal cannot be read, it is left alone: %s", job.metadata.name, error)
            return
        self._desks[job.metadata.uid] = desk
        metrics.JOBS.set(len(self._desks))
        for pod in self._caches.pods.values():
            if pod.job_uid == job.metadata.uid:
                desk.pod_seen(pod)
        if self._caches.pods_are_complete:
            desk.pods_listed()
        desk.start()

    async def job_released(self, uid: str) -> None:
        """The CR is being deleted: end what belongs to it. Returns when the finalizer may go.

        A job that no desk knows has nothing but its pods, and their owner reference sees to those.
        """
        desk = self._desks.pop(uid, None)
        metrics.JOBS.set(len(self._desks))
        if desk is not None:
            await desk.release()

    def job_gone(self, uid: str) -> None:
        """The CR is gone, with or without a release."""
        self._desks.pop(uid, None)
        metrics.JOBS.set(len(self._desks))

    def pod_changed(self, pod: PodView, *, deleted: bool) -> None:
        """From the informer of pods."""
        key = f"{pod.namespace}/{pod.name}"
        if deleted:
            self._caches.pods.pop(key, None)
        else:
            self._caches.pods[key] = pod
        desk = self._desks.get(pod.job_uid)
        if desk is not None:
            desk.pod_seen(pod, deleted=deleted)

    def pods_complete(self) -> None:
        """The informer of pods has shown all that exist."""
        self._caches.pods_are_complete = True
        for desk in self._desks.values():
            desk.pods_listed()

    def node_changed(self, node: NodeView, *, deleted: bool) -> None:
        """From the informer of nodes."""
        if deleted:
            self._caches.nodes.pop(node.name, None)
        else:
            self._caches.nodes[node.name] = node

    async def close(self) -> None:
        """Let go of every job, as it is."""
        for desk in self._desks.values():
            await desk.close()
        self._desks.clear()
