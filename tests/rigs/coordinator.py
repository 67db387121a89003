"""A job around the coordinator's core in virtual time: agents and MindIO as plain objects, no process, no socket."""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator_peers import Agent, Mindio
from trainer_sidecar.coordinator.core import CoordinatorCore
from trainer_sidecar.coordinator.state.job import Endpoint, Limits, Setup

ENDPOINT = Endpoint("10.0.0.9", 8000, 29500)


class World:
    """One job: `nodes` pods of `per_node` ranks."""

    def __init__(self, nodes: int = 2, per_node: int = 2, limits: Limits | None = None) -> None:
        self.now = 1000.0
        self.nodes, self.per_node = nodes, per_node
        self.attempt = 1
        self.revision = 0
        self.core = CoordinatorCore(Setup(ENDPOINT, limits or Limits()), self.now)
        self.mindio = Mindio(self)
        self.controller: dict[str, object] = {"attempt": 0, "controller": "none", "store": "none"}
        self.agents = {agent.uid: agent for agent in (Agent(self, node, 1) for node in range(nodes))}
        self.listed = list(self.agents)
        self.facts: list[pb.Fact] = []
        self.milestones: list[pb.Milestone] = []
        self.state = pb.CoordinatorState()
        self.standing = pb.StandingOrders()
        self.hang_rule = pb.HangRule()
        self.log_rules: list[pb.LogRule] = []
        self.environment: dict[str, str] = {}
        self.checkpoint_rules: pb.CheckpointRules | None = None
        self.pending: list[tuple[str, list[object]]] = []
        self.log: list[dict[str, object]] = []
        self.pause_work = ""
        self.heartbeat = 0
        self.last_step = 0  # that the training is to reach, as agents know it
        self.launched: list[str] = []  # by the start script
        self.gates_know = False  # agents that can make ranks known to another controller
        self.controllers = 0
        self.serial = 8
        self.action, self.word = 0, b""  # of that action
        self.fills = True
        self.filled: dict[bytes, bytes] | None = None  # what a new store was told

    def lose_controller(self, problem: str = "signal 9") -> None:
        """End MindIO's process; the host lives."""
        self.mindio.registered.clear()
        self.mindio.ask = "nothing"
        self.pending.clear()
        self.controller = {**self.controller, "controller": "lost", "problem": problem}
        self.core.apply_controller_state(self.controller, self.now)
        self.pump()

    def agent(self, node_rank: int) -> Agent:
        """Find the newest pod of a node rank."""
        return max((a for a in self.agents.values() if a.node_rank == node_rank), key=lambda a: a.incarnation)

    def phase(self, rank: int) -> pb.RankPhase:
        """Return the phase of the rank's process in its newest pod."""
        process = self.agent(rank // self.per_node).processes.get(rank)
        return process.phase if process is not None else pb.ABSENT

    def callback(self, name: str, arguments: list[object]) -> None:
        """Queue a callback: it comes on another thread, after the call has been answered."""
        self.pending.append((name, arguments))

    def answered(self, name: str, code: int) -> None:
        """Give the controller host's answer to a call."""
        self.note({"answer": len(self.mindio.calls), "call": name, "code": code})
        self.core.note_answered_call(name, code, "", self.now, self.now)

    def note(self, entry: dict[str, object]) -> None:
        """Add to the host's log: everything since MindIO last was at rest."""
        arguments = entry.get("arguments")
        if entry.get("event") == "report_result" and isinstance(arguments, list) and arguments[0] == 0:
            entry = {**entry, "order": max([int(str(one.get("order", 0))) for one in self.log], default=0)}
            self.log.clear()
        self.log.append(entry)

    def pump(self) -> None:
        """Carry messages until nobody has anything to say."""
        for _ in range(200):
            busy = False
            for uid, order in self.core.take_orders().items():
                self.agents[uid].unread = order
                busy = True
            for agent in self.agents.values():
                if agent.unread is not None and agent.answers:
                    order, agent.unread = agent.unread, None
                    agent.take(order)
            for request in self.core.job.effects.take_requests():
                self.mindio.call(request.call, request.arguments, request.order)
                busy = True
            while self.pending:
                name, arguments = self.pending.pop(0)
                self.note({"event": name, "arguments": arguments})
                self.core.apply_callback(name, arguments, self.now, self.now)
                busy = True
            busy = self._agents_report() or self._fill_store() or busy
            if not busy:
                self.collect()
                return
        raise AssertionError("the coordinator never comes to rest")

    def _fill_store(self) -> bool:
        fill = self.core.job.keeping.take_fill()
        if fill is None:
            return False
        self.filled = dict(fill.entries)
        if self.fills:
            self.core.note_filled_store("", self.now)
        return True

    def _agents_report(self) -> bool:
        busy = False
        for agent in list(self.agents.values()):
            if not agent.answers or not self._connected(agent):
                continue
            agent.live()
            busy = agent.tell_store() or busy
            report = agent.report()
            if report != agent.told:
                agent.told = report
                self.core.apply_agent_report(agent.uid, report, self.now)
                busy = True
        return busy

    def _connected(self, agent: Agent) -> bool:
        pod = self.core.job.roster.pods.get(agent.uid)
        if pod is None:
            return False
        if not pod.connected:
            self.core.note_connected_agent(agent.uid, self.now)
            self.core.apply_agent_report(agent.uid, agent.report(), self.now)
        return True

    def collect(self) -> None:
        """Take what the coordinator reports, as the operator does, and acknowledge it."""
        report = self.core.next_report(self.now)
        self.state = report.state
        self.facts.extend(report.facts)
        self.milestones.extend(report.milestones)
        self.core.job.effects.outbox.acknowledge_reports(report.sequence)

    def keep_alive(self) -> None:
        """Have every agent be heard now."""
        for agent in self.agents.values():
            self.core.answer_heartbeat(agent.uid, self.heartbeat, self.now)

    def advance(self, seconds: float) -> None:
        """Let time pass in ticks of a tenth of a second."""
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.heartbeat += 1
            for agent in self.agents.values():
                if agent.answers and self.heartbeat % 5 == 0 and self._connected(agent):
                    sent = self.now
                    if self.core.answer_heartbeat(agent.uid, self.heartbeat, self.now) is not None:
                        agent.lease_until = sent + 3.0
            self.core.check_time_limits(self.now, 0.0)
            self.pump()

    def assign(self) -> None:
        """Say which pods there are."""
        self.revision += 1
        assignment = pb.Assignment(
            revision=self.revision,
            world_size=self.nodes * self.per_node,
            ranks_per_node=self.per_node,
            attempt=self.attempt,
            standing_orders=self.standing,
            hang_rule=self.hang_rule,
            log_rules=self.log_rules,
            environment=self.environment,
            checkpoint_rules=self.checkpoint_rules,
            pause_work=self.pause_work,
        )
        for uid in self.listed:
            agent = self.agents[uid]
            assignment.pods.add(
                node_rank=agent.node_rank,
                pod_name=uid,
                pod_uid=uid,
                address=f"10.0.1.{agent.node_rank}",
                incarnation=agent.incarnation,
            )
        self.core.apply_assignment(assignment, self.now)
        self.pump()

    def order(self, action: pb.Action, **fields: object) -> None:
        """Give an order of the operator; its incarnation is the one reported, unless given."""
        incarnation = fields.pop("incarnation", self.state.incarnation)
        order = pb.Order(action=action, incarnation=incarnation, **fields)  # type: ignore[arg-type]
        self.core.apply_order(order, self.now)
        self.pump()

    def start(self) -> None:
        """Go from nothing to every rank linked and training."""
        self.core.apply_controller_hello(self.controller, [], self.now)
        self.assign()
        self.order(pb.START, incarnation=1)
        self.advance(0.6)
        assert self.marks(pb.STARTED), self.state

    def step(self, step: int, ranks: list[int] | None = None) -> None:
        """Have ranks finish a step now."""
        for agent in self.agents.values():
            if not agent.answers:
                continue
            trains = (pb.AT_GATE if self.core.job.without_mindio else pb.LINKED,)
            live = [r for r, p in agent.processes.items() if p.phase in trains and (ranks is None or r in ranks)]
            steps = [pb.StepFinished(rank=rank, step=step) for rank in live]
            for rank in live:
                agent.processes[rank].step = step
            if steps:
                self.core.apply_agent_report(agent.uid, agent.report(steps=steps), self.now)
        self.pump()

    def train(self, steps: int, seconds: float = 0.0) -> None:
        """Start, and finish so many steps with a pause after each."""
        self.start()
        for step in range(1, steps + 1):
            self.step(step)
            self.advance(seconds)

    def die(self, rank: int, code: int = -9, *, pump: bool = True) -> None:
        """End the rank's process, while its agent lives; `pump`: the coordinator has time to say so."""
        agent = self.agent(rank // self.per_node)
        fact = agent.lose_process(rank, code)
        self.core.apply_agent_report(agent.uid, agent.report([fact]), self.now)
        if pump:
            self.pump()

    def finish(self, rank: int) -> None:
        """End the rank's process with 0."""
        agent = self.agent(rank // self.per_node)
        agent.processes[rank].phase = pb.FINISHED
        self.core.apply_agent_report(agent.uid, agent.report(), self.now)
        self.pump()

    def new_pod(self, node_rank: int, incarnation: int, **fields: object) -> Agent:
        """Make a pod, as the operator does."""
        agent = Agent(self, node_rank, incarnation, **fields)  # type: ignore[arg-type]
        self.agents[agent.uid] = agent
        self.listed.append(agent.uid)
        self.assign()
        return agent

    def marks(self, kind: pb.MilestoneKind) -> list[pb.Milestone]:
        """List the milestones of one kind."""
        return [mark for mark in self.milestones if mark.kind == kind]

    def called(self, name: str) -> list[dict[str, object]]:
        """List the arguments of every call of one name."""
        return [arguments for call, arguments in self.mindio.calls if call == name]
