"""One job in virtual time: the real operator core, the real coordinator core and MindIO's rules behind their ports.

Nothing waits for real seconds, so that a job can be played with every limit as its manifest leaves it. The API server
is the one in memory. A scheduler and kubelets are a few lines. Agents and MindIO are those of the coordinator's unit
tests (tests/rigs/coordinator.py), with MindIO's own patience and its late results added. MindIO's wait is the
one that the operator has put into the coordinator's pod.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.app.core import OperatorCore
from hajob.capacity.caches import Caches
from hajob.coordinator_link.channel import Channel, ChannelListener, CoordinatorCredentials, Dialer
from hajob.job.controller import JobController
from hajob.job.ports import Ports
from hajob.plan.state import JobPhase, JobState
from hajob.protocol import sidecar_pb2 as pb
from hajob.protocol.addresses import host_port
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView, pod_view_of
from tests.rigs.coordinator import ENDPOINT, World
from tests.rigs.coordinator_peers import Agent, Mindio
from tests.rigs.job_controller import ControllerTown
from trainer_sidecar.coordinator.core import CoordinatorCore
from trainer_sidecar.coordinator.shell.settings import read_settings
from trainer_sidecar.coordinator.state.job import Setup

TICK_SECONDS = 1.0
STEP_TICKS = 5
UID = "uid-1"
CHIPS = 8
NODES = 4
START_SECONDS = 20.0
"""From a pod's place to its running containers, and of a rank from its start to its gate."""
RESULT_SECONDS = 2.0
"""MindIO says late that it has succeeded."""
SAVE_SECONDS = 30.0
NOT_READY_SECONDS = 40.0
"""After which Kubernetes notices that a node is silent."""

MINIMAL: Json = {
    "apiVersion": "training.hajob.io/v1alpha1",
    "kind": "HATrainingJob",
    "metadata": {"name": "quickstart"},
    "spec": {
        "accelerator": {"product": "A2"},
        "numNodes": NODES,
        "parallelism": {"tensor": CHIPS},
        "checkpoint": {"path": "/ckpt"},
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "trainer",
                        "image": "train:1",
                        "command": ["bash", "train.sh"],
                        "volumeMounts": [{"name": "shared", "mountPath": "/ckpt"}],
                    }
                ],
                "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "checkpoints"}}],
            }
        },
    },
}
"""Only what a manifest must have, with a `tensor` that makes each node one of four data-parallel ranks."""


class PatientMindio(Mindio):
    """MindIO with its clocks: it leaves when nobody answers, and reports success after the first step."""

    def __init__(self, world: CoordinatorWorld, wait_seconds: float) -> None:
        super().__init__(world)
        self.strategies = ["exit", "dump", "recover", "downgrade"]
        self.wait_seconds = wait_seconds
        self.asked: tuple[str, float] = ("nothing", world.now)
        self.result_due: float | None = None
        self.fails: set[str] = set()  # strategies that end in 406
        self.left = False

    def call(self, name: str, arguments: dict[str, object], order: int = 0) -> None:
        super().call(name, arguments, order)
        if name == "prepare_action" and arguments["action"] == "stop switch" and not self.silent:
            self.ask = "nothing"

    def pass_time(self) -> None:
        """What MindIO does by itself."""
        world, now = self.world, self.world.now
        if self.ask != self.asked[0]:
            self.asked = (self.ask, now)
            self.result_due = None
        if self.ask in ("naming", "strategy", "stop"):
            self.left = self.left or now - self.asked[1] > self.wait_seconds
        elif self.ask in ("result", "coming back", "going on"):
            self._go_on(world, now)

    def _go_on(self, world: World, now: float) -> None:
        if self.ask == "going on" and self.strategy != "continue":
            return
        if self.strategy in ("recover", "upgrade", "retry", "migration"):
            waits = any(world.phase(rank) != pb.LINKED for rank in self.lost)
            self.result_due = None if waits else self.result_due or now + RESULT_SECONDS
        else:
            seconds = SAVE_SECONDS if self.strategy == "dump" else RESULT_SECONDS
            self.result_due = self.result_due or now + seconds
        if self.result_due is None or now < self.result_due:
            return
        self.result_due = None
        strategy, lost = self.strategy, dict(self.lost)
        if strategy in self.fails:
            self.strategies = ["exit", "dump"]
            self.result(406, f"{strategy} failed", lost)
        else:
            if strategy == "downgrade":
                world.callback("report_result", [201, "isolate", list(lost.items()), strategy])
            self.result(0, "ok", lost)
            if strategy == "recover" or strategy == "upgrade":
                self.lost = {}
        self.strategy = strategy if self.ask == "growing" else ""

    @property
    def trains(self) -> bool:
        """Whether nothing of MindIO holds the ranks."""
        return self.ask in ("nothing", "growing") or (self.result_due is not None and self.strategy != "dump")


class PodAgent(Agent):
    """The agent of a pod that the operator has made."""

    def __init__(self, rig: Rig, world: World, pod: PodView) -> None:
        super().__init__(world, pod.node_rank, pod.incarnation, start_delay=rig.rank_seconds)
        self.pod = pod

    @property
    def uid(self) -> str:
        return self.pod.uid


class CoordinatorWorld(World):
    """One coordinator pod with its MindIO. Its operator is the rig's."""

    def __init__(self, rig: Rig, pod: PodView, environment: dict[str, str]) -> None:
        super().__init__(nodes=NODES, per_node=CHIPS)
        required = dict.fromkeys(("HAJOB_DIR", "HAJOB_TLS_DIR"), "/")
        known = {"POD_IP": pod.address, "POD_NAME": pod.name, "POD_UID": pod.uid, **required, **environment}
        settings = read_settings(known)
        self.rig, self.pod, self.now = rig, pod, rig.clock.seconds
        self.core = CoordinatorCore(Setup(ENDPOINT, settings.limits, settings.incarnation), self.now)
        self.mindio = self.patient = PatientMindio(self, float(environment["MINDIO_WAIT_MINDX_TIME"]))
        self.agents, self.listed = {}, []
        self.link: RigLink | None = None
        self.step_done, self.hangs = 0, False
        self.core.apply_controller_hello(self.controller, [], self.now)

    def agent(self, node_rank: int) -> Agent:
        found = [agent for agent in self.agents.values() if agent.node_rank == node_rank]
        return max(found, key=lambda one: one.incarnation) if found else Agent(self, node_rank, 0)

    def collect(self) -> None:
        if self.link is None or not self.link.is_open:
            return
        report = self.core.next_report(self.now)
        self.state = report.state
        self.facts.extend(report.facts)
        self.milestones.extend(report.milestones)
        self.link.listener.apply_report(report)

    def live(self) -> None:
        """One tick."""
        self.now = self.rig.clock.seconds
        self.heartbeat += 1
        assignment = self.core.job.assignment
        self.attempt = assignment.attempt if assignment is not None else 0
        for agent in self.agents.values():
            heard = agent.answers and self._connected(agent)
            if heard and self.core.answer_heartbeat(agent.uid, self.heartbeat, self.now) is not None:
                agent.lease_until = self.now + 3.0
        self.core.check_time_limits(self.now, 0.0)
        self.pump()
        self.patient.pass_time()
        self.pump()
        self._train()

    def _train(self) -> None:
        if self.hangs or self.heartbeat % STEP_TICKS or not self.patient.trains or not self.core.job.is_running:
            return
        roster = self.core.job.roster
        absent = {rank for rank in range(self.nodes * self.per_node) if roster.phase_of_rank(rank) != pb.LINKED}
        if not absent - roster.dropped:
            self.step_done += 1
            self.step(self.step_done)


@dataclass
class RigLink(Channel):
    """The operator's channel to one coordinator."""

    rig: Rig
    address: str
    listener: ChannelListener
    world: CoordinatorWorld | None = None
    waiting: list[pb.Assignment | pb.Order] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return self.world is not None and self.world.link is self

    def start_dialling(self) -> None:
        """Dial; it is answered with the next tick."""

    def dial_at_once(self) -> None:
        """It is dialled with each tick."""

    def connect(self) -> None:
        """Open the stream, if somebody is there now."""
        world = self.rig.coordinators.get(self.address)
        if world is None or self.is_open or self.rig.away or self.rig.is_cut:
            return
        self.world, world.link = world, self
        world.core.note_operator(1, world.now)
        self.listener.note_connection_change(True, "")
        for message in self.waiting:
            self._say_to_world(message)

    def end(self) -> bool:
        """End the stream, if it is open."""
        world, self.world = self.world if self.is_open else None, None
        if world is not None:
            world.link = None
            world.core.job.operator.note_operator_left(world.now)
        return world is not None

    async def close_channel(self) -> None:
        self.end()
        if self in self.rig.dialled:
            self.rig.dialled.remove(self)

    def send_assignment(self, assignment: pb.Assignment) -> None:
        self._keep(assignment)

    def send_order(self, order: pb.Order) -> None:
        self._keep(order)

    def _keep(self, message: pb.Assignment | pb.Order) -> None:
        self.waiting = [one for one in self.waiting if type(one) is not type(message)]
        self.waiting.append(message)
        self._say_to_world(message)

    def _say_to_world(self, message: pb.Assignment | pb.Order) -> None:
        if not self.is_open or self.world is None:
            return
        core, now = self.world.core, self.world.now
        if isinstance(message, pb.Assignment):
            core.apply_assignment(message, now)
        else:
            core.apply_order(message, now)

    def acknowledge_report(self, sequence: int) -> None:
        if self.is_open and self.world is not None:
            self.world.core.job.effects.outbox.acknowledge_reports(sequence)


class RigDialer(Dialer):
    """Dials the coordinators of a rig."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def dial(
        self, address: str, job_uid: str, credentials: CoordinatorCredentials, listener: ChannelListener
    ) -> RigLink:
        assert job_uid == UID
        assert credentials
        self._rig.dialled.append(RigLink(self._rig, address, listener))
        return self._rig.dialled[-1]


class Rig(ControllerTown):
    """A cluster of `nodes` nodes with chips, one job of four of them, and whoever looks after it."""

    def __init__(self, spec: Json | None = None, *, nodes: int = NODES) -> None:
        raw = copy.deepcopy(MINIMAL)
        raw["spec"] |= spec or {}
        self.caches, self.dialled, self.coordinators = Caches(), [], {}
        self.away = self.is_cut = False
        self.rank_seconds = START_SECONDS
        self.down: dict[str, float] = {}
        self.bound: dict[str, float] = {}  # uid -> when it was given its node
        self.actions: list[str] = []
        self.minted: dict[str, Agent] = {}
        super().__init__(raw)
        self.nodes = {
            **{f"chips-{n}": NodeView(f"chips-{n}", chips={names.DEFAULT_RESOURCE_NAME: CHIPS}) for n in range(nodes)},
            "plain": NodeView("plain", chips={}),
        }
        self.core: OperatorCore | None = None
        self._written, self._pods_wait = "", True

    caches: Caches
    dialled: list[RigLink]
    coordinators: dict[str, CoordinatorWorld]

    def open(self) -> JobController:
        """Of `Town`: this one's controllers belong to a core."""
        return None  # type: ignore[return-value]

    def ports(self, caches: Caches | None = None) -> Ports:
        return replace(super().ports(caches), dialer=RigDialer(self))

    # -- the operator --------------------------------------------------------------------------------------------

    async def operate(self) -> None:
        """An operator begins to lead, with everything that the server has."""
        self.away, self.caches = False, Caches()
        self.core = OperatorCore(self.ports(self.caches), self.caches)
        for node in self.nodes.values():
            self.core.handle_changed_node(node, deleted=False)
        for pod in self.pods():
            self.core.handle_changed_pod(pod, deleted=False)
        self.core.note_complete_pods(self.kube.version)
        self.core.handle_job(self.stored())
        self.shown = {pod.uid: pod for pod in self.pods()}
        await self.clock.advance(0.002)

    async def leave(self) -> None:
        """The operator is gone without a word."""
        self.away = True
        if self.core is not None:
            await self.core.close_controllers()
        for link in list(self.dialled):
            await link.close_channel()
        self.core = None

    @property
    def job(self) -> JobController:
        assert self.core is not None
        return self.core.controllers[UID]

    @property
    def now_state(self) -> JobState:
        return self.job.state

    def edit(self, **spec: Any) -> None:
        """A person changes the spec."""
        stored = self.stored()
        stored["spec"] |= spec
        stored["metadata"]["generation"] += 1
        if self.core is not None:
            self.core.handle_job(stored)

    # -- the cluster ---------------------------------------------------------------------------------------------

    def node_of(self, node_rank: int) -> str:
        """The node of a rank pod."""
        serving = self.job.snapshots.pods.serving_pods(self.now_state)
        return serving.node_names[node_rank]

    def set_node(self, name: str, **changes: Any) -> None:
        """A node is another one now."""
        self.nodes[name] = replace(
            self.nodes.get(name) or NodeView(name, chips={names.DEFAULT_RESOURCE_NAME: CHIPS}), **changes
        )
        if self.core is not None:
            self.core.handle_changed_node(self.nodes[name], deleted=False)

    def lose_node(self, name: str) -> None:
        """A machine stops; Kubernetes notices after a while."""
        self.down[name] = self.clock.seconds
        for agent in self.minted.values():
            if isinstance(agent, PodAgent) and agent.pod.node_name == name:
                agent.powered = False
                for world in self.coordinators.values():
                    world.core.note_disconnected_agent(agent.uid, world.now, refused=False)

    def return_node(self, name: str) -> None:
        """The machine is there again, restarted."""
        self.down.pop(name, None)
        for (resource, namespace, pod), body in list(self.kube.objects.items()):
            if resource == "pods" and body["spec"].get("nodeName") == name:
                del self.kube.objects["pods", namespace, pod]
        self.set_node(name, ready=True, boot=f"boot-{self.clock.seconds}")

    def _is_settled(self) -> bool:
        """Whether nothing has been written, and no pod waits for a node, a start or its end."""
        written, self._written = self._written, self.kube.version
        return written == self._written and not self._pods_wait

    def _bodies(self) -> list[Json]:
        return [body for (resource, _, _), body in sorted(self.kube.objects.items()) if resource == "pods"]

    def _schedule(self) -> None:
        bodies = self._bodies()
        taken = {body["spec"].get("nodeName") for body in bodies if pod_view_of(body).requests}
        for body in bodies:
            pod = pod_view_of(body)
            if pod.node_name or pod.is_gated or pod.deleting:
                continue
            free = [name for name in sorted(self.nodes) if self._takes(name, pod, taken)]
            if free:
                body["spec"]["nodeName"] = free[0]
                self.bound[pod.uid] = self.clock.seconds
                taken.add(free[0])
            elif not body["status"].get("conditions"):
                full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes"}
                body["status"]["conditions"] = [full]

    def _takes(self, name: str, pod: PodView, taken: Collection[str]) -> bool:
        node = self.nodes[name]
        if not node.is_usable or name in self.down or name in pod.excluded or pod.place not in ("", name):
            return False
        wants = sum(amount for _, amount in pod.requests)
        return sum((node.chips or {}).values()) >= wants and name not in taken if wants else not node.chips

    def _kubelets(self) -> None:
        self._pods_wait = False
        for number, body in enumerate(self._bodies()):
            pod = pod_view_of(body)
            if pod.deleting and not pod.node_name:
                del self.kube.objects["pods", pod.namespace, pod.name]
            elif pod.node_name in self.down:
                continue
            elif pod.deleting:
                del self.kube.objects["pods", pod.namespace, pod.name]
            elif pod.phase == "Pending":
                self._pods_wait = True
                if pod.node_name and self.clock.seconds >= self.bound[pod.uid] + START_SECONDS:
                    address = f"127.{len(self.bound) % 250}.{number}.{1 + int(self.clock.seconds) % 250}"
                    ready = {"type": "Ready", "status": "True"}
                    body["status"] = {"phase": "Running", "podIP": address, "conditions": [ready]}
                    self._run(pod_view_of(body), body)

    def _run(self, pod: PodView, body: Json) -> None:
        if pod.is_rank_pod:
            world = next(iter(self.coordinators.values()), None)
            self.minted[pod.uid] = PodAgent(self, world, pod)  # type: ignore[arg-type]
            for each in self.coordinators.values():
                each.agents[pod.uid] = self.minted[pod.uid]
        elif pod.role == names.ROLE_COORDINATOR:
            containers = [*body["spec"]["initContainers"], *body["spec"]["containers"]]
            (sidecar,) = [one for one in containers if one["name"] == "coordinator"]
            environment = {one["name"]: one["value"] for one in sidecar["env"] if "value" in one}
            world = CoordinatorWorld(self, pod, environment)
            world.agents = dict(self.minted)
            for agent in self.minted.values():
                agent.world = world
            self.coordinators = {host_port(pod.address, pod.port): world}

    def _end_processes(self) -> None:
        """A pod that is gone, or whose coordinator's is, runs nothing."""
        there = {pod.uid for pod in self.pods()}
        for uid in [uid for uid in self.minted if uid not in there]:
            self.minted.pop(uid).powered = False
        for address, world in list(self.coordinators.items()):
            if world.pod.uid not in there:
                self._hang_up(world, "it is gone")
                del self.coordinators[address]

    def cut(self) -> None:
        """Operator and coordinator do not hear each other, until `is_cut` is taken back."""
        self.is_cut = True
        self._hang_up(self.world, "no route")

    def _hang_up(self, world: CoordinatorWorld, why: str) -> None:
        if (link := world.link) is not None and link.end():
            link.listener.note_connection_change(False, why)

    def _show_pods(self) -> None:
        if self.core is None:
            return
        now = {pod.uid: pod for pod in self.pods()}
        for uid in [uid for uid in self.shown if uid not in now]:
            self.core.handle_changed_pod(self.shown[uid], deleted=True)
        for uid, pod in now.items():
            if self.shown.get(uid) != pod:
                self.core.handle_changed_pod(pod, deleted=False)
        self.shown = now

    # -- time ----------------------------------------------------------------------------------------------------

    async def advance(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds / TICK_SECONDS)):
            await self._tick()

    async def until(self, happens: Callable[[], object], seconds: float = 7200.0) -> float:
        """Let time pass until something happens; return how long it took."""
        began = self.clock.seconds
        while not happens():
            assert self.clock.seconds - began < seconds, f"not within {seconds} s: {self.describe()}"
            await self._tick()
        return self.clock.seconds - began

    async def _tick(self) -> None:
        await self.clock.advance(TICK_SECONDS)
        for name, since in self.down.items():
            if self.nodes[name].ready and self.clock.seconds >= since + NOT_READY_SECONDS:
                self.set_node(name, ready=False)
        if not self._is_settled():
            self._schedule()
            self._kubelets()
            self._end_processes()
            self._show_pods()
        for link in list(self.dialled):
            link.connect()
        for world in list(self.coordinators.values()):
            world.live()
            self._note(world)

    def _note(self, world: CoordinatorWorld) -> None:
        order, incident = world.core.job.order, world.core.job.incidents.current
        standing = incident.standing if incident is not None else pb.ACTION_UNSPECIFIED
        said = pb.Action.Name(order.action) if order is not None else ""
        if said and self.actions[-1:] not in ([said], [f"standing {said}"]):
            self.actions.append(f"standing {said}" if standing else said)

    # -- questions -----------------------------------------------------------------------------------------------

    @property
    def world(self) -> CoordinatorWorld:
        """The coordinator that is there."""
        (world,) = self.coordinators.values()
        return world

    def is_in(self, *phases: JobPhase) -> bool:
        """Whether the job is in one of these phases."""
        return self.core is not None and UID in self.core.controllers and self.now_state.phase in phases

    def describe(self) -> str:
        """Where everything stands."""
        phase = self.now_state if self.core is not None else "away"
        worlds = [(world.state.conversation, world.patient.ask) for world in self.coordinators.values()]
        pods = [(pod.name, pod.phase, pod.node_name, pod.is_gated, pod.deleting) for pod in self.pods()]
        return f"{phase}\n{worlds}\n{self.actions}\n{pods}"

    async def train(self) -> None:
        """From nothing to a protected training."""
        await self.operate()
        await self.until(lambda: self.is_in(JobPhase.RUNNING) and self.world.step_done > 1, 600)

    def job_now(self) -> HATrainingJob:
        return HATrainingJob.from_object(self.stored())

    async def close(self) -> None:
        if self.core is not None:
            await self.core.close_controllers()
