"""A job around the coordinator's core in virtual time: agents and MindIO as plain objects, no process, no socket.

MindIO here follows the same order of calls and callbacks as the real one and fails the test when it is told something
its phase does not ask for: that is what ends the real one silently.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.core import CoordinatorCore
from trainer_sidecar.coordinator.job import Endpoint, Limits, Setup

ENDPOINT = Endpoint("10.0.0.9", 8000, 29500)


@dataclass
class Process:
    """One process of a rank."""

    incarnation: int
    start: int
    phase: pb.RankPhase = pb.AT_GATE
    pid: int = 1
    step: int | None = None

    @property
    def name(self) -> tuple[int, int]:
        return (self.incarnation, self.start)


@dataclass
class Agent:
    """One rank pod: starts what it is ordered at once, links what is admitted while its lease holds."""

    world: World
    node_rank: int
    incarnation: int
    powered: bool = True
    frozen: bool = False
    start_delay: float = 0.0
    lease_until: float = 0.0
    processes: dict[int, Process] = field(default_factory=dict)
    due: dict[int, tuple[float, Process]] = field(default_factory=dict)
    order: pb.NodeOrder | None = None
    ended: list[int] = field(default_factory=list)
    tells_stacks: bool = True
    stacks: dict[int, int] = field(default_factory=dict)
    said: list[pb.Fact] = field(default_factory=list)
    told: pb.AgentReport | None = None
    sees_checkpoints: bool = False
    checkpoint: pb.CheckpointState | None = None
    unread: pb.NodeOrder | None = None
    answered: dict[int, list[int]] = field(default_factory=dict)
    serials: dict[int, int] = field(default_factory=dict)  # of ranks that have not had the newest action
    repaired: set[int] = field(default_factory=set)  # ranks that were let go on after a repair
    busy: set[int] = field(default_factory=set)  # ranks in a handler that the controller has asked for
    registered: dict[int, tuple[int, int]] = field(default_factory=dict)  # rank -> its process that has
    bound: str = ""
    written: list[pb.StoreEntry] | None = None  # into the store; None: its gate does not keep that
    unreadable: str = ""
    content_sent: str = ""
    known: dict[int, str] = field(default_factory=dict)  # rank -> the controller that it was made known to

    @property
    def uid(self) -> str:
        return f"pod-{self.node_rank}-{self.incarnation}"

    @property
    def answers(self) -> bool:
        return self.powered and not self.frozen

    def take(self, order: pb.NodeOrder) -> None:
        """Carry out an order as the real agent does, by (incarnation, start)."""
        self.order = order
        for entry in order.ranks:
            self.tell_stack(entry)
            name = (entry.incarnation, entry.start)
            process: Process | None = self.processes.get(entry.rank)
            have = (process.incarnation, process.start) if process is not None else (-1, -1)
            alive = process is not None and process.phase not in (pb.DEAD, pb.FINISHED)
            if process is not None and alive and (have < name or (have == name and not entry.run)):
                process.phase = pb.DEAD
                self.ended.append(entry.rank)
            if entry.run and have < name and entry.rank not in self.due:
                self.due[entry.rank] = (self.world.now + self.start_delay, Process(*name))
        if order.over:
            self.due.clear()
            for running in self.processes.values():
                running.phase = pb.DEAD if running.phase != pb.FINISHED else pb.FINISHED

    def tell_stack(self, entry: pb.RankOrder) -> None:
        """Say where a rank stands, when that is asked anew."""
        if entry.stacks > self.stacks.get(entry.rank, 0) and self.tells_stacks:
            self.stacks[entry.rank] = entry.stacks
            identity = f"{self.uid}/stack/{entry.rank}/{entry.stacks}"
            text = f"File train.py, line {entry.rank}"
            self.said.append(pb.Fact(id=identity, kind=pb.STACK, ranks=[entry.rank], message=text))

    def live(self) -> None:
        """What happens by itself: starts that are due, links that are admitted."""
        self.follow_the_controller()
        for rank, (at, started) in list(self.due.items()):
            if self.world.now >= at:
                self.processes[rank] = started
                del self.due[rank]
        if self.order is None or not self.order.controller_address or self.world.now > self.lease_until:
            return
        for entry in self.order.ranks:
            process = self.processes.get(entry.rank)
            same = process is not None and (process.incarnation, process.start) == (entry.incarnation, entry.start)
            if process is not None and same and entry.admitted and process.phase == pb.AT_GATE:
                process.phase = pb.LINKED
                self.registered[entry.rank] = process.name
                self.make_known(entry.rank)
            elif process is not None and same and entry.admitted and process.phase == pb.LINKED:
                self.make_known(entry.rank, again=self.known.get(entry.rank) != self.order.controller)
        for rank in self.order.stand_ins:
            self.make_known(rank, again=self.known.get(rank) != self.order.controller)

    def follow_the_controller(self) -> None:
        """Links to another one than the order names end."""
        if self.order is None or self.order.controller in (self.bound, "") or not self.world.gates_know:
            return
        self.bound = self.order.controller
        for linked in self.processes.values():
            if linked.phase == pb.LINKED:
                linked.phase = pb.AT_GATE

    def make_known(self, rank: int, *, again: bool = True) -> None:
        """The controller of the order learns of a rank."""
        if again and self.order is not None:
            self.known[rank] = self.order.controller
            self.world.mindio.register(rank)

    def report(self, facts: list[pb.Fact] | None = None, steps: list[pb.StepFinished] | None = None) -> pb.AgentReport:
        """The state as it is."""
        said, self.said = self.said, []
        states = [
            pb.RankState(rank=r, incarnation=p.incarnation, start=p.start, pid=p.pid, phase=p.phase, step=p.step)
            for r, p in sorted(self.processes.items())
        ]
        return pb.AgentReport(
            launcher_ready=True,
            ranks=states,
            facts=[*(facts or []), *said],
            steps=steps or [],
            sees_checkpoints=self.sees_checkpoints,
            last_step=self.world.last_step,
            checkpoint=self.checkpoint,
            launched=self.world.launched if self.node_rank == 0 else [],
            environment=self.environment() if self.node_rank == 0 else {},
            gate=self.gate() if self.world.gates_know else None,
        )

    def environment(self) -> dict[str, str]:
        """The variables that its ranks were ordered with."""
        ordered = self.order.ranks if self.order is not None else ()
        return next((dict(entry.environment) for entry in ordered if entry.run), {})

    def gate(self) -> pb.GateState:
        """What its gate tells."""
        controller = self.order.controller if self.order is not None else ""
        registered = [rank for rank, known in sorted(self.known.items()) if known == controller]
        told = [
            pb.RankActions(
                rank=rank,
                answered=self.answered.get(rank, ()),
                busy=rank in self.busy,
                repaired=rank in self.repaired,
                serial=self.serials.get(rank, self.world.serial),
            )
            for rank, process in sorted(self.processes.items())
            if self.registered.get(rank) == process.name and process.phase in (pb.STARTING, pb.AT_GATE, pb.LINKED)
        ]
        serial = self.world.serial
        keeps = self.written is not None
        state = pb.GateState(controller=controller, registered=registered, serial=serial, counter=1, told=told)
        state.keeps_store, state.action, state.word = keeps, self.world.action, self.world.word
        return state

    def tell_store(self) -> bool:
        """What was written into the store, once for each time it is wanted."""
        wanted = self.order.store_wanted if self.order is not None else ""
        if wanted == self.content_sent:
            return False
        self.content_sent = wanted
        if not wanted or self.written is None:
            return False
        said = pb.StoreContent(wanted=wanted, dialect="earlier", problem=self.unreadable, entries=self.written)
        said.last = True
        self.world.core.store_content(self.uid, said, self.world.now)
        return True


CHOOSING = ("strategy", "growing", "going on")


class Mindio:
    """The controller's side; `ask` is what it waits for now."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.registered: set[int] = set()
        self.calls: list[tuple[str, dict[str, object]]] = []
        self.ask = "nothing"
        self.lost: dict[int, int] = {}
        self.strategies = ["exit", "dump", "recover"]
        self.strategy = ""
        self.switching: set[int] = set()
        self.wound: object = None
        self.no_process = False  # the host cannot start another controller
        self.silent = False  # takes calls, calls back only when the test says so

    def register(self, rank: int) -> None:
        """A rank's link has come up."""
        self.registered.add(rank)
        if rank in self.switching:
            self.switching.discard(rank)
            if not self.switching:
                self.ask, self.strategies = "strategy", ["migration"]
                self.world.callback("report_strategies", [[], ["migration"]])

    def call(self, name: str, arguments: dict[str, object], order: int = 0) -> None:
        """A call of the coordinator, answered and followed as MindIO would."""
        if name == "store":
            assert self.world.controller["controller"] in ("none", "lost"), "a controller has one already"
            opened = {"controller": "none", "store": "listening", "unfilled": True}
            self.world.controller = {"attempt": self.world.attempt, **opened}
            self.world.core.controller_state(self.world.controller, self.world.now)
            return
        if name == "known":
            self.world.controller = {**self.world.controller, "takes_over": False, "unfilled": False}
            return
        if name in ("start", "end"):
            self.wound = arguments.get("wind")
            self._process(name)
            return
        self.calls.append((name, arguments))
        self.world.note({"called": name, "id": len(self.calls), "arguments": arguments, "order": order})
        ranks = dict(arguments.get("ranks", []))  # type: ignore[call-overload]
        if name == "stop_train" and not set(ranks) <= self.registered:
            self.world.answered(name, 1)
            return
        allowed = {
            "stop_train": ("nothing", "stop", "growing", "coming back", "going on"),
            "on_global_rank": ("naming",),
            "change_strategy": (*CHOOSING, *(["result"] if self._waits_for_a_successor() else [])),
            "dump": ("nothing",),  # while ranks are left out it is accepted and ignored, and takes a growth with it
            "pause": ("nothing",),
            "prepare_action": ("nothing",),
        }
        assert self.ask in allowed[name], f"{name} while MindIO asks for {self.ask}: it would never speak again"
        self.world.answered(name, 0)
        if not self.silent:
            getattr(self, f"_{name}")(ranks, arguments)

    def _waits_for_a_successor(self) -> bool:
        """A waiting recover may be turned into something else."""
        phases = [self.world.phase(rank) for rank in self.lost]
        return self.strategy == "recover" and any(phase != pb.LINKED for phase in phases)

    def _process(self, name: str) -> None:
        if self.no_process:
            return
        self.ask, self.lost = "nothing", {}
        self.registered.clear()
        self.world.log = []
        self.world.controller = {
            **self.world.controller,
            "controller": "none",
            "instance": "",
            "kind": "",
            "problem": "",
        }
        if name == "start":
            self.world.controllers += 1
            serving = {"controller": "serving", "store": "listening", "instance": f"c{self.world.controllers}"}
            is_empty = self.world.controller["store"] != "listening" and bool(self.wound)
            empty = {"unfilled": is_empty or bool(self.world.controller.get("unfilled"))}
            self.world.controller = {"attempt": self.world.attempt, **serving, "takes_over": bool(self.wound), **empty}
        self.world.core.controller_state(self.world.controller, self.world.now)

    def _stop_train(self, ranks: dict[int, int], _: object) -> None:
        if self.ask == "nothing":
            self.world.callback("report_fault_ranks", [list(ranks.items()), []])
        self.lost = ranks
        self.ask = "naming"
        self.world.callback("report_stop_complete", [0, "stop ok", list(ranks.items())])

    def _on_global_rank(self, ranks: dict[int, int], _: object) -> None:
        self.lost = {**self.lost, **ranks}
        self.world.callback("report_fault_ranks", [list(self.lost.items()), []])
        self.ask = "strategy"
        self.world.callback("report_strategies", [list(self.lost.items()), self.strategies])

    def _change_strategy(self, _: object, arguments: dict[str, object]) -> None:
        self.strategy = str(arguments["strategy"])
        assert self.strategy in self.strategies
        self.ask = "coming back" if self.strategy == "upgrade" else "result"

    def _prepare_action(self, ranks: dict[int, int], arguments: dict[str, object]) -> None:
        self.switching = set(ranks) if arguments["action"] == "hot switch" else set()

    def _dump(self, _: object, __: object) -> None:
        self.strategy, self.ask = "dump", "result"

    def _pause(self, _: object, __: object) -> None:
        self.ask, self.strategies = "going on", ["continue"]
        self.world.callback("report_stop_complete", [0, "pause ok", []])

    def pause_ends(self) -> None:
        """Nobody has answered in time: MindIO says so, and at once begins the order of a fault without one."""
        self.ask, self.strategies = "stop", ["exit", "dump", "retry"]
        self.world.callback("report_result", [406, "Controller do pause wait failed.", [], ""])
        self.world.callback("report_fault_ranks", [[], []])

    def result(self, code: int = 0, text: str = "ok", ranks: dict[int, int] | None = None) -> None:
        """Report the result of the strategy."""
        if code == 0 and self.strategy == "downgrade":
            self.ask, self.strategies = "growing", ["upgrade"]
            self.world.callback("report_result", [code, text, list((ranks or {}).items()), self.strategy])
            return
        self.ask = "nothing" if code == 0 else "strategy" if code == 406 else "naming" if code == 405 else "none"
        self.world.callback("report_result", [code, text, list((ranks or {}).items()), self.strategy])


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
        """MindIO's process ends; the host lives."""
        self.mindio.registered.clear()
        self.mindio.ask = "nothing"
        self.pending.clear()
        self.controller = {**self.controller, "controller": "lost", "problem": problem}
        self.core.controller_state(self.controller, self.now)
        self.pump()

    def agent(self, node_rank: int) -> Agent:
        """The newest pod of a node rank."""
        return max((a for a in self.agents.values() if a.node_rank == node_rank), key=lambda a: a.incarnation)

    def phase(self, rank: int) -> pb.RankPhase:
        """Of the rank's process in its newest pod."""
        process = self.agent(rank // self.per_node).processes.get(rank)
        return process.phase if process is not None else pb.ABSENT

    def callback(self, name: str, arguments: list[object]) -> None:
        """Queue a callback: it comes on another thread, after the call has been answered."""
        self.pending.append((name, arguments))

    def answered(self, name: str, code: int) -> None:
        """The controller host's answer to a call."""
        self.note({"answer": len(self.mindio.calls), "call": name, "code": code})
        self.core.answered(name, code, "", self.now, self.now)

    def note(self, entry: dict[str, object]) -> None:
        """The host's log: everything since MindIO last was at rest."""
        arguments = entry.get("arguments")
        if entry.get("event") == "report_result" and isinstance(arguments, list) and arguments[0] == 0:
            entry = {**entry, "order": max([int(str(one.get("order", 0))) for one in self.log], default=0)}
            self.log.clear()
        self.log.append(entry)

    def pump(self) -> None:
        """Until nobody has anything to say."""
        for _ in range(200):
            busy = False
            for uid, order in self.core.take_orders().items():
                self.agents[uid].unread = order
                busy = True
            for agent in self.agents.values():
                if agent.unread is not None and agent.answers:
                    order, agent.unread = agent.unread, None
                    agent.take(order)
            for request in self.core.take_requests():
                self.mindio.call(request.call, request.arguments, request.order)
                busy = True
            while self.pending:
                name, arguments = self.pending.pop(0)
                self.note({"event": name, "arguments": arguments})
                self.core.callback(name, arguments, self.now, self.now)
                busy = True
            busy = self._agents_report() or self._fill_store() or busy
            if not busy:
                self._collect()
                return
        raise AssertionError("the coordinator never comes to rest")

    def _fill_store(self) -> bool:
        fill = self.core.job.keeping.take_fill()
        if fill is None:
            return False
        self.filled = dict(fill.entries)
        if self.fills:
            self.core.store_filled("", self.now)
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
                self.core.agent_report(agent.uid, report, self.now)
                busy = True
        return busy

    def _connected(self, agent: Agent) -> bool:
        pod = self.core.job.roster.pods.get(agent.uid)
        if pod is None:
            return False
        if not pod.connected:
            self.core.connected(agent.uid, self.now)
            self.core.agent_report(agent.uid, agent.report(), self.now)
        return True

    def _collect(self) -> None:
        report = self.core.report(self.now)
        self.state = report.state
        self.facts.extend(report.facts)
        self.milestones.extend(report.milestones)
        self.core.acknowledge(report.sequence)

    def keep_alive(self) -> None:
        """Every agent is heard now."""
        for agent in self.agents.values():
            self.core.heartbeat(agent.uid, self.heartbeat, self.now)

    def advance(self, seconds: float) -> None:
        """Let time pass in ticks of a tenth of a second."""
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.heartbeat += 1
            for agent in self.agents.values():
                if agent.answers and self.heartbeat % 5 == 0 and self._connected(agent):
                    sent = self.now
                    if self.core.heartbeat(agent.uid, self.heartbeat, self.now) is not None:
                        agent.lease_until = sent + 3.0
            self.core.tick(self.now, 0.0)
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
        self.core.assign(assignment, self.now)
        self.pump()

    def order(self, action: pb.Action, **fields: object) -> None:
        """An order of the operator; its incarnation is the one reported, unless given."""
        incarnation = fields.pop("incarnation", self.state.incarnation)
        order = pb.Order(action=action, incarnation=incarnation, **fields)  # type: ignore[arg-type]
        self.core.order(order, self.now)
        self.pump()

    def start(self) -> None:
        """From nothing to every rank linked and training."""
        self.core.controller_hello(self.controller, [], self.now)
        self.assign()
        self.order(pb.START, incarnation=1)
        self.advance(0.6)
        assert self.marks(pb.STARTED), self.state

    def step(self, step: int, ranks: list[int] | None = None) -> None:
        """Ranks finish a step now."""
        for agent in self.agents.values():
            if not agent.answers:
                continue
            trains = (pb.AT_GATE if self.core.job.without_mindio else pb.LINKED,)
            live = [r for r, p in agent.processes.items() if p.phase in trains and (ranks is None or r in ranks)]
            steps = [pb.StepFinished(rank=rank, step=step) for rank in live]
            for rank in live:
                agent.processes[rank].step = step
            if steps:
                self.core.agent_report(agent.uid, agent.report(steps=steps), self.now)
        self.pump()

    def train(self, steps: int, seconds: float = 0.0) -> None:
        """Start, and finish so many steps with a pause after each."""
        self.start()
        for step in range(1, steps + 1):
            self.step(step)
            self.advance(seconds)

    def die(self, rank: int, code: int = -9, *, pump: bool = True) -> None:
        """The rank's process ends, its agent lives; `pump`: the coordinator has time to say so."""
        agent = self.agent(rank // self.per_node)
        process = agent.processes[rank]
        process.phase = pb.DEAD
        fact = pb.Fact(
            id=f"{agent.uid}/exit/{rank}/{process.incarnation}/{process.start}",
            kind=pb.PROCESS_EXITED,
            ranks=[rank],
            incarnation=process.incarnation,
            start=process.start,
            exit_code=code,
        )
        self.core.agent_report(agent.uid, agent.report([fact]), self.now)
        if pump:
            self.pump()

    def finish(self, rank: int) -> None:
        """The rank's process ends with 0."""
        agent = self.agent(rank // self.per_node)
        agent.processes[rank].phase = pb.FINISHED
        self.core.agent_report(agent.uid, agent.report(), self.now)
        self.pump()

    def new_pod(self, node_rank: int, incarnation: int, **fields: object) -> Agent:
        """The operator has made a pod."""
        agent = Agent(self, node_rank, incarnation, **fields)  # type: ignore[arg-type]
        self.agents[agent.uid] = agent
        self.listed.append(agent.uid)
        self.assign()
        return agent

    def marks(self, kind: pb.MilestoneKind) -> list[pb.Milestone]:
        """Milestones of one kind."""
        return [mark for mark in self.milestones if mark.kind == kind]

    def called(self, name: str) -> list[dict[str, object]]:
        """Arguments of every call of one name."""
        return [arguments for call, arguments in self.mindio.calls if call == name]
