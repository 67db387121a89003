"""The operator's process: wires settings, API, caches, Lease, core and frontend, and runs until a signal ends it.

    python -m hajob.app.operator

Two loops in two threads: the core in this one, kopf in the frontend's. Crash-only: losing the Lease to another
operator ends the process, and the next one starts as a standby with an empty memory and a full status to read.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from aiohttp import web

from hajob import log_format, metrics, version
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.app import memory_tuning
from hajob.app.cluster_metrics import ClusterMetrics
from hajob.app.core import OperatorCore
from hajob.app.crd_check import CrdCheck
from hajob.app.frontend import Frontend
from hajob.app.job_metrics import JobMetrics
from hajob.app.job_pods import JobPods
from hajob.app.pod_warnings import PodWarnings
from hajob.app.queues import QueueWatch
from hajob.app.settings import Settings
from hajob.app.tenants import Tenants
from hajob.app.volcano import VolcanoWatch
from hajob.app.webhook import Webhook
from hajob.backoff import Backoff
from hajob.capacity.caches import Caches
from hajob.clock import Clock, SystemClock
from hajob.coordinator_link.channel import Dialer
from hajob.faults.quarantines import Quarantines
from hajob.faults.watch import FaultWatch, ReadObject
from hajob.job.cluster import Cluster, NodeMarks
from hajob.job.incident_recorder import begin_counting_incidents
from hajob.job.ports import Ports
from hajob.kube.client import ApiError, Kube
from hajob.kube.credentials import ApiCredentials, CredentialsError, load_credentials
from hajob.kube.events import Announcer
from hajob.kube.http import HttpKube
from hajob.kube.informer import Change, ChangeType, Informer, Selection
from hajob.leader.leader_kube import LeaderKube
from hajob.leader.lease import FENCE_LIMIT, Candidate, LeaseHolder, LeaseSettings
from hajob.leader.probe import probe_coordinators
from hajob.leader.reachability import count_reachable
from hajob.pki.authority_store import AuthorityStore
from hajob.protocol import descriptors
from hajob.sources import node as node_source
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView

log = logging.getLogger(__name__)

FORBIDDEN = 403
IDLE_SECONDS = 120.0
"""A cache that has done nothing for so long is stuck: it tries again after 70 s of silence itself. One that tries in
vain is not: an API server that is away is no reason to start the operator anew, which could do even less."""


class Operator(Candidate):
    """One operator process."""

    def __init__(self, settings: Settings, kube: Kube, credentials: ApiCredentials, clock: Clock) -> None:
        self._settings = settings
        self._kube = kube
        self._clock = clock
        self._stop = asyncio.Event()
        self.fence_floor, self._jobs_are_listed = 0, False
        self._caches = Caches(settings.fault_node_labels(), settings.topology_label)
        self._tasks: list[asyncio.Task[None]] = []
        self._lease = LeaseHolder(
            kube,
            clock,
            LeaseSettings(
                settings.namespace,
                settings.lease_name,
                settings.lease_seconds,
                settings.lease_renew_seconds,
                settings.lease_retry_seconds,
            ),
            settings.identity,
            self,
        )
        self._leader_kube = LeaderKube(kube, clock, self._lease)
        self._announcer = Announcer(kube, clock, settings.identity)
        self._webhook = Webhook(settings.webhook_receiver(), clock)
        self._faults = FaultWatch(
            kube,
            clock,
            self._caches,
            [name for part in settings.fault_namespaces.split(",") if (name := part.strip())],
        )
        self._faults.follow_settings(settings.namespace)
        self._quarantines = Quarantines(self._leader_kube, clock, self._faults, self._caches, self._lease)
        ports = self._build_ports()
        self._core, self._suspicion = OperatorCore(ports, self._caches), ports.cluster.suspicion
        self._marks = ports.cluster.marks
        self._faults.listeners += [self._core, self._quarantines]  # first what saves a training
        self._crd = CrdCheck(kube, clock, self._core)
        namespaces = settings.served_namespaces()
        self._pod_warnings = PodWarnings(self._leader_kube, clock, self._caches, self._core)
        self._frontend = Frontend(kube, credentials, clock, namespaces)
        self._pods = JobPods(kube, clock, namespaces, self._handle_changed_pod, self._core.note_complete_pods)
        self._nodes = Informer(kube, clock, Selection("nodes", large=True), self._read_node, self._handle_changed_node)
        self._nodes.on_older_list = self._handle_restored_server
        self._faults.readers.append(self._nodes)
        self._tenants = Tenants(kube, clock, namespaces, self._core)
        self._schedulers: list[VolcanoWatch | QueueWatch] = []
        if settings.volcano_enabled:
            self._schedulers.append(VolcanoWatch(kube, clock, self._core))
        if settings.kueue_enabled:
            self._schedulers.append(QueueWatch(kube, clock, namespaces, self._core, ports.cluster.queues))

    def _build_ports(self) -> Ports:
        return Ports(
            kube=self._leader_kube,
            clock=self._clock,
            dialer=Dialer(self._lease, self._clock),
            announcer=self._announcer,
            pod_settings=self._settings.pod_settings(),
            authorities=AuthorityStore(
                self._leader_kube,
                self._clock,
                self._settings.namespace,
                timedelta(days=self._settings.certificate_days),
            ),
            leadership=self._lease,
            cluster=Cluster(
                self._clock,
                self._caches.capacity,
                self._faults,
                NodeMarks(
                    quarantined=self._quarantines.kept_out,
                    kept_out=self._faults.cluster.kept_out,
                    sub_healthy=self._faults.cluster.sub_healthy,
                ),
                self._caches.quotas,
            ),
            feed=self._webhook,
        )

    def why_unfit(self) -> str:
        """Return why this operator is taken to be cut off from the coordinators; empty: it is not."""
        return self._suspicion.offers

    async def reaches_coordinators(self) -> bool:
        """Return whether this standby reaches coordinators, unlike a leader that is cut off."""
        found = count_reachable(
            await probe_coordinators(self._caches.pods.values(), self._clock), self._caches.all_nodes
        )
        log.info("a leader that is cut off offers its Lease; from here %s", found)
        return found.total > 0 and not found.is_cut_off

    def _handle_changed_pod(self, change: Change[PodView]) -> None:
        pod, deleted = change.value, change.type is ChangeType.DELETED
        self._core.handle_changed_pod(pod, deleted=deleted)
        if pod.node_name and not deleted and self._faults.cluster.has_faults(pod.node_name):
            self._quarantines.handle_changed_faults({pod.node_name})  # a chip of it may be idle no more

    def _read_node(self, raw: Json) -> tuple[NodeView, ReadObject]:
        return node_source.node_view_of(raw, self._faults.settings.drain_taints), self._faults.read_node_faults(raw)

    def _handle_changed_node(self, change: Change[tuple[NodeView, ReadObject]]) -> None:
        (node, found), deleted = change.value, change.type is ChangeType.DELETED
        if change.previous is None or deleted or change.previous[0] != node:
            self._core.handle_changed_node(node, deleted=deleted)
        self._faults.apply_node(node.name, None if deleted else found)

    def _handle_restored_server(self) -> None:
        """Have kopf list anew, too, whose watches wait for versions that the server may not reach for long."""
        metrics.SERVER_RESTORED.inc()
        self._frontend.end_kopf()

    def leadership_gained(self, fence: int) -> None:
        """Have kopf's events handled, and quarantine what stands."""
        log.info("this process leads, fence %d", fence)
        metrics.LEADER.set(1)
        self._frontend.start_serving(self._core)
        self._quarantines.update_all()

    def leadership_lost(self, reason: str) -> None:
        """End this process: another one leads."""
        log.warning("this process no longer leads: %s", reason)
        metrics.LEADER.set(0)
        self._stop.set()

    async def serve_until_stopped(self) -> None:
        """Serve until a signal or the loss of the Lease."""
        loop = asyncio.get_running_loop()  # noqa: TID251  # signals
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        collectors = (
            JobMetrics(self._core, self._clock),
            ClusterMetrics(self._caches.capacity, self._marks, self._quarantines),
        )
        begin_counting_incidents()
        for collector in collectors:
            metrics.REGISTRY.register(collector)
        metrics.LEASE_AGE.set_function(lambda: self._lease.seconds_since_renewal)
        served = metrics.build_application(
            self._why_unhealthy, self._why_unready, self._note_for_admin, self._faults.state_report
        )
        runner = web.AppRunner(served, access_log=None)
        await runner.setup()
        await metrics.listen_for_metrics(runner, self._settings.pod_ip, self._settings.metrics_port)
        await self.watch_and_lead()
        await runner.cleanup()
        for collector in collectors:
            metrics.REGISTRY.unregister(collector)

    async def watch_and_lead(self) -> None:
        """Watch the cluster and stand for leader, without listening for anybody, until told to end."""
        informers: tuple[Informer[Any], ...] = (
            self._quarantines.informer,
            *self._pods.informers,
            self._nodes,
            *self._tenants.informers,
            *(informer for scheduler in self._schedulers for informer in scheduler.informers),
            *self._faults.informers,
        )
        self._watch_over_tasks(
            asyncio.create_task(informer.list_and_watch(), name=f"watch of {informer.resource}")
            for informer in informers
        )
        beginning = asyncio.create_task(self._begin_when_listed(), name="beginning")
        ended = asyncio.create_task(self._stop.wait(), name="signal")
        await asyncio.wait({beginning, ended}, return_when=asyncio.FIRST_COMPLETED)
        # `result` raises what went wrong in the beginning; else the process goes on until it is told to end.
        if beginning.done():
            beginning.result()
            await ended
        beginning.cancel()  # whoever ends this process need not wait for a server that does not answer
        await self._shut_down()

    async def _begin_when_listed(self) -> None:
        """Once everything is listed, stand for leader and do what a process does besides."""
        await asyncio.gather(
            self._pods.wait_until_synced(),
            self._nodes.synced.wait(),
            self._tenants.wait_until_synced(),
            *(scheduler.wait_until_listed() for scheduler in self._schedulers),
        )
        await self._crd.compare_once()
        self.fence_floor, self._jobs_are_listed = await self._highest_fence(), True
        gc.freeze()  # the filled caches need not be walked by every collection
        self._watch_over_tasks(
            [
                asyncio.create_task(self._announcer.post_queued(), name="announcer"),
                asyncio.create_task(self._webhook.deliver_for_ever(), name="webhook"),
                asyncio.create_task(self._lease.hold_for_ever(), name="lease"),
                asyncio.create_task(self._crd.compare_for_ever(), name="comparison of the CRD"),
                asyncio.create_task(self._core.watch_coordinators(), name="count of coordinators"),
                asyncio.create_task(self._quarantines.write_for_ever(), name="quarantines"),
                asyncio.create_task(self._pod_warnings.look_for_ever(), name="warnings about pods"),
                asyncio.create_task(memory_tuning.trim_memory_for_ever(self._clock), name="memory"),
            ]
        )

    def _watch_over_tasks(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Watch over tasks that must run as long as the process: one that ends makes the process unhealthy."""
        for task in tasks:
            task.add_done_callback(_log_error_of_task)
            self._tasks.append(task)

    async def _highest_fence(self) -> int:
        """Return the highest fence in any job's status, so that a leader is not refused after its Lease was deleted.

        Asks until the server answers, and ignores a fence that no operator can have reached. Fences in a namespace that
        refuses access are claimed once its jobs are seen.
        """
        backoff = Backoff()
        while True:
            try:
                found = [await self._fences_of_namespace(namespace) for namespace in self._settings.served_namespaces()]
            except ApiError:
                found = []
            known = [fences for fences in found if fences is not None]
            if known:
                return max((fence for fences in known for fence in fences if fence < FENCE_LIMIT), default=0)
            await self._clock.sleep(backoff.next_delay())

    async def _fences_of_namespace(self, namespace: str) -> list[int] | None:
        """Return the fences of a namespace's jobs; None: the namespace refuses access. ApiError: ask again."""
        found: list[int] = []
        try:
            async for page in self._kube.list_pages(names.PLURAL, namespace):
                found += [int((raw.get("status") or {}).get("fence", 0)) for raw in page.items]
        except ApiError as error:
            log.warning("HATrainingJobs cannot be listed yet: %s", error)
            if namespace and error.status == FORBIDDEN:
                return None
            raise
        return found

    async def _shut_down(self) -> None:
        """Stop writing, then give the Lease back, so that the next leader has no rival and need not wait for kopf."""
        await self._core.close_controllers()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Only once nothing writes any more: from here on another operator may lead.
        await self._lease.release_lease()
        await self._frontend.stop_serving()

    def _why_unhealthy(self) -> str:
        for resource, watch in (("pods", self._pods), ("nodes", self._nodes)):
            metrics.WATCH_AGE.labels(resource).set(watch.seconds_since_answer())
            if watch.seconds_since_activity() > IDLE_SECONDS:
                return f"the watch of {resource} has done nothing for {watch.seconds_since_activity():.0f} s"
        self._refused_namespaces()
        ended = next((task for task in self._tasks if task.done()), None)
        if ended is not None:
            return f"the task {ended.get_name()} has ended"
        if self._frontend.has_ended:
            return "the frontend has ended"
        return self._core.why_unhealthy()

    def _why_unready(self) -> str:
        synced = {
            "pods": self._pods.is_synced,
            "nodes": self._nodes.synced.is_set(),
            names.PLURAL: self._jobs_are_listed,
        }
        waiting = [resource for resource, is_synced in synced.items() if not is_synced]
        return f"still listing {', '.join(waiting)}" if waiting else self._crd.older

    def _note_for_admin(self) -> str:
        """Return what an admin should know of an operator that is ready."""
        refused = [
            f"namespace {namespace} is not served: it may not be read" for namespace in self._refused_namespaces()
        ]
        return "; ".join(filter(None, (*refused, self._crd.newer)))

    def _refused_namespaces(self) -> list[str]:
        """Return the configured namespaces that may not be read now; pods alone do not tell: all may be readable."""
        watches: list[Informer[Any]] = [*self._pods.informers, *self._tenants.quotas]
        refused = {watch.namespace for watch in watches if watch.refused}
        listed = [namespace for namespace in self._settings.served_namespaces() if namespace]
        for namespace in listed:
            metrics.NAMESPACE_REFUSED.labels(namespace).set(namespace in refused)
        return [namespace for namespace in listed if namespace in refused]


def _log_error_of_task(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the task %s has ended", task.get_name(), exc_info=error)


async def serve(settings: Settings, wrap: Callable[[Kube], Kube] = lambda kube: kube) -> None:
    """Run an operator with these settings.

    Args:
        settings: of the installation.
        wrap: puts something between the operator and the API; for tests that end it after a certain write.
    """
    credentials = await load_credentials(settings.kubeconfig, settings.service_account_dir)
    async with HttpKube(credentials) as kube:
        await Operator(settings, wrap(kube), credentials, SystemClock()).serve_until_stopped()


def run_operator(settings: Settings, wrap: Callable[[Kube], Kube] = lambda kube: kube) -> None:
    """Make this process an operator, until a signal ends it.

    Args:
        settings: of the installation.
        wrap: as for `serve`.
    """
    line = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    log_format.begin_logging(settings.log_format, line, level=settings.log_level)
    memory_tuning.give_memory_back()
    memory_tuning.use_small_tls_buffers()
    gc.freeze()  # nor what was imported, while the lists are read
    sys.setswitchinterval(0.0005)  # kopf's thread must not hold the core's up
    descriptors.raise_limit()
    asyncio.run(serve(settings, wrap))


def main() -> int:
    """Run as the entry point; without usable credentials, or where its port is taken, end with a sentence."""
    if version.print_if_asked("operator", sys.argv[1:]):
        return 0
    try:
        run_operator(Settings.from_environment())
    except (CredentialsError, metrics.CannotServeError) as error:
        raise SystemExit(f"hajob operator: {error}") from None
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
