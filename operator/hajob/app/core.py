"""The core: the job controllers of all jobs, and the caches of pods and nodes that feed them.

It runs in the main thread's loop. The frontend (kopf, in a thread of its own) hands it the jobs; the informers hand it
pods and nodes by plain function calls. A standby keeps the caches warm and has no job controllers; it becomes the
leader by starting its frontend, which shows it every job.

If a job controller fails by an error of this program, the core closes it and opens it anew from the server's status,
as another leader would, so that one job's failure does not affect others. As long as that does not help, the process
reports itself unhealthy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import pydantic

from hajob import metrics
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.conditions import Reason
from hajob.api.job import HATrainingJob
from hajob.app.job_metrics import JobReading, JobSource
from hajob.backoff import Backoff
from hajob.capacity.caches import Caches
from hajob.capacity.parts_of_nodes import PluginPod
from hajob.domain.errors import HajobInputError
from hajob.faults.watch import FaultListener
from hajob.job.controller import JobController
from hajob.job.observe import expected_coordinator
from hajob.job.ports import Ports
from hajob.job.status.journal import JournalError
from hajob.job.status.unread import why_unread
from hajob.job.unserved import JobOnHold, JobUnread, UnservedJob, what_is_unread, what_was_read
from hajob.kube.client import ApiError
from hajob.leader.leader_kube import NOT_LEADING
from hajob.leader.reachability import LOOK_SECONDS, count_reachable
from hajob.plan.evaluator import budgets_left
from hajob.sources.node import NodeView
from hajob.sources.pod import ForeignPod, PodView
from hajob.sources.pod_group import PodGroupView, VolcanoQueue
from hajob.sources.quota import Quota
from hajob.sources.workload import WorkloadView

log = logging.getLogger(__name__)

UNHEALTHY_SECONDS: Final = 30.0
"""A job controller that could not be opened again for so long is a reason to start the whole process anew."""


@dataclass(slots=True)
class Broken:
    """A job controller that failed and is not open now.

    Attributes:
        job: as it was last known.
        since: when it failed.
        problem: why.
        server_away: the API server does not answer, so another process would fail as well.
    """

    job: HATrainingJob
    since: float
    problem: str
    server_away: bool = False


class OperatorCore(FaultListener, JobSource):
    """All job controllers. Every method is called in the core's loop."""

    def __init__(self, ports: Ports, caches: Caches) -> None:
        self._ports = ports
        self._caches = caches
        self._controllers: dict[str, JobController] = {}
        self._broken: dict[str, Broken] = {}
        self._unserved: dict[str, UnservedJob] = {}
        self._waits: dict[str, Backoff] = {}
        self._reopening: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def controllers(self) -> Mapping[str, JobController]:
        """Return the controllers of the jobs that this operator manages, by the job's UID."""
        return self._controllers

    def read_jobs(self) -> list[JobReading]:
        """Return the jobs that this operator manages, with their statuses as they are now."""
        now_ms = self._ports.clock.now_milliseconds()
        return [
            JobReading(one.job, one.live_status, budgets_left(one.policy, one.state, now_ms), one.step_times)
            for one in self._controllers.values()
        ]

    def handle_job(self, raw: Json) -> None:
        """Handle a HATrainingJob as it is now."""
        if self._is_closed:
            return
        try:
            job = HATrainingJob.from_object(raw)
        except pydantic.ValidationError as error:
            metrics.REFUSED.labels("job").inc()
            self._handle_unread_job(raw, why_unread(error))
            return
        uid = job.metadata.uid
        stays_unserved = self._stays_unserved(uid, what_was_read(job))
        if not job.is_ours or job.metadata.deletion_timestamp is not None:
            return
        controller = self._controllers.get(uid)
        if controller is not None:
            self._call_guarded(uid, partial(controller.apply_job, job))
        elif uid not in self._broken and not stays_unserved:
            self._open_controller(job)

    def _handle_unread_job(self, raw: Json, why: str) -> None:
        """Say that a job cannot be read: by its controller, which goes on with the last spec, or in its raw status."""
        metadata, spec = raw["metadata"], raw.get("spec") or {}
        uid = metadata["uid"]
        if (spec.get("managedBy") or names.MANAGED_BY) != names.MANAGED_BY or metadata.get("deletionTimestamp"):
            return
        if uid in self._controllers:
            self._call_guarded(uid, partial(self._controllers[uid].note_unread_spec, why))
        elif uid not in self._broken and not self._stays_unserved(uid, what_is_unread(raw, why)):
            self._forget_job(uid)
            self._unserved[uid] = JobUnread(raw, self._ports, why)

    def _stays_unserved(self, uid: str, unreadable: tuple[object, ...]) -> bool:
        """Whether a job is left as it is because this is still what cannot be read of it."""
        if uid in self._unserved and self._unserved[uid].unreadable != unreadable:
            self._begin_closing(self._unserved.pop(uid))
        return uid in self._unserved

    def _open_controller(self, job: HATrainingJob) -> None:
        uid = job.metadata.uid
        try:
            controller = JobController(job, self._ports, partial(self._replace_controller, uid))
        except JournalError as error:
            self._unserved[uid] = JobOnHold(job, self._ports, error.reason, str(error))
            return
        except HajobInputError as error:
            self._unserved[uid] = JobOnHold(job, self._ports, Reason.INVALID, str(error))
            return
        self._controllers[uid] = controller
        metrics.JOBS.set(len(self._controllers))
        controller.start_tasks()
        for pod in [pod for pod in self._caches.pods_of_job(uid) if _is_pod_of_job(pod, job)]:
            self._call_guarded(uid, partial(controller.apply_pod, pod))
        version = self._caches.listed_version(job.metadata.namespace)
        if version is not None:
            self._call_guarded(uid, partial(controller.note_listed_pods, version))

    def _call_guarded(self, uid: str, tell: Callable[[], None]) -> None:
        """Call a job controller; an error in it affects only that controller."""
        try:
            tell()
        except Exception as error:
            log.exception("the controller of job %s has failed", uid)
            self._replace_controller(uid, error)

    def _replace_controller(self, uid: str, error: BaseException) -> None:
        """Replace a job controller that failed; the delay grows with each failure."""
        controller = self._controllers.pop(uid, None)
        if controller is None:
            return
        metrics.CONTROLLER_RESTARTS.inc()
        self._broken[uid] = Broken(controller.job, self._ports.clock.monotonic(), f"{type(error).__name__}: {error}")
        # The job keeps training meanwhile: pods and coordinator go by themselves, and a new controller reads the
        # journal.
        task = asyncio.create_task(self._reopen_controller(uid, controller, self._begin_closing(controller)))
        self._reopening.add(task)
        task.add_done_callback(self._reopening.discard)

    def _begin_closing(self, held: JobController | UnservedJob) -> asyncio.Task[None]:
        """Close a controller whose job this operator no longer manages."""
        task = asyncio.create_task(held.stop_managing(), name=f"end of {held.name}")
        self._closing.add(task)
        task.add_done_callback(self._note_closed)
        return task

    def _note_closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: the job controller could not be closed", task.get_name(), exc_info=error)

    async def _reopen_controller(self, uid: str, controller: JobController, closing: asyncio.Task[None]) -> None:
        await asyncio.wait({closing})
        waits = self._waits.setdefault(uid, Backoff(first=0.5, longest=60.0))
        metadata = controller.job.metadata
        while uid in self._broken:
            await self._ports.clock.sleep(waits.next_delay())
            try:
                raw = await self._ports.kube.get_object(names.PLURAL, metadata.namespace, metadata.name)
                job = HATrainingJob.from_object(raw)
            except (ApiError, pydantic.ValidationError) as error:
                log.warning("the controller of job %s cannot be opened again yet: %s", uid, error)
                if uid in self._broken:
                    self._broken[uid].server_away = isinstance(error, ApiError) and error.may_pass
                continue
            self._broken.pop(uid, None)
            if job.metadata.uid == uid and job.metadata.deletion_timestamp is None:
                self._open_controller(job)

    async def watch_coordinators(self) -> None:
        """Compare until cancelled how many coordinators should answer and how many do."""
        while True:
            self.count_coordinators()
            await self._ports.clock.sleep(LOOK_SECONDS)

    def count_coordinators(self) -> None:
        """Compare once; tell the jobs when this operator begins or ceases to count as cut off."""
        found = [
            expected_coordinator(controller.snapshots.take_snapshot()) for controller in self._controllers.values()
        ]
        reach = count_reachable([one for one in found if one is not None], self._caches.all_nodes)
        suspicion = self._ports.cluster.suspicion
        if suspicion.update_suspicion(reach, self._ports.clock.monotonic()):
            for uid, controller in list(self._controllers.items()):
                self._call_guarded(uid, partial(controller.handle_reach_change, suspicion.offers))

    def why_unhealthy(self) -> str:
        """Return why this process should be restarted; empty when it need not."""
        now = self._ports.clock.monotonic()
        for one in self._broken.values():
            if not one.server_away and now - one.since > UNHEALTHY_SECONDS:
                return f"the controller of job {one.job.metadata.name} is broken: {one.problem}"
        return ""

    async def release_job(self, uid: str) -> None:
        """Delete the job's pods, because its CR is being deleted; return when the finalizer may be removed.

        A job without a controller has nothing but its pods, and the garbage collector deletes those by owner reference.

        Raises:
            ApiError: this core is closed: the next leader sees to it.
        """
        self._refuse_if_closed()
        controller = self._controllers.get(uid)
        if controller is not None:
            await controller.release_job()  # is shown its pods as they go
            self._refuse_if_closed()
        self._controllers.pop(uid, None)
        self._forget_job(uid)
        self._tell_changed_capacity()

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise ApiError(0, NOT_LEADING, "this operator is ending")

    def handle_deleted_job(self, uid: str) -> None:
        """Handle that the CR is gone, with or without a release."""
        controller = self._controllers.pop(uid, None)
        self._forget_job(uid)
        if controller is not None:
            self._begin_closing(controller)

    def _forget_job(self, uid: str) -> None:
        self._broken.pop(uid, None)
        self._waits.pop(uid, None)
        if uid in self._unserved:
            self._begin_closing(self._unserved.pop(uid))
        metrics.JOBS.set(len(self._controllers))

    def handle_changed_pod(self, pod: PodView, *, deleted: bool) -> None:
        """Handle a changed pod of a job."""
        occupied = self._caches.remove_pod(pod) if deleted else self._caches.store_pod(pod)
        controller = self._controllers.get(pod.job_uid)
        if controller is not None and _is_pod_of_job(pod, controller.job):
            self._call_guarded(pod.job_uid, partial(controller.apply_pod, pod, deleted=deleted))
        if occupied:
            self._tell_changed_capacity()

    def handle_changed_foreign_pod(self, pod: ForeignPod | None, before: ForeignPod | None) -> None:
        """Handle a pod of another tenant: one with chips or host ports came, went, or ended (None)."""
        capacity = self._caches.capacity
        if (one := pod or before) is not None:
            mode = pod.volcano_mode if pod is not None else None
            self._ports.cluster.note_device_plugin(one.key, None if mode is None else PluginPod(one.node_name, mode))
        gone = before is not None and pod is None and capacity.remove_pod(before.key)
        if gone or (pod is not None and capacity.store_pod(pod)):
            self._tell_changed_capacity()

    def note_complete_pods(self, version: str = "", namespace: str = "") -> None:
        """Note that an informer has read all pods of a list of this resourceVersion, and removed the missing ones.

        Args:
            version: of the list.
            namespace: whose pods it lists; empty: all.
        """
        self._caches.note_complete_list(version, namespace)
        for uid, controller in list(self._controllers.items()):
            if namespace in {"", controller.job.metadata.namespace}:
                self._call_guarded(uid, partial(controller.note_listed_pods, version))

    def handle_changed_node(self, node: NodeView, *, deleted: bool) -> None:
        """Handle a changed node."""
        before = self._caches.all_nodes.get(node.name)
        if deleted:
            self._caches.remove_node(node.name)
        else:
            self._caches.store_node(node)
        for uid, controller in self._controllers_on_nodes({node.name}):
            self._call_guarded(uid, partial(controller.look_for_stranded, node.name, gone=deleted))
            if before is not None and before.is_to_be_emptied != node.is_to_be_emptied:
                self._call_guarded(uid, controller.look_for_moves)
        self._tell_changed_capacity()

    def handle_changed_quota(self, namespace: str, name: str, quota: Quota | None) -> None:
        """Handle that a ResourceQuota's limit or usage changed, or that it is gone (None)."""
        if quota is None:
            self._caches.quotas.remove_quota(namespace, name)
        else:
            self._caches.quotas.store_quota(quota)
        for uid, controller in list(self._controllers.items()):
            if controller.job.metadata.namespace == namespace:
                self._call_guarded(uid, controller.handle_changed_quota)

    def handle_changed_pod_group(self, group: PodGroupView, *, deleted: bool) -> None:
        """Handle a changed PodGroup of Volcano, a job's or somebody else's."""
        known = self._ports.cluster.pod_groups
        if deleted:
            known.remove_group(group)
        else:
            known.store_group(group)
        controller = self._controllers.get(group.job_uid)
        if controller is not None:
            self._call_guarded(group.job_uid, controller.handle_changed_pod_group)

    def handle_changed_queue(self, queue: VolcanoQueue, *, deleted: bool) -> None:
        """Handle a changed Queue of Volcano."""
        known = self._ports.cluster.pod_groups
        if deleted:
            known.remove_queue(queue.name)
        else:
            known.store_queue(queue)
        self._tell_jobs_in_queues({queue.name})

    def note_listed_queues(self) -> None:
        """Note that every Queue of Volcano is known: one that is named and unknown does not exist."""
        known = self._ports.cluster.pod_groups
        if not known.queues_are_known:
            known.queues_are_known = True
            self._tell_jobs_in_queues({group.queue for group in known.groups.values()})

    def _tell_jobs_in_queues(self, queues: Collection[str]) -> None:
        """Tell the jobs in these queues that something of them has changed: one may be let in, or may grow."""
        groups = self._ports.cluster.pod_groups.groups.values()
        for uid in {group.job_uid for group in groups if group.queue in queues}:
            if uid in self._controllers:
                self._call_guarded(uid, self._controllers[uid].handle_changed_queue)

    def handle_changed_workload(self, workload: WorkloadView, *, deleted: bool) -> None:
        """Handle a changed Workload of a job."""
        queues = self._ports.cluster.queues
        if deleted:
            queues.remove_workload(workload)
        else:
            queues.store_workload(workload)
        controller = self._controllers.get(workload.job_uid)
        if controller is not None and controller.job.metadata.namespace == workload.namespace:
            self._call_guarded(workload.job_uid, controller.handle_changed_workload)

    def handle_changed_kueue(self) -> None:
        """Handle that Workloads were listed, or that a flavor or a priority class has changed."""
        for uid, controller in list(self._controllers.items()):
            if names.LABEL_QUEUE in controller.job.metadata.labels:
                self._call_guarded(uid, controller.handle_changed_workload)

    def handle_changed_faults(self, nodes: frozenset[str]) -> None:
        """Handle changed faults of these nodes or of their chips."""
        for uid, controller in self._controllers_on_nodes(nodes):
            self._call_guarded(uid, partial(controller.look_for_faults, nodes))
        self._tell_changed_capacity()

    def handle_changed_crd(self, older: str) -> None:
        """Handle that the installed CRD became older (what it lacks) or newer than this operator, or matches again."""
        self._ports.cluster.crd_is_older = older
        for uid, controller in list(self._controllers.items()):
            self._call_guarded(uid, partial(controller.status.publish_status, lazy=True))

    def handle_breaker_change(self, held: str) -> None:
        """Handle that the breaker holds faults of nodes and chips back (why), or believes them again (empty)."""
        for uid, controller in list(self._controllers.items()):
            self._call_guarded(uid, partial(controller.handle_breaker_change, held))

    def handle_changed_places(self) -> None:
        """Handle that nodes were quarantined or released."""
        self._caches.capacity.set_kept_out(self._ports.cluster.marks.quarantined)
        for uid, controller in list(self._controllers.items()):
            self._call_guarded(uid, controller.handle_changed_places)
        self._tell_changed_capacity()

    def _controllers_on_nodes(self, nodes: Collection[str]) -> list[tuple[str, JobController]]:
        """Return the controllers of jobs with pods on these nodes."""
        return [(uid, self._controllers[uid]) for uid in self._caches.jobs_on_nodes(nodes) if uid in self._controllers]

    def _tell_changed_capacity(self) -> None:
        """Tell the jobs that capacity changed: other tenants' pods decide whether a shrunk job can grow."""
        for uid in list(self._ports.cluster.watchers):
            if uid in self._controllers:
                self._call_guarded(uid, self._controllers[uid].look_for_capacity)

    async def close_controllers(self) -> None:
        """Close all job controllers, leave the jobs as they are, and accept no others."""
        self._is_closed = True
        for task in self._reopening:
            task.cancel()
        held: list[JobController | UnservedJob] = [*self._controllers.values(), *self._unserved.values()]
        for one in held:
            self._begin_closing(one)
        self._controllers.clear()  # a controller that fails from now on is not replaced
        await asyncio.gather(*self._reopening, *self._closing, return_exceptions=True)


def _is_pod_of_job(pod: PodView, job: HATrainingJob) -> bool:
    """Whether a pod is the job's: controlled by it, and in its namespace."""
    return (pod.job_uid, pod.namespace) == (job.metadata.uid, job.metadata.namespace)
