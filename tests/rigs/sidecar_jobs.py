"""A whole training job as real processes, without Kubernetes: rank pods, a coordinator pod, the test as the operator.

Every pod has a loopback address of its own and the ports Hajob uses everywhere. MindIO and the trainer are what
`HAJOB_MINDIO` and `e2e/trainer` offer; nothing here knows whether that is the simulator.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.run import claim_block
from e2e.trainer import manners
from e2e.trainer.container import CANN
from e2e.trainer.events import read_events
from e2e.trainer.settings import HURRY
from hajob.protocol import sidecar_pb2 as pb
from hajob.protocol import sidecar_pb2_grpc as rpc
from tests.rigs.certificates import Authority
from trainer_sidecar.coordinator.shell import clock
from trainer_sidecar.install import install_below

JOB = "3f1d2c3e-job"
PATIENCE = 120.0
ENDS_WITH_TESTS = """
import os, sys
from trainer_sidecar import prctl
prctl.die_with_parent()
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""In a process of its own: between fork and exec nothing of Python may run beside gRPC's threads."""


def mindio_package() -> Path:
    """Find the directory of the MindIO package in use."""
    return Path(os.environ.get("HAJOB_MINDIO") or CHECKOUT / "e2e" / "mindio" / "package")


@dataclass
class Container:
    """One process and everything below it, in a session of its own."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    directory: Path | None = None
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; its output is kept. It ends with the tests, also when these are killed: its address is theirs."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-c", ENDS_WITH_TESTS, *self.command],
                env=self.environment,
                cwd=self.directory,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def processes(self) -> list[int]:
        """Find the container's processes, by their session."""
        assert self.process is not None
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and _session(entry) == self.process.pid:
                found.append(int(entry.name))
        return found

    def send(self, number: int) -> None:
        """Send a signal to every process of the container."""
        for pid in self.processes():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def stop(self) -> None:
        """End whatever is left."""
        if self.process is None:
            return
        self.send(signal.SIGKILL)
        self.process.wait()


def is_alive(pid: int) -> bool:
    """Tell whether a process exists and has not ended."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def _session(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rsplit(")", 1)[1].split()[3])
    except (OSError, IndexError, ValueError):
        return -1


@dataclass
class Pod:
    """A rank pod: two containers that share a directory."""

    node_rank: int
    address: str
    incarnation: int
    directory: Path
    containers: dict[str, Container] = field(default_factory=dict)

    @property
    def uid(self) -> str:
        return f"uid-{self.node_rank}-{self.incarnation}"

    def entry(self) -> pb.RankPod:
        """Build its entry in the assignment."""
        return pb.RankPod(
            node_rank=self.node_rank,
            pod_name=f"job-{self.node_rank}-{self.incarnation}",
            pod_uid=self.uid,
            address=self.address,
            incarnation=self.incarnation,
            node_name=f"node-{self.address}",
        )

    def send(self, number: int) -> None:
        """Send a signal to every process of the pod: SIGSTOP is a frozen node, SIGKILL a node without power."""
        for container in self.containers.values():
            container.send(number)


class Operator:
    """The operator's end: says assignment and order, keeps what is reported, acknowledges."""

    def __init__(self, address: str, authority: Authority, fence: int = 1) -> None:
        certificate, key = authority.issue(f"operator.{JOB}")
        self._secret = grpc.ssl_channel_credentials(authority.pem, key, certificate)
        self.address = address
        self.fence = fence
        self._outgoing: asyncio.Queue[pb.OperatorMessage] = asyncio.Queue()
        self.hello: pb.Hello | None = None
        self.state = pb.CoordinatorState()
        self.facts: list[pb.Fact] = []
        self.milestones: list[tuple[pb.Milestone, float]] = []
        self.arrivals: list[tuple[pb.Fact, float]] = []
        self.assignment: pb.Assignment | None = None
        self.current: pb.Order | None = None
        self.on_fact: Callable[[pb.Fact], None] = lambda _: None
        self._task: asyncio.Task[None] | None = None

    def dial(self) -> None:
        """Connect, and again whenever the stream ends."""
        self._task = asyncio.create_task(self._run())

    async def hang_up(self) -> None:
        """Hang up as if the operator had been killed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        options = (
            ("grpc.ssl_target_name_override", f"coordinator.{JOB}"),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
        )
        while True:
            try:
                async with grpc.aio.secure_channel(f"{self.address}:7070", self._secret, options) as channel:
                    await self._converse(channel)
            except grpc.aio.AioRpcError:
                pass
            await asyncio.sleep(0.1)

    async def _converse(self, channel: grpc.aio.Channel) -> None:
        call: Any = rpc.CoordinatorStub(channel).Converse(self._messages())  # type: ignore[no-untyped-call]
        async for message in call:
            if message.WhichOneof("body") == "hello":
                self.hello, self.state = message.hello, pb.CoordinatorState()
            else:
                self._take(message.report)

    def _take(self, report: pb.Report) -> None:
        now = clock.now()
        self.state = report.state
        for milestone in report.milestones:
            self.milestones.append((milestone, now - milestone.age_nanoseconds / 1e9))
        for fact in report.facts:
            self.facts.append(fact)
            self.arrivals.append((fact, now))
            self.on_fact(fact)
        acknowledge = pb.Acknowledge(sequence=report.sequence)
        self._outgoing.put_nowait(pb.OperatorMessage(acknowledge=acknowledge))

    async def _messages(self) -> Any:
        self._outgoing = asyncio.Queue()
        hello = pb.Hello(version=1, job_uid=JOB, fence=self.fence)
        yield pb.OperatorMessage(hello=hello)
        if self.current is not None:
            yield pb.OperatorMessage(order=self.current)
        if self.assignment is not None:
            yield pb.OperatorMessage(assignment=self.assignment)
        while True:
            yield await self._outgoing.get()

    def assign(self, assignment: pb.Assignment) -> None:
        """Say which pods there are."""
        self.assignment = assignment
        self._outgoing.put_nowait(pb.OperatorMessage(assignment=assignment))

    def order(self, order: pb.Order) -> None:
        """Say which step is wanted."""
        self.current = order
        self._outgoing.put_nowait(pb.OperatorMessage(order=order))

    def marks(self, kind: pb.MilestoneKind) -> list[tuple[pb.Milestone, float]]:
        """List the milestones of one kind, with their times on this machine's clock."""
        return [mark for mark in self.milestones if mark[0].kind == kind]

    async def until(self, condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
        """Wait for something the reports will show; fails naming `what` and the last state."""
        deadline = time.monotonic() + patience
        while not condition():
            if time.monotonic() > deadline:
                kinds = [pb.MilestoneKind.Name(mark.kind) for mark, _ in self.milestones]
                raise AssertionError(f"never came: {what}; milestones {kinds}; facts {self.facts}; state {self.state}")
            await asyncio.sleep(0.005)

    async def milestone(self, kind: pb.MilestoneKind, number: int = 1, patience: float = PATIENCE) -> pb.Milestone:
        """Wait for the n-th milestone of a kind."""
        name = pb.MilestoneKind.Name(kind)
        await self.until(lambda: len(self.marks(kind)) >= number, f"milestone {name} {number}", patience)
        return self.marks(kind)[number - 1][0]


class Job:
    """Everything of one job below one directory."""

    def __init__(self, directory: Path, nodes: int, ranks_per_node: int, arguments: list[str]) -> None:
        self.directory = directory
        self.nodes, self.ranks_per_node, self.arguments = nodes, ranks_per_node, arguments
        self.authority = Authority()
        self._claim, block = claim_block()
        self._addresses = (f"127.{block}.1.{last}" for last in range(1, 250))
        self.coordinator_address = next(self._addresses)
        self.pods: list[Pod] = []
        self.containers: list[Container] = []
        self.revision = 0
        self.attempt = 1
        self.environment = {
            "HIGH_AVAILABILITY": "dump,retry,recover",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "WORLD_SIZE": str(self.world_size),
        }
        self.controller_environment: dict[str, str] = {}
        self.wait_mindx = 120
        self.action_limit = ""  # of the simulator, in seconds; empty: the shortest that the real one takes
        self.standing = pb.StandingOrders()
        self.operator = Operator(self.coordinator_address, self.authority)
        self.log_directory = directory / "events"

    @property
    def world_size(self) -> int:
        return self.nodes * self.ranks_per_node

    def container(self, name: str, directory: Path, command: list[str], environment: dict[str, str]) -> Container:
        """Build a container with the environment an image gives."""
        python_path = f"{CHECKOUT}{os.pathsep}{mindio_package()}"
        full = {
            "PATH": f"{CHECKOUT}/e2e/trainer/image/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": os.environ.get("HOME", "/"),
            "PYTHONPATH": python_path,
            "PYTHONUNBUFFERED": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "HAJOB_STORE": "e2e.trainer.store:serve",
            CANN: "stand-in",
            # these tests time coordinator and agents against every rank's printed steps
            manners.VARIABLE: "-quiet -late-end -children -hangs",
            "HAJOB_DIR": str(directory / "hajob"),
            "HAJOB_TLS_DIR": str(directory / "tls"),
            "HAJOB_JOB_UID": JOB,
            "HAJOB_RANKS_PER_NODE": str(self.ranks_per_node),
            "HAJOB_WORLD_SIZE": str(self.world_size),
            "MINDIO_WAIT_MINDX_TIME": str(self.wait_mindx),
            "TTP_NORMAL_ACTION_TIME_LIMIT": "30",
            "SIM_MINDIO_ACTION_LIMIT": self.action_limit,
            "MINDX_TASK_ID": JOB,
            **environment,
        }
        container = Container(name, command, full, directory / f"{name}.log")
        self.containers.append(container)
        return container

    def _directory(self, name: str, role: str) -> Path:
        directory = self.directory / name
        (directory / "hajob").mkdir(parents=True)
        install_below(directory / "hajob")
        self.authority.write(directory / "tls", f"{role}.{JOB}")
        return directory

    def start_coordinator(self, incarnation: int = 0) -> None:
        """Start both containers of the coordinator pod; `incarnation`: of another in its place, at its address."""
        directory = self._directory(f"coordinator{incarnation or ''}", "coordinator")
        token = directory / "token"
        token.write_text("a token\n")
        environment = {
            "POD_IP": self.coordinator_address,
            "POD_NAME": "job-coordinator",
            "POD_UID": "uid-coordinator",
            "HAJOB_TOKEN_FILE": str(token),
            **({"HAJOB_INCARNATION": str(incarnation)} if incarnation else {}),
            **self.controller_environment,
        }
        host = [sys.executable, str(directory / "hajob" / "controller_host.pyz")]
        self.controller = self.container("controller", directory, host, environment)
        self.controller.start()
        command = [sys.executable, "-m", "trainer_sidecar.coordinator"]
        self.coordinator = self.container("coordinator", directory, command, environment)
        self.coordinator.start()

    def start_pod(self, node_rank: int, incarnation: int) -> Pod:
        """Start a rank pod that is not yet in any assignment."""
        directory = self._directory(f"pod-{node_rank}-{incarnation}", "agent")
        pod = Pod(node_rank, next(self._addresses), incarnation, directory)
        environment = {
            "POD_IP": pod.address,
            "POD_NAME": pod.entry().pod_name,
            "POD_UID": pod.uid,
            "HAJOB_NODE_RANK": str(node_rank),
            "HAJOB_INCARNATION": str(incarnation),
        }
        agent = [sys.executable, "-m", "trainer_sidecar.agent"]
        shutil.copytree(CHECKOUT / "e2e" / "trainer" / "image", directory / "image")
        script = ["train.sh", *self.arguments]
        script += ["--log-dir", str(self.log_directory), "--save", str(self.directory / "ckpt")]
        trainer = [sys.executable, str(directory / "hajob" / "launcher.pyz"), "--", "bash", *script]
        pod.containers = {
            "agent": self.container("agent", directory, agent, environment),
            "trainer": self.container("trainer", directory, trainer, environment),
        }
        pod.containers["trainer"].directory = directory / "image"
        for container in pod.containers.values():
            container.start()
        self.pods.append(pod)
        return pod

    def assign(self) -> None:
        """Say what there is now."""
        self.revision += 1
        self.operator.assign(
            pb.Assignment(
                revision=self.revision,
                world_size=self.world_size,
                ranks_per_node=self.ranks_per_node,
                attempt=self.attempt,
                environment=self.environment,
                pods=[pod.entry() for pod in self.pods],
                standing_orders=self.standing,
            )
        )

    async def start(self) -> None:
        """Go from nothing to every rank linked."""
        self.start_coordinator()
        for node_rank in range(self.nodes):
            self.start_pod(node_rank, 1)
        self.operator.dial()
        self.assign()
        self.operator.order(pb.Order(incarnation=1, action=pb.START))
        await self.operator.milestone(pb.STARTED)

    async def start_again(self) -> None:
        """Start the whole job anew in the same pods, with a new controller: another attempt."""
        self.attempt += 1
        self.assign()
        attempts = len(self.operator.marks(pb.STARTED))
        self.operator.order(pb.Order(incarnation=self.operator.state.incarnation + 1, action=pb.START))
        await self.operator.milestone(pb.STARTED, attempts + 1)

    async def until_step(self, step: int) -> None:
        """Wait until a step has been finished."""
        await self.operator.until(lambda: self.operator.state.step >= step, f"step {step}")

    def pid(self, rank: int) -> int:
        """Find the rank's newest process; one that was replaced may still write after it."""
        newest = max(self.events(rank), key=lambda event: (event["attempt"], event["incarnation"], event["t"]))
        return int(newest["pid"])

    def events(self, rank: int) -> list[dict[str, Any]]:
        """Read what the rank wrote of itself."""
        return [event for event in read_events(self.log_directory) if event["rank"] == rank]

    def kill(self, rank: int) -> float:
        """End the rank's process as a crash would; when, by the boot-time clock."""
        os.kill(self.pid(rank), signal.SIGKILL)
        return clock.now()

    def fault(self, line: str) -> None:
        """Order a fault of the trainer (e2e/trainer/faults.py); it is looked for once per step."""
        with (self.log_directory / "faults").open("a") as faults:
            faults.write(line + "\n")

    def hurry(self) -> None:
        """Have steps take no longer than they must: from here on only the end of the training matters."""
        (self.log_directory / HURRY).touch()

    def keep_checkpoints(self) -> None:
        """Save every fifth step, load what is newest at a start, and log every step's state."""
        where = str(self.directory / "ckpt")
        self.arguments = [*self.arguments, "--save-interval", "5", "--load", where, "--log-digests"]

    async def restart_coordinator(self) -> None:
        """Crash the coordinator's container and start it again until it says hello; the rest of its pod lives."""
        self.coordinator.stop()
        self.operator.hello = None
        self.coordinator.start()
        await self.operator.until(lambda: self.operator.hello is not None, "the new coordinator")

    async def fact(self, kind: pb.FactKind) -> pb.Fact:
        """Wait for a fact of one kind."""

        def found() -> list[pb.Fact]:
            return [fact for fact in self.operator.facts if fact.kind == kind]

        await self.operator.until(lambda: bool(found()), f"a fact {pb.FactKind.Name(kind)}")
        return found()[0]

    async def stop(self) -> None:
        """Leave nothing behind."""
        await self.operator.hang_up()
        for container in self.containers:
            container.stop()
        self._claim.close()
