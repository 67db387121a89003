"""One coordinator for 16,384 ranks on 2,048 pods: how long any one message keeps its loop from the next.

The core is driven as the shell drives it, message by message, without sockets; agents answer at once. What counts is
its thread's own CPU time, so that other load on the machine does not. A lease is three
seconds long, so a loop that stands still for longer ends every rank's protection: each message may take 50 ms.
"""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.core import CoordinatorCore
from trainer_sidecar.coordinator.shell.hub import ORDERS_PER_TURN
from trainer_sidecar.coordinator.state.job import Endpoint, Limits, Setup

NODES, CHIPS = 2048, 8
LIMIT_SECONDS = 0.05
STEPS = 3
LOST = 100
SERVING = {"attempt": 1, "controller": "serving", "store": "listening"}
STACK = "\n".join(f'File "megatron/core/module_{number}.py", line {number} in forward' for number in range(40))
ENVIRONMENT = {f"VARIABLE_{number}": "of every rank" for number in range(20)}


@dataclass
class Scale:
    """A core, its agents' answers, and the seconds of every turn of the loop by what it was about."""

    nodes: int = NODES
    now: float = 1000.0
    turns: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    started: dict[str, pb.NodeOrder] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.core = CoordinatorCore(Setup(Endpoint("10.0.0.1", 8000, 29500), Limits()), self.now)
        self.calls: list[str] = []

    def uid(self, node: int) -> str:
        """Of a node rank's pod."""
        return f"pod-{node}"

    def turn(self, about: str, function: str, *arguments: object) -> None:
        """One message, and what it leaves to be sent; orders that have to wait get turns of their own."""
        began = time.thread_time()
        getattr(self.core, function)(*arguments, self.now)
        self._flush()
        self.turns[about].append(time.thread_time() - began)
        while self.core.job.effects.dirty:
            began = time.thread_time()
            self._flush()
            self.turns["orders"].append(time.thread_time() - began)

    def _flush(self) -> None:
        self.calls += [request.call for request in self.core.job.effects.take_requests()]
        self.started.update(self.core.take_orders(ORDERS_PER_TURN))

    def assign(self) -> None:
        """Every pod is there."""
        assignment = pb.Assignment(
            revision=1, world_size=self.nodes * CHIPS, ranks_per_node=CHIPS, attempt=1, environment=ENVIRONMENT
        )
        assignment.hang_rule.step_time_multiple, assignment.hang_rule.minimum_seconds = 20, 120
        for node in range(self.nodes):
            uid = self.uid(node)
            assignment.pods.add(node_rank=node, pod_uid=uid, pod_name=uid, address=f"10.1.{node // 256}.{node % 256}")
        self.turn("assignment", "apply_assignment", assignment)

    def report(self, node: int, phase: pb.RankPhase | None, **more: object) -> pb.AgentReport:
        """What an agent says of its ranks."""
        ranks = range(node * CHIPS, (node + 1) * CHIPS)
        states = [pb.RankState(rank=rank, incarnation=1, pid=1, phase=phase) for rank in ranks] if phase else []
        return pb.AgentReport(launcher_ready=True, ranks=states, **more)  # type: ignore[arg-type]

    def start(self) -> None:
        """From nothing to every rank linked."""
        self.core.apply_controller_hello({"attempt": 0, "controller": "none", "store": "none"}, [], self.now)
        self.assign()
        self.turn("order", "apply_order", pb.Order(action=pb.START, incarnation=1))
        self.turn("controller", "apply_controller_state", SERVING)
        for node in range(self.nodes):
            self.turn("hello", "note_connected_agent", self.uid(node))
            self.turn("first report", "apply_agent_report", self.uid(node), self.report(node, None))
        assert len(self.started) == self.nodes, "every agent was told to start its ranks"
        for phase in (pb.STARTING, pb.AT_GATE, pb.LINKED):
            for node in reversed(range(self.nodes)):
                self.turn("report of ranks", "apply_agent_report", self.uid(node), self.report(node, phase))
        assert self.core.job.attempt.linked
        self.turn("report to the operator", "next_report")

    def take_over(self) -> None:
        """Another process in the place of one whose job trains."""
        self.core.apply_controller_hello(SERVING, [], self.now)
        self.assign()
        self.turn("order", "apply_order", pb.Order(action=pb.RETRY, incarnation=5))
        for node in range(self.nodes):
            self.turn("hello", "note_connected_agent", self.uid(node))
            self.turn("report in a take-over", "apply_agent_report", self.uid(node), self.report(node, pb.LINKED))
        assert str(self.core.job.conversation.state) == "Serving"

    def serve_with_gates(self) -> None:
        """Agents say what their gates know."""
        self.turn("controller", "apply_controller_state", {**SERVING, "instance": "first"})
        for node in range(self.nodes):
            self.turn("report of a gate", "apply_agent_report", self.uid(node), self.gate(node, "first", known=True))

    def lose_the_controller(self) -> float:
        """Another one serves at once, and every gate makes its ranks known to it; seconds in the coordinator."""
        before = self._seconds()
        lost = {**SERVING, "instance": "first", "controller": "lost", "problem": "signal 9"}
        self.turn("lost controller", "apply_controller_state", lost)
        for node in range(self.nodes):
            self.turn("gate that lets go", "apply_agent_report", self.uid(node), self.gate(node, "", known=False))
        self.turn("another controller", "apply_controller_state", {**SERVING, "instance": "second"})
        for node in range(self.nodes):
            report = self.gate(node, "second", known=True)
            self.turn("gate that makes ranks known", "apply_agent_report", self.uid(node), report)
        change = self.core.job.change
        assert not change.is_under_way, change.change_problem
        return self._seconds() - before

    def _seconds(self) -> float:
        return sum(map(sum, self.turns.values()))

    def gate(self, node: int, controller: str, *, known: bool) -> pb.AgentReport:
        """What an agent says whose gate knows what its ranks registered with."""
        ranks = range(node * CHIPS, (node + 1) * CHIPS)
        state = pb.GateState(controller=controller, registered=ranks if known else (), serial=8, counter=1)
        state.told.extend(pb.RankActions(rank=rank) for rank in ranks)
        return self.report(node, pb.LINKED if known else pb.AT_GATE, gate=state)

    def heartbeats(self, nodes: Iterator[int] | range) -> None:
        """One of each."""
        for node in nodes:
            self.turn("heartbeat", "answer_heartbeat", self.uid(node), 1)

    def step(self, step: int) -> None:
        """Every rank finishes one."""
        for node in range(self.nodes):
            steps = [pb.StepFinished(rank=rank, step=step) for rank in range(node * CHIPS, (node + 1) * CHIPS)]
            self.turn(
                "report of steps", "apply_agent_report", self.uid(node), self.report(node, pb.LINKED, steps=steps)
            )

    def tick(self, seconds: float = 0.1) -> None:
        """The clock goes on."""
        self.now += seconds
        self.core.job.set_time(self.now)
        began = time.thread_time()
        self.core.check_time_limits(self.now, 0.0)
        self._flush()
        self.turns["tick"].append(time.thread_time() - began)

    def stand_still(self) -> None:
        """No step for too long: every rank is asked where it stands, and the fact carries the answers."""
        for _ in range(130):
            self.tick(1.0)
            self.heartbeats(range(self.nodes))
        for node in range(self.nodes):
            report = self.report(node, pb.LINKED)
            for rank in range(node * CHIPS, (node + 1) * CHIPS):
                report.facts.add(id=f"stack-{rank}", kind=pb.STACK, ranks=[rank], message=STACK)
            self.turn("report of stacks", "apply_agent_report", self.uid(node), report)
        self.tick()
        found = [fact.kind for fact in self.core.next_report(self.now).facts]
        assert found == [pb.HANG], found

    def lose_a_node(self) -> float:
        """Its silence is told, and the order stops the others; seconds in the coordinator from each to what follows."""
        for _ in range(8):
            self.tick(0.5)
            self.heartbeats(node for node in range(self.nodes) if node != LOST)
        self.turn("report to the operator", "next_report")
        ranks = range(LOST * CHIPS, (LOST + 1) * CHIPS)
        lost = pb.Order(action=pb.REPLACE, incarnation=2, revision=1, lost_ranks=ranks, replaced_nodes=[LOST])
        began = time.thread_time()
        self.core.apply_order(lost, self.now)
        stopped = [request.call for request in self.core.job.effects.take_requests()]
        seconds = time.thread_time() - began
        assert stopped == ["stop_train"], stopped
        self.turns["order"].append(seconds)
        return seconds

    def lose_a_process(self) -> float:
        """Its exit stops the others at once; seconds in the coordinator."""
        rank = (LOST + 1) * CHIPS
        fact = pb.Fact(id="exit", kind=pb.PROCESS_EXITED, ranks=[rank], incarnation=1, exit_code=-9)
        report = self.report(LOST + 1, pb.LINKED, facts=[fact])
        report.ranks[0].phase = pb.DEAD
        began = time.thread_time()
        self.core.apply_agent_report(self.uid(LOST + 1), report, self.now)
        assert [request.call for request in self.core.job.effects.take_requests()] == ["stop_train"]
        return time.thread_time() - began


@dataclass(frozen=True)
class Found:
    """Seconds.

    Attributes:
        turns: Of the loop, by what they were about.
        exit_to_stop: From a process exit to the stop.
        order_to_stop: From an order to the stop.
        lost_to_protected: All turns from a lost controller to the next one that knows every rank.
    """

    turns: dict[str, list[float]]
    exit_to_stop: float
    order_to_stop: float
    lost_to_protected: float


def measure(nodes: int = NODES) -> Found:
    """Trainings that lose a process, a node, stand still; and a coordinator that takes one over."""
    exit_to_stop = _trained(nodes).lose_a_process()
    scale, still, lossy = _trained(nodes), _trained(nodes), _trained(nodes)
    lossy.serve_with_gates()
    lost_to_protected = lossy.lose_the_controller()
    order_to_stop = scale.lose_a_node()
    still.stand_still()
    taken = _new(nodes)
    taken.take_over()
    turns: dict[str, list[float]] = defaultdict(list)
    for one in (scale, still, taken, lossy):
        for about, seconds in one.turns.items():
            turns[about] += seconds
    return Found(dict(turns), exit_to_stop, order_to_stop, lost_to_protected)


def _new(nodes: int) -> Scale:
    gc.collect()
    gc.freeze()  # the objects of the jobs before are none of this one's
    return Scale(nodes)


def _trained(nodes: int) -> Scale:
    scale = _new(nodes)
    scale.start()
    for step in range(1, STEPS + 1):
        scale.tick()
        scale.step(step)
        scale.heartbeats(range(nodes))
    return scale
