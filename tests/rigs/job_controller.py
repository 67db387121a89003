"""A job controller between an API server in memory and a scripted coordinator."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import yaml

from e2e.bootstrap.paths import CHECKOUT
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import HATrainingJob, Metadata
from hajob.capacity.avoided_nodes import AvoidedNodes
from hajob.capacity.caches import Caches
from hajob.capacity.nodes import Capacity
from hajob.coordinator_link.channel import Channel, ChannelListener, CoordinatorCredentials, Dialer
from hajob.domain.hardware import ClusterFact
from hajob.faults.node_faults import NodeFaults
from hajob.job.cluster import Cluster, NodeMarks
from hajob.job.controller import JobController
from hajob.job.ports import Ports
from hajob.kube.events import Announcer
from hajob.leader.leadership import Leadership
from hajob.pki.authority_store import AuthorityStore
from hajob.pods.settings import PodSettings
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView, pod_view_of
from tests.rigs.fake_clock import FakeClock
from tests.rigs.fake_kube import FakeKube

QUICKSTART = CHECKOUT / "examples/quickstart.yaml"
NAMESPACE = "default"


class Link(Channel):
    """A channel that writes down what it was told."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.orders: list[wire.Order] = []
        self.assignments: list[wire.Assignment] = []
        self.acknowledged = 0
        self.closed = False

    def start_dialling(self) -> None:
        """Dial nothing."""

    def dial_at_once(self) -> None:
        """Dial nothing."""

    async def close_channel(self) -> None:
        """Note that it was closed."""
        self.closed = True

    def send_assignment(self, assignment: wire.Assignment) -> None:
        """Note an assignment."""
        self.assignments.append(assignment)

    def send_order(self, order: wire.Order) -> None:
        """Note an order."""
        self.orders.append(order)

    def acknowledge_report(self, sequence: int) -> None:
        """Note what was acknowledged last."""
        self.acknowledged = sequence


class TownDialer(Dialer):
    """Makes links that write down what they are told."""

    def __init__(self, town: ControllerTown) -> None:
        self._links = town.links

    def dial(self, address: str, job_uid: str, credentials: CoordinatorCredentials, listener: ChannelListener) -> Link:
        assert all((job_uid, credentials, listener))
        self._links.append(Link(address))
        return self._links[-1]


class RecordedEvents:
    """An announcer that remembers the reasons and what it said."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.messages: list[str] = []

    def queue_event(self, _job: Metadata, reason: str, message: str, *, warning: bool = False) -> None:
        """Note an event."""
        assert warning in {True, False}
        self.reasons.append(reason)
        self.messages.append(message)


class TownFaults(NodeFaults):
    """Faults that a test gives the town's nodes."""

    def __init__(self, town: ControllerTown) -> None:
        self._town = town

    def faults_on(self, node: str) -> list[tuple[ClusterFact, int]]:
        return [(fact, 0) for fact in self._town.faults.get(node, ()) if not self._town.held]

    def why_held(self) -> str:
        return self._town.held

    def standing_faults(self, node: str) -> list[ClusterFact] | None:
        return self._town.faults.get(node, []) if self._town.faults_known and not self._town.held else None


class TownCluster(Cluster):
    """The town's nodes: what is free on them is counted anew at each question, or in the caches of a core."""

    def __init__(self, town: ControllerTown, caches: Caches | None) -> None:
        quotas = caches.quotas if caches is not None else None
        marks = NodeMarks(quarantined=town.quarantined, sub_healthy=town.sub_healthy)
        super().__init__(town.clock, Capacity(), TownFaults(town), marks, quotas)
        self._town, self._caches = town, caches
        self.avoided_nodes = town.avoided_nodes

    @property
    def capacity(self) -> Capacity:
        return self._caches.capacity if self._caches is not None else self._town.capacity()


class ControllerTown:
    """The world of one controller: nodes, pods that come up when they are made, one coordinator."""

    def __init__(self, raw: Json | None = None) -> None:
        self.clock, self.events = FakeClock(), RecordedEvents()
        self.fence = 1
        self.kube = FakeKube(self.clock)
        self.store = AuthorityStore(self.kube, self.clock, "hajob-system", timedelta(days=365))
        self.links: list[Link] = []
        self.avoided_nodes = AvoidedNodes()
        self.faults: dict[str, list[ClusterFact]] = {}
        self.held = ""
        self.faults_known = True
        self.quarantined: set[str] = set()
        self.sub_healthy: set[str] = set()
        self.nodes = {f"node-{n}": NodeView(f"node-{n}", chips={names.DEFAULT_RESOURCE_NAME: 2}) for n in range(6)}
        raw = raw or yaml.safe_load(QUICKSTART.read_text())
        raw["metadata"] |= {"namespace": NAMESPACE, "uid": "uid-1", "generation": 1}
        self.raw = self.kube.put(names.PLURAL, NAMESPACE, raw)
        self.sequence = 0
        self.controller = self.open()

    def open(self) -> JobController:
        """Open a controller as a new operator does: from what the server has."""
        stored = self.stored()
        self.controller = JobController(HATrainingJob.from_object(stored), self.ports())
        for pod in self.pods():
            self.controller.apply_pod(pod)
        self.controller.note_listed_pods()
        self.controller.start_tasks()
        return self.controller

    def ports(self, caches: Caches | None = None) -> Ports:
        """Return the ports of this world; `caches`: of a core that is shown nodes and pods, not the server's."""
        self.cluster = TownCluster(self, caches)
        return Ports(
            authorities=self.store,
            kube=self.kube,
            clock=self.clock,
            dialer=TownDialer(self),
            announcer=cast("Announcer", self.events),
            pod_settings=PodSettings(sidecar_image="hajob/sidecar:dev"),
            cluster=self.cluster,
            leadership=Leadership(self.fence),
        )

    def capacity(self) -> Capacity:
        """Count nodes and pods as they are now."""
        found = Capacity.from_nodes_and_pods(self.nodes.values(), self.pods())
        found.set_kept_out(self.quarantined)
        return found

    def quarantine(self, *nodes: str) -> None:
        """Quarantine these nodes and no others."""
        self.quarantined.clear()
        self.quarantined.update(nodes)

    def stored(self) -> dict[str, Any]:
        """Return the job as the server has it."""
        found: dict[str, Any] = self.kube.objects[names.PLURAL, NAMESPACE, "quickstart"]
        return found

    def status(self) -> dict[str, Any]:
        """Return the job's status on the server."""
        found: dict[str, Any] = self.stored().get("status", {})
        return found

    def pods(self) -> list[PodView]:
        """List the pods on the server."""
        return [pod_view_of(body) for (resource, _, _), body in self.kube.objects.items() if resource == "pods"]

    async def run_pods(self) -> None:
        """Give every pod a node and an address, let it run, and show it to the controller."""
        for number, ((resource, _, _), body) in enumerate(sorted(self.kube.objects.items())):
            if resource == "pods" and "podIP" not in body.get("status", {}):
                body["spec"]["nodeName"] = f"node-{number % 6}"
                body["status"] = {"phase": "Running", "podIP": f"127.0.1.{number}"}
                self.controller.apply_pod(pod_view_of(body))
        await settle_town(self)

    async def end_deleted_pods(self) -> None:
        """End what is being deleted, as kubelets do, and show the controller that it is gone."""
        for pod in [pod for pod in self.pods() if pod.deleting]:
            del self.kube.objects["pods", pod.namespace, pod.name]
        there = {pod.uid for pod in self.pods()}
        for pod in [pod for pod in self.controller.snapshots.pods.all_pods() if pod.uid not in there]:
            self.controller.apply_pod(pod, deleted=True)
        await settle_town(self)

    async def report(self, *facts: wire.Fact, **state: Any) -> None:
        """Report, as the coordinator does."""
        self.sequence += 1
        milestones = state.pop("milestones", [])
        if state.pop("hello", True):
            self.controller.coordinator.note_connection_change(True, "")
        attempt = self.controller.state.attempt
        known = {"controller_ready": True, "attempt": attempt, "step": 0, **state}
        self.controller.coordinator.apply_report(
            wire.Report(
                sequence=self.sequence,
                state=wire.CoordinatorState(**known),
                facts=facts,
                milestones=milestones,
            )
        )
        await settle_town(self)

    async def train(self) -> None:
        """Go from the first visit to a training that has done five steps."""
        await settle_town(self)
        await self.run_pods()
        await self.report(milestones=[wire.Milestone(kind=wire.STARTED, incarnation=1)])
        await self.report(step=5)


async def settle_town(town: ControllerTown) -> None:
    """Let everything that can happen now happen: eight milliseconds pass."""
    for _ in range(4):
        await town.clock.advance(0.002)


def death_of_rank(rank: int, fact: str = "exit-1") -> wire.Fact:
    """Build what the coordinator reports when a rank's first process is killed after five steps."""
    return wire.Fact(
        id=fact, kind=wire.PROCESS_EXITED, node_rank=rank // 2, ranks=[rank], incarnation=1, exit_code=-9, step=5
    )


def incarnations_of_node_1(town: ControllerTown) -> list[int]:
    """List the incarnations of node rank 1's pods that are not being deleted."""
    return sorted(pod.incarnation for pod in town.pods() if pod.node_rank == 1 and not pod.deleting)


async def end_pods(town: ControllerTown, role: str, code: int = 0) -> None:
    """End every pod of a role, and show it to the controller."""
    for (resource, _, _), body in sorted(town.kube.objects.items()):
        if resource == "pods" and pod_view_of(body).role == role:
            ended = {"name": "trainer", "state": {"terminated": {"exitCode": code, "reason": "Completed"}}}
            body["status"] |= {"phase": "Failed" if code else "Succeeded", "containerStatuses": [ended]}
            town.controller.apply_pod(pod_view_of(body))
    await settle_town(town)


def condition_of(town: ControllerTown, kind: str) -> tuple[str, str, str]:
    """Return status, reason and message of a condition of the job."""
    found = next(each for each in town.status()["conditions"] if each["type"] == kind)
    return found["status"], found["reason"], found["message"]


def body_of_pod(town: ControllerTown, pod: PodView) -> dict[str, Any]:
    """Find the object of a pod on the server."""
    found: dict[str, Any] = town.kube.objects["pods", NAMESPACE, pod.name]
    return found


def coordinator_pod_of(town: ControllerTown) -> PodView:
    """Find the coordinator's pod, the one that is not being deleted."""
    (found,) = (pod for pod in town.pods() if pod.role == names.ROLE_COORDINATOR and not pod.deleting)
    return found


def phase_of_job(town: ControllerTown) -> str:
    """Return the phase that the job is in now."""
    return town.controller.state.phase.value


class PodQuota:
    """A ResourceQuota of the town's namespace."""

    def __init__(self, town: ControllerTown) -> None:
        self._town = town

    async def allow(self, pods: int) -> None:
        """Set how many pods may be there."""
        kube, path = self._town.kube, f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
        body: dict[str, Any] = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": str(pods)}}}
        if ("resourcequotas", NAMESPACE, "q") in kube.objects:
            await kube.transport.send_request("DELETE", f"{path}/q", query={})
        await kube.transport.send_request("POST", path, query={}, body=body)
        await self._town.clock.advance(0.5)
