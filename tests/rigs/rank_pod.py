"""One rank pod as real processes: agent, launcher, a start script, ranks; the test itself is the coordinator.

No Kubernetes and no MindIO: the ranks are tiny programs that connect to the gate by the wire's connect frame, and the
controller behind the gate is a scripted socket of the test.
"""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.loopback import own_address, own_port
from hajob.protocol import sidecar_pb2 as pb
from hajob.protocol import sidecar_pb2_grpc as rpc
from tests.rigs.certificates import Authority
from trainer_sidecar.install import install_below

JOB = "0b1d2c3e-job"
ADDRESS = own_address()
PATIENCE = 90.0

RANK_PROGRAM = """
import os, signal, socket, struct, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
rank = int(os.environ["RANK"])
print("rank up", rank, os.environ["HAJOB_INCARNATION"], os.environ["HAJOB_EXEC_TIME"], flush=True)

def connect():
    # as MindIO does: again and again for a while, but a first connect that is closed is the end
    for _ in range(100):
        try:
            link = socket.create_connection((os.environ["TTP_ADDR"], int(os.environ["TTP_PORT"])))
            break
        except OSError:
            time.sleep(0.2)
    link.sendall(struct.pack("<hh4xQ", 0, 1, rank))
    if len(link.recv(2)) != 2:
        sys.exit("accepted and closed")
    return link

link = connect()
beat = struct.pack("<iiq4xiqq16s", rank, 0, 7, 0, 0, 0, b"")
step = 0
while True:
    step += 1
    try:
        link.sendall(struct.pack("<hhIII", 3, 0, 56, step, 0) + beat)
    except OSError:
        link = connect()
    print(" iteration %8d/%8d | lm loss: 1.0E+00 |" % (step, 1000000), flush=True)
    time.sleep(0.05)
"""

REGISTERING = """
import os, socket, struct, time
link = socket.create_connection((os.environ["TTP_ADDR"], int(os.environ["TTP_PORT"])))
link.sendall(struct.pack("<hh4xQ", 0, 1, int(os.environ["RANK"])))
time.sleep(0.5)  # held at the gate, where nobody answers
print(" iteration        1/       1 |", flush=True)
"""


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition that other tasks or processes bring about; fails after PATIENCE seconds naming `what`."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"never came: {what}")
        await asyncio.sleep(0.005)


def is_alive(pid: int) -> bool:
    """Tell whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@dataclass
class Pod:
    """The pod's processes and what they share."""

    directory: Path
    authority: Authority
    agent_port: int = field(default_factory=own_port)
    gate_port: int = field(default_factory=own_port)
    store_port: int = field(default_factory=own_port)
    ranks_per_node: int = 2
    fence_after: int = 60
    more: dict[str, str] = field(default_factory=dict)  # variables of both containers
    agent: asyncio.subprocess.Process | None = None
    launcher: asyncio.subprocess.Process | None = None

    def prepare(self) -> None:
        """Write everything that init containers and mounts bring."""
        install_below(self.directory)
        self.authority.write(self.directory / "tls", f"agent.{JOB}")
        (self.directory / "rank.py").write_text(RANK_PROGRAM)

    def environment(self) -> dict[str, str]:
        """Return the environment of both containers."""
        return {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
            "PYTHONPATH": str(CHECKOUT),
            "HAJOB_DIR": str(self.directory),
            "HAJOB_TLS_DIR": str(self.directory / "tls"),
            "POD_IP": ADDRESS,
            "POD_NAME": "pod-0",
            "POD_UID": "uid-0",
            "HAJOB_JOB_UID": JOB,
            "HAJOB_NODE_RANK": "0",
            "HAJOB_RANKS_PER_NODE": str(self.ranks_per_node),
            "HAJOB_WORLD_SIZE": str(self.ranks_per_node),
            "HAJOB_INCARNATION": "1",
            "HAJOB_AGENT_PORT": str(self.agent_port),
            "HAJOB_MINDIO_PORT": str(self.gate_port),
            "HAJOB_RENDEZVOUS_PORT": str(self.store_port),
            "HAJOB_ORDERED_END_SECONDS": "1",
            "HAJOB_FENCE_AFTER_SECONDS": str(self.fence_after),
            **self.more,
        }

    async def start_agent(self) -> None:
        """Start the sidecar."""
        with (self.directory / "agent.log").open("ab") as log:
            self.agent = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "trainer_sidecar.agent", env=self.environment(), stdout=log, stderr=log
            )

    async def start_launcher(self, script: str, python: str = sys.executable) -> None:
        """Start the trainer container: `bash -c SCRIPT` below the launcher."""
        with (self.directory / "trainer.log").open("ab") as log:
            self.launcher = await asyncio.create_subprocess_exec(
                python,
                str(self.directory / "launcher.pyz"),
                *("--", "bash", "-c", script),
                env=self.environment(),
                stdout=log,
                stderr=log,
            )

    def log(self, name: str = "trainer.log") -> str:
        """Read what a container has printed."""
        path = self.directory / name
        return path.read_text(errors="replace") if path.exists() else ""

    async def stop(self) -> None:
        """End every process of the pod, whatever state it is in."""
        for process in (self.agent, self.launcher):
            if process is not None and process.returncode is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                await process.wait()


class Coordinator:
    """The test's end of the agent's stream: answers heartbeats with grants, keeps what it was told."""

    def __init__(self, pod: Pod, authority: Authority, *, name: str = f"coordinator.{JOB}") -> None:
        self._pod = pod
        certificate, key = authority.issue(name)
        secret = grpc.ssl_channel_credentials(authority.pem, key, certificate)
        options = (("grpc.ssl_target_name_override", f"agent.{JOB}"), ("grpc.enable_http_proxy", 0))
        self._channel = grpc.aio.secure_channel(f"{ADDRESS}:{pod.agent_port}", secret, options)
        self._call: Any = None
        self._reader: asyncio.Task[None] | None = None
        self._revision = 0
        self._outgoing: asyncio.Queue[pb.CoordinatorToAgent] = asyncio.Queue()
        self.granting = True
        self.acknowledging = True
        self.lease_milliseconds = 3000
        self.reports: list[pb.AgentReport] = []
        self.arrivals: list[int] = []
        self.facts: dict[str, pb.Fact] = {}
        self.heartbeats: list[int] = []
        self.hello: pb.Hello | None = None
        self.error: grpc.aio.AioRpcError | None = None

    async def connect(
        self, fence: int = 1, incarnation: int = 1, *, first: pb.CoordinatorToAgent | None = None
    ) -> None:
        """Wait until the agent serves and open the stream, with a Hello or with something else."""
        await asyncio.wait_for(self._channel.channel_ready(), PATIENCE)
        hello = pb.Hello(version=1, job_uid=JOB, fence=fence, incarnation=incarnation)
        self._outgoing = asyncio.Queue()
        self._call = rpc.AgentStub(self._channel).Converse(  # type: ignore[no-untyped-call]
            self._messages(self._outgoing)
        )
        self._reader = asyncio.ensure_future(self._read())
        await self.send(first or pb.CoordinatorToAgent(hello=hello))

    async def _messages(self, outgoing: asyncio.Queue[pb.CoordinatorToAgent]) -> AsyncIterator[pb.CoordinatorToAgent]:
        while True:
            yield await outgoing.get()

    async def send(self, message: pb.CoordinatorToAgent) -> None:
        """Write a message; a refused stream is seen in `error`."""
        self._outgoing.put_nowait(message)

    async def _read(self) -> None:
        try:
            while True:
                message = await self._call.read()
                if message is grpc.aio.EOF:
                    status = await self._call.code()
                    details = await self._call.details()
                    if status is not grpc.StatusCode.OK:
                        nothing = grpc.aio.Metadata()
                        self.error = grpc.aio.AioRpcError(status, nothing, nothing, details=details)
                    return
                await self._take(message)
        except grpc.aio.AioRpcError as error:
            self.error = error

    async def _take(self, message: pb.AgentToCoordinator) -> None:
        body = message.WhichOneof("body")
        if body == "hello":
            self.hello = message.hello
        elif body == "heartbeat":
            self.heartbeats.append(message.heartbeat.number)
            if self.granting:
                await self.grant(message.heartbeat.number)
        else:
            self.arrivals.append(time.clock_gettime_ns(time.CLOCK_BOOTTIME))
            self.reports.append(message.report)
            self.facts.update({fact.id: fact for fact in message.report.facts})
            await self._answer(message.report)

    async def _answer(self, report: pb.AgentReport) -> None:
        """As the coordinator does: a grant for a report that is a heartbeat as well acknowledges it."""
        acknowledged = report.sequence if self.acknowledging else 0
        if report.heartbeat:
            self.heartbeats.append(report.heartbeat)
        if report.heartbeat and self.granting:
            await self.grant(report.heartbeat, acknowledged)
        elif acknowledged:
            await self.send(pb.CoordinatorToAgent(acknowledge=pb.Acknowledge(sequence=acknowledged)))

    async def grant(self, number: int, acknowledged: int = 0) -> None:
        """Answer a heartbeat."""
        grant = pb.LeaseGrant(heartbeat=number, lease_milliseconds=self.lease_milliseconds, acknowledged=acknowledged)
        await self.send(pb.CoordinatorToAgent(lease_grant=grant))

    async def order(self, *ranks: pb.RankOrder, controller: str = "", over: bool = False) -> None:
        """Send a NodeOrder with the next revision."""
        self._revision += 1
        order = pb.NodeOrder(revision=self._revision, controller_address=controller, ranks=ranks, over=over)
        await self.send(pb.CoordinatorToAgent(node_order=order))

    def state(self, rank: int) -> pb.RankState:
        """Find the newest state of a rank."""
        for report in reversed(self.reports):
            for state in report.ranks:
                if state.rank == rank:
                    return state
        return pb.RankState(rank=rank)

    async def phase(self, rank: int, phase: pb.RankPhase, incarnation: int = 1) -> pb.RankState:
        """Wait until a rank's process of this incarnation is reported in a phase."""
        await until(
            lambda: self.state(rank).phase == phase and self.state(rank).incarnation == incarnation,
            f"rank {rank} {pb.RankPhase.Name(phase)} in incarnation {incarnation}; it is {self.state(rank)}",
        )
        return self.state(rank)

    async def close(self) -> None:
        """End the stream."""
        if self._reader is not None:
            self._reader.cancel()
        await self._channel.close()


def rank_order(
    rank: int, incarnation: int = 1, start: int = 0, *, run: bool = True, admitted: bool = True, stacks: int = 0
) -> pb.RankOrder:
    """Build an order of a rank with the environment that coordinators send."""
    environment = {"HAJOB_ATTEMPT": "1", "MASTER_ADDR": ADDRESS, "MASTER_PORT": "29500", "WORLD_SIZE": "2"}
    made = pb.RankOrder(rank=rank, incarnation=incarnation, start=start, run=run, admitted=admitted, stacks=stacks)
    made.environment.update(environment)
    return made


class Controller:
    """A scripted MindIO controller: takes every link, counts what it hears, may be told to be silent or to close."""

    def __init__(self) -> None:
        self.port = own_port()
        self.links: list[int] = []
        self.heard: dict[int, int] = {}
        self.said: dict[int, bytes] = {}
        self.answering = True
        self.refused = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def address(self) -> str:
        """host:port."""
        return f"{ADDRESS}:{self.port}"

    @property
    def open_links(self) -> int:
        """How many connections have not ended."""
        return len(self._writers)

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, ADDRESS, self.port)

    async def stop(self) -> None:
        """Die: no listener, every link closed."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def send(self, data: bytes) -> None:
        """Say something on every link."""
        for writer in self._writers:
            writer.write(data)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            rank = struct.unpack("<hh4xQ", await reader.readexactly(16))[2]
            if not self.answering:
                self.refused += 1
                writer.close()
                return
            self.links.append(rank)
            writer.write(struct.pack("<h", 0))
            while data := await reader.read(65536):
                self.heard[rank] = self.heard.get(rank, 0) + len(data)
                self.said[rank] = self.said.get(rank, b"") + data
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers = [one for one in self._writers if one is not writer]
            writer.close()


@asynccontextmanager
async def running_pod(directory: Path, authority: Authority, script: str, **settings: Any) -> AsyncIterator[Pod]:
    """Start a pod whose trainer runs `script`; everything of it ends with the block."""
    pod = Pod(directory, authority, **settings)
    pod.prepare()
    try:
        await pod.start_agent()
        await pod.start_launcher(script)
        yield pod
    except BaseException:
        print(*(pod.log(name)[-3000:] for name in ("agent.log", "trainer.log")), sep="\n---\n")
        raise
    finally:
        await pod.stop()
