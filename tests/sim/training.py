"""A training in the simulated cluster: the real coordinator's core, agents and MindIO as actors, the ranks' steps.

What hurts, and happens: processes die at any moment, also of their program (code 1) and more than once; MindIO's result
comes late and may be a failure that it can tell; a coordinator that comes anew knows nothing; agents that nobody hears
lose their lease; checkpoints are found by whoever looks, and only those that were saved.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import ENDPOINT, World
from tests.rigs.coordinator_faults import code_of_result
from tests.rigs.coordinator_peers import Agent, Mindio
from tests.rigs.coordinator_repairs import ANSWERED_BEFORE
from tests.sim.virtual_time import call_in_world
from trainer_sidecar.coordinator.conversation.states import State
from trainer_sidecar.coordinator.core import CoordinatorCore
from trainer_sidecar.coordinator.state.job import Limits, Setup

TICK_SECONDS: Final = 0.1
REST_SECONDS: Final = 1.0
"""Between looks at a training that goes on undisturbed: an agent that is silent for three seconds is lost."""
STEP_SECONDS: Final = 5.0
SAVE_STEPS: Final = 40
OFFERED: Final = ("exit", "dump", "recover", "downgrade")
OFFERED_WHILE_SMALLER: Final = ("exit", "dump")
"""MindIO's strategies for a fault; of a training that goes on without some of its ranks, and after a failure."""
STEPPING: Final = (State.SERVING, State.CONFIRMING, State.SHRUNK)


class PodAgent(Agent):
    """The agent of a rank pod of the cluster."""

    pod_uid = ""

    @property
    def uid(self) -> str:
        """Return the pod's UID."""
        return self.pod_uid


class SimMindio(Mindio):
    """A controller that also leaves data-parallel ranks out, and takes them back.

    Attributes:
        left_out: the ranks that the training goes on without.
        isolated: it has told that the ranks which are left out are cut off, and what is to come is the result.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.left_out: dict[int, int] = {}
        self.isolated = False
        self.strategies = list(OFFERED)

    def forget(self) -> None:
        """Begin as a process that knows nothing."""
        self.ask, self.lost, self.strategy = "nothing", {}, ""
        self.left_out, self.isolated, self.strategies = {}, False, list(OFFERED)
        self.registered.clear()

    def call(self, name: str, arguments: dict[str, object], order: int = 0) -> None:
        """Take a call of the coordinator: another process forgets, and a smaller training has fewer strategies."""
        if name in ("start", "end"):
            self.forget()
        elif name == "stop_train":
            self.strategies = list(OFFERED_WHILE_SMALLER if self.left_out else OFFERED)
        super().call(name, arguments, order)

    def result(self, code: int = 0, text: str = "ok", ranks: dict[int, int] | None = None) -> None:
        """Report the result of the strategy; a smaller training is told in two reports."""
        smaller = code == 0 and self.strategy == "downgrade"
        if smaller and not self.isolated:
            self.isolated = True
            self.world.callback("report_result", [201, "isolate", list((ranks or {}).items()), self.strategy])
            return
        if smaller:
            self.left_out = dict(self.lost)
        elif code == 0:
            self.left_out, self.strategies = {}, list(OFFERED)
        elif code == 406:
            self.strategies = list(OFFERED_WHILE_SMALLER)
        self.isolated = False
        super().result(code, text, ranks)


class SimTraining(World):
    """The pods of one job, from the coordinator's point of view.

    Attributes:
        coordinator: the pod whose core decides; None while none runs.
        connected: who is told the coordinator's reports; None: nobody.
        newest_step: that every rank has finished.
        saved_step: of the newest whole checkpoint; -1: there is none.
        fence: the highest that an operator has come with.
    """

    def __init__(self, chance: random.Random, nodes: int, per_node: int) -> None:
        super().__init__(nodes=0, per_node=per_node)
        self.nodes, self._chance = nodes, chance
        self.mindio: SimMindio = SimMindio(self)
        self.gates_know = True
        self.coordinator: Json | None = None
        self.connected: Any = None
        self.newest_step, self.saved_step, self.fence = 0, -1, 0
        self._step_due = self._result_due = 0.0
        self._busy_until = self._last_beat = 0.0
        self.token, self.step_at = "", 0.0
        self.note_finished_pod: Callable[[str], object] = lambda _: None

    def look_at_clock(self) -> None:
        """Take the time of the loop."""
        self.now = asyncio.get_running_loop().time()

    async def live(self) -> None:
        """Let time pass for ever."""
        while True:
            await asyncio.sleep(TICK_SECONDS if self.is_disturbed else REST_SECONDS)
            self.look_at_clock()
            self.tick()

    @property
    def is_disturbed(self) -> bool:
        """Whether something is under way in which a tenth of a second matters."""
        return self.coordinator is not None and (
            self.now < self._busy_until
            or self.state.conversation not in ("Serving", "Shrunk")
            or self.mindio.ask not in ("nothing", "growing")
            or not self._is_everybody_linked()
        )

    def _is_everybody_linked(self) -> bool:
        """Whether the coordinator knows a linked process of every rank that the training has now."""
        roster = self.core.job.roster
        ranks = set(range(self.nodes * self.per_node)) - self.mindio.left_out.keys()
        return all(roster.phase_of_rank(rank) == pb.LINKED for rank in ranks)

    def _may_train(self) -> bool:
        """Whether nothing holds the training."""
        goes_on = self.core.job.conversation.state in STEPPING or self.mindio.ask == "result"
        return goes_on and self._is_everybody_linked()

    def disturb(self) -> None:
        """Look closely for the next seconds."""
        self._busy_until = self.now + 5.0

    def describe(self) -> str:
        """Say how it stands, for whoever looks at a history that failed."""
        phases = {
            f"{agent.node_rank}/{agent.incarnation}/{rank}": pb.RankPhase.Name(process.phase)
            for agent in self.agents.values()
            for rank, process in agent.processes.items()
        }
        job = self.core.job
        return (
            f"conversation {job.conversation.state.value}, MindIO asks for {self.mindio.ask}, "
            f"controller {self.controller}, order {' '.join(str(job.order).split())}, "
            f"last step {self.now - self.step_at:.0f} s ago, "
            f"connected {self.connected is not None}, ranks {phases}"
        )

    # --------------------------------------------------------------------------------------------------- its pods

    def open_coordinator(self, pod: Json) -> None:
        """Begin as a new process that knows nothing, beside a controller host that knows nothing."""
        self.look_at_clock()
        self.close_coordinator()
        self.coordinator = pod
        incarnation = int(pod["metadata"]["labels"].get(names.LABEL_INCARNATION, "0"))
        self.core = CoordinatorCore(Setup(ENDPOINT, Limits(), incarnation), self.now)
        self.controller = {"attempt": 0, "controller": "none", "store": "none"}
        self.log, self.state = [], pb.CoordinatorState()
        for agent in self.agents.values():
            agent.told, agent.unread = None, None
        self.core.apply_controller_hello(self.controller, [], self.now)
        self.disturb()

    def close_coordinator(self) -> None:
        """End it, and MindIO's controller beside it."""
        self.coordinator = None
        self.mindio.forget()
        self.pending.clear()
        self._result_due = 0.0
        channel, self.connected = self.connected, None
        if channel is not None:
            channel.note_end("the coordinator's pod has ended")

    def open_agent(self, pod: Json) -> None:
        """Begin the agent of a rank pod."""
        labels = pod["metadata"]["labels"]
        agent = PodAgent(self, int(labels[names.LABEL_NODE_RANK]), int(labels[names.LABEL_INCARNATION]))
        agent.pod_uid = pod["metadata"]["uid"]
        agent.start_delay, agent.sees_checkpoints = self._chance.uniform(0.5, 3.0), True
        self.agents[agent.uid] = agent
        self.disturb()

    def close_agent(self, uid: str) -> None:
        """End a pod with everything in it."""
        agent = self.agents.pop(uid, None)
        if agent is not None:
            agent.powered = False
            agent.processes.clear()
            self.look_at_clock()
            if self.coordinator is not None:
                self.core.note_disconnected_agent(uid, self.now, refused=self._chance.random() < 0.5)
            self.disturb()

    def cut_off_agent(self, seconds: float) -> str:
        """Cut a rank pod off from the coordinator for so long; return which."""
        agent = self._chance.choice(sorted(self.agents.values(), key=lambda each: each.uid))
        agent.frozen = True
        self.disturb()
        call_in_world(seconds, self._reconnect_agent, agent)
        return f"{agent.node_rank}/{agent.incarnation}"

    def _reconnect_agent(self, agent: Agent) -> None:
        agent.frozen = False
        self.look_at_clock()
        self.disturb()

    def live_ranks(self) -> list[int]:
        """List the ranks with a process that runs."""
        return sorted({r for a in self.agents.values() for r, p in a.processes.items() if _runs(p.phase)})

    def phase(self, rank: int) -> pb.RankPhase:
        """Return the phase of the rank's process in its newest pod, which may not be there yet."""
        of = [agent for agent in self.agents.values() if agent.node_rank == rank // self.per_node]
        return super().phase(rank) if of else pb.ABSENT

    def end_rank(self, rank: int, code: int) -> None:
        """End a rank's process in its newest pod, where it has one."""
        self.look_at_clock()
        found = [a for a in self.agents.values() if rank in a.processes and _runs(a.processes[rank].phase)]
        if not found:
            return
        agent = max(found, key=lambda each: each.incarnation)
        agent.said.append(agent.lose_process(rank, code))
        agent.told = None
        self.disturb()
        self.pump()

    # ------------------------------------------------------------------------------------------------ the operator

    def apply_message(self, message: pb.OperatorMessage) -> None:
        """Take in what the operator says."""
        self.look_at_clock()
        if self.coordinator is None:
            return
        body = message.WhichOneof("body")
        if body == "assignment":
            self.attempt = message.assignment.attempt
            self.nodes = message.assignment.world_size // self.per_node
            self.core.apply_assignment(message.assignment, self.now)
        elif body == "order":
            self.core.apply_order(message.order, self.now)
        elif body == "acknowledge":
            self.core.job.effects.outbox.acknowledge_reports(message.acknowledge.sequence)
        self.disturb()
        self.pump()

    def collect(self) -> None:
        """Report to the operator, where one listens and there is news."""
        effects = self.core.job.effects
        if not (effects.urgent or effects.changed) and self.now - self._last_beat < 1.0:
            return
        self._last_beat = self.now
        if self.connected is None:
            return
        report = self.core.next_report(self.now)
        self.state = report.state
        self.connected.send_report(report)

    def pump(self) -> None:
        """Carry messages until nobody has anything to say; without a coordinator nobody asks."""
        if self.coordinator is not None:
            super().pump()
            self.state = pb.CoordinatorState(conversation=self.core.job.conversation.state.value)

    # --------------------------------------------------------------------------------------------------- its time

    def tick(self) -> None:
        """Let what is due happen."""
        if self.coordinator is None:
            return
        self._answer_for_gates()
        self._look_at_checkpoints()
        for agent in self.agents.values():
            if agent.answers and self._connected(agent):
                self.heartbeat += 1
                if self.core.answer_heartbeat(agent.uid, self.heartbeat, self.now) is not None:
                    agent.lease_until = self.now + 3.0
        self.core.check_time_limits(self.now, 0.0)
        if self.is_disturbed:
            self.pump()
        else:
            self.collect()
        self._train()
        self._report_result()

    def _train(self) -> None:
        if self.now < self._step_due or not self._may_train():
            return
        self._step_due = self.now + STEP_SECONDS * self._chance.uniform(0.9, 1.1)
        loaded = self.core.job.checkpoints.found
        first = all(p.step is None for a in self.agents.values() for p in a.processes.values() if _runs(p.phase))
        if first:
            self.newest_step = max(0, loaded.loaded_step if loaded is not None else 0)
        self.newest_step += 1
        self.step(self.newest_step)
        self.step_at = self.now
        if self.newest_step % SAVE_STEPS == 0 or self.newest_step == self.last_step:
            self.saved_step = max(self.saved_step, self.newest_step)
        if self.newest_step == self.last_step:
            self.disturb()
            for rank in range(self.nodes * self.per_node):
                call_in_world(self._chance.uniform(0.0, 20.0), self._finish_rank, rank, self.attempt)

    def _finish_rank(self, rank: int, attempt: int) -> None:
        """End a process in order, where it is still of the attempt that has ended its last step."""
        self.look_at_clock()
        found = [a for a in self.agents.values() if a.node_rank == rank // self.per_node]
        if self.attempt != attempt or not found or self.coordinator is None:
            return
        agent = max(found, key=lambda each: each.incarnation)
        process = agent.processes.get(rank)
        if process is None or not _runs(process.phase):
            return
        process.phase = pb.FINISHED
        agent.told = None
        self.disturb()
        self.pump()
        if all(p.phase == pb.FINISHED for p in agent.processes.values()):
            self.note_finished_pod(agent.uid)

    def _report_result(self) -> None:
        waits = self.mindio.ask not in ("result", "coming back") or self.mindio.waits_for_a_successor()
        # A growth is over once the ranks stand that come back; one that lost another rank fails.
        if waits or (self.mindio.ask == "coming back" and self._is_any_coming()):
            self._result_due = 0.0
            return
        if not self._result_due:
            self._result_due = self.now + self._chance.uniform(0.2, 2.0)
        if self.now < self._result_due:
            return
        self._result_due = 0.0
        code = 406 if self._chance.random() < 0.05 else code_of_result(self)
        if code == 0 and self.mindio.strategy == "dump":
            self.saved_step = max(self.saved_step, self.newest_step)
        self.mindio.result(code, "result", dict(self.mindio.lost))
        self.pump()

    def _is_any_coming(self) -> bool:
        """Whether a rank that the training was without is not back yet."""
        return any(self.phase(rank) != pb.LINKED for rank in self.mindio.left_out)

    def _answer_for_gates(self) -> None:
        ask, lost = self.mindio.ask, self.mindio.lost
        done = ANSWERED_BEFORE.get("strategy" if ask == "result" else ask, ())
        for agent in self.agents.values():
            agent.written = [] if agent.written is None else agent.written
            for rank in agent.processes:
                agent.answered[rank] = [] if rank in lost else list(done)

    def _look_at_checkpoints(self) -> None:
        for agent in self.agents.values():
            order = agent.order
            if order is None or not order.HasField("checkpoint"):
                continue
            attempt = order.checkpoint.prepare_attempt
            before = agent.checkpoint
            if attempt == 0 and before is not None:
                attempt = before.attempt
            loads = self.saved_step
            if before is not None and before.attempt == attempt and attempt:
                loads = before.loaded_step
            agent.checkpoint = pb.CheckpointState(
                attempt=attempt,
                name=f"iter_{self.saved_step}" if self.saved_step >= 0 else "",
                step=self.saved_step,
                loaded_step=loads,
                tracked=True,
            )


def _runs(phase: pb.RankPhase) -> bool:
    return phase in (pb.STARTING, pb.AT_GATE, pb.LINKED)
