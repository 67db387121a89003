"""One coordinator for 2,048 agents over real gRPC: a node is lost, and the coordinator's process is made anew.

The coordinator is the sidecar's own process, the agents are light ones (e2e.bench.light_agents) on addresses of their
own, everything speaks TLS. The benchmark is the operator, who decides at once, and the controller host, who takes every
call at once. All clocks are this machine's.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.bench.operator_core import write_certificates
from e2e.bench.scale_parts import COORDINATOR_PORT, JOB, PATIENCE_SECONDS, Agents, ControllerHost, OperatorProcess
from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.run import Run
from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.shell.clock import now
from trainer_sidecar.coordinator.state.leases import SILENT_SECONDS

NODES, CHIPS = 2048, 8
LOST = 100
PROCESSES = 2  # of agents
STEP_SECONDS = 4.0
STEADY_SECONDS = 30.0
AGENT_PORT = 7071
FIRST_BLOCK, PER_BLOCK = 1, 200  # of the run's addresses
ENVIRONMENT = {f"VARIABLE_{number}": "of every rank" for number in range(20)}


@dataclass(frozen=True)
class Live:
    """What was measured: seconds, and turns of the coordinator's loop by what went on meanwhile."""

    start: float  # of the coordinator's process, to every rank linked
    silence_to_stop: float  # from the moment at which the lost node's silence counts
    order_to_stop: float
    given_up: list[int]  # node ranks
    again: float  # from the end of the coordinator's process to a word of every agent with the next one
    lapsed: int  # leases that ran out although agent and coordinator were there
    answers: int
    slowest_answer: float
    turns: dict[str, dict[str, Any]]


@dataclass
class Scale:
    """The rig."""

    run: Run
    nodes: int

    def __post_init__(self) -> None:
        self.directory = self.run.directory / "scale"
        write_certificates(self.directory, JOB)
        self.tls = self.directory / JOB
        self.address = self.run.address(250, 2)
        self.operator = OperatorProcess(self.address, self.tls)
        shared = self.directory / "shared"
        shared.mkdir()
        self.host = ControllerHost(shared)
        self.turns_file = self.directory / "turns.json"
        self.coordinator: subprocess.Popen[bytes] | None = None

    def uid(self, node: int) -> str:
        """Of a node rank's pod."""
        return f"pod-{node}"

    def agent_address(self, node: int) -> str:
        """Each has its own."""
        return self.run.address(FIRST_BLOCK + node // PER_BLOCK, 2 + node % PER_BLOCK)

    def certificates_of(self, identity: str) -> Path:
        """A directory with the names that a pod's volume has."""
        place = self.directory / f"tls-{identity}"
        if not place.exists():
            place.mkdir()
            for name, source in (("ca.crt", "ca.crt"), ("tls.crt", f"{identity}.crt"), ("tls.key", f"{identity}.key")):
                (place / name).write_bytes((self.tls / source).read_bytes())
        return place

    def start_agents(self) -> Agents:
        """All of them, shared out to some processes."""
        processes: list[subprocess.Popen[str]] = []
        owner: dict[str, subprocess.Popen[str]] = {}
        environment = {"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'operator'}", **self.run.environment()}
        for number in range(PROCESSES):
            mine = range(number, self.nodes, PROCESSES)
            given = {
                "directory": str(self.directory),
                "tls": str(self.certificates_of("agent")),
                "job": JOB,
                "port": AGENT_PORT,
                "ranksPerNode": CHIPS,
                "worldSize": self.nodes * CHIPS,
                "stepSeconds": STEP_SECONDS,
                "agents": [
                    {"uid": self.uid(node), "address": self.agent_address(node), "nodeRank": node} for node in mine
                ],
            }
            file = self.directory / f"agents-{number}.json"
            file.write_text(json.dumps(given))
            process = subprocess.Popen(
                [sys.executable, "-m", "e2e.bench.light_agents", str(file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=(self.run.logs / f"light-agents-{number}.log").open("ab"),
                env=environment,
                text=True,
                start_new_session=True,
            )
            processes.append(process)
            owner |= {self.uid(node): process for node in mine}
        return Agents(processes, owner)

    def start_coordinator(self) -> None:
        """The sidecar's process, its loop watched."""
        environment = {
            "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'operator'}",
            "POD_IP": self.address,
            "POD_NAME": "coordinator",
            "POD_UID": "coordinator",
            "HAJOB_JOB_UID": JOB,
            "HAJOB_DIR": str(self.host.directory),
            "HAJOB_TLS_DIR": str(self.certificates_of("coordinator")),
            "HAJOB_COORDINATOR_PORT": str(COORDINATOR_PORT),
            "HAJOB_AGENT_PORT": str(AGENT_PORT),
            "MINDIO_WAIT_MINDX_TIME": "120",
        }
        command = [sys.executable, "-m", "e2e.bench.watched_coordinator", str(self.turns_file)]
        self.coordinator = self.run.spawn("coordinator", command, environment)

    def kill_coordinator(self) -> None:
        """At once."""
        if self.coordinator is not None:
            self.coordinator.kill()
            self.coordinator.wait()

    async def turns(self) -> dict[str, Any]:
        """What the coordinator's loop did since it was asked last."""
        assert self.coordinator is not None
        self.turns_file.unlink(missing_ok=True)
        os.kill(self.coordinator.pid, signal.SIGUSR1)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self.turns_file.exists():  # noqa: ASYNC110  another process makes it
                await asyncio.sleep(0.05)
        found: dict[str, Any] = json.loads(self.turns_file.read_text())
        return found

    def assignment(self) -> pb.Assignment:
        """Every pod is there."""
        assignment = pb.Assignment(
            revision=1, world_size=self.nodes * CHIPS, ranks_per_node=CHIPS, attempt=1, environment=ENVIRONMENT
        )
        assignment.hang_rule.step_time_multiple, assignment.hang_rule.minimum_seconds = 20, 120
        for node in range(self.nodes):
            uid = self.uid(node)
            assignment.pods.add(node_rank=node, pod_uid=uid, pod_name=uid, address=self.agent_address(node))
        return assignment

    async def make_coordinator_anew(self, agents: Agents) -> float:
        """Kill its process, as a container that is started again; seconds until all but the lost one are heard."""
        agents.forget()
        self.operator.state = pb.CoordinatorState()
        began = now()
        self.kill_coordinator()
        self.start_coordinator()
        await self.operator.until("every agent is heard again", lambda: self._heard() >= self.nodes - 1)
        return now() - began

    def _heard(self) -> int:
        return sum(node.connected for node in self.operator.state.nodes)

    async def start(self) -> float:
        """From the coordinator's first moment to every rank linked; seconds."""
        began = now()
        self.start_coordinator()
        self.operator.say(pb.OperatorMessage(assignment=self.assignment()))
        self.operator.say(pb.OperatorMessage(order=pb.Order(action=pb.START, incarnation=1, revision=1)))
        await self.operator.until(
            "every rank is linked", lambda: any(one.kind == pb.STARTED for one in self.operator.milestones)
        )
        return now() - began

    async def lose_a_node(self, agents: Agents) -> tuple[float, float, list[int]]:
        """Seconds from when its silence counts, and from the order, to MindIO's stop; who was given up."""
        ordered: list[float] = []

        def decide(fact: pb.Fact) -> None:
            if fact.kind == pb.AGENT_SILENT and not ordered:
                ordered.append(now())
                lost = pb.Order(
                    action=pb.REPLACE,
                    incarnation=2,
                    revision=1,
                    lost_ranks=fact.ranks,
                    replaced_nodes=[fact.node_rank],
                )
                self.operator.say(pb.OperatorMessage(order=lost))

        self.operator.on_fact = decide
        node = min(LOST, self.nodes - 1)
        at = await agents.lose(self.uid(node))
        stopped = await self.host.until("stop_train")
        silent = [fact.node_rank for fact in self.operator.facts if fact.kind == pb.AGENT_SILENT]
        return stopped - at - SILENT_SECONDS, stopped - ordered[0], silent


async def _measure(run: Run, nodes: int, steady_seconds: float, say: Callable[[str], None]) -> Live:
    scale = Scale(run, nodes)
    agents = scale.start_agents()
    tasks = [asyncio.create_task(scale.host.serve()), asyncio.create_task(scale.operator.run())]
    try:
        await agents.serving()
        say(f"{nodes} agents listen")
        start = await scale.start()
        turns = {"start": await scale.turns()}
        say(f"every rank is linked after {start:.1f} s")
        agents.forget()
        await asyncio.sleep(steady_seconds)
        turns["steady"] = await scale.turns()
        from_silence, from_order, given_up = await scale.lose_a_node(agents)
        turns["a lost node"] = await scale.turns()
        found = await agents.tell()
        say(f"a lost node's silence is answered after {from_silence:.3f} s")
        again = await scale.make_coordinator_anew(agents)
        turns["start anew"] = await scale.turns()
        say(f"every agent has heard another coordinator process after {again:.1f} s")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        agents.end()
        scale.kill_coordinator()
    answer = found["slowest_answer"] / 1000
    lapsed, answers = found["lapsed"], found["answers"]
    return Live(start, from_silence, from_order, given_up, again, lapsed, answers, answer, turns)


def measure(run: Run, say: Callable[[str], None], nodes: int = NODES, steady_seconds: float = STEADY_SECONDS) -> Live:
    """A start, a steady time, a lost node, another process of the coordinator."""
    return asyncio.run(_measure(run, nodes, steady_seconds, say))
