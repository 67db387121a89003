"""From a coordinator's report of a fault to the decision's arrival at that coordinator, with 100 other jobs known.

The coordinators here are scripted: they say what real ones say, over real TLS and gRPC, at the pace of real ones, and
do nothing. One of them loses ranks; the others only report their state. The operator's core runs in a process of its
own (e2e.bench.operator_core). Both times are taken here, by one clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio

from e2e.bench.operator_core import write_certificates
from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.run import Run
from hajob.pods.naming import hash_of_pod
from hajob.protocol import sidecar_pb2 as wire
from hajob.protocol import versions
from hajob.protocol.sidecar_pb2_grpc import CoordinatorServicer, add_CoordinatorServicer_to_server

OTHER_JOBS = 100
PORT = 7070
REST_SECONDS = 0.5  # a real coordinator says this often at least how it is
PATIENCE_SECONDS = 30.0
PAUSE_SECONDS = 0.05
FIRST_BLOCK = 200  # rigs use lower ones
PER_BLOCK = 200
RANKS = 32
Requests = AsyncIterator[wire.OperatorMessage]
Context = grpc.aio.ServicerContext[wire.OperatorMessage, wire.CoordinatorMessage]


@dataclass
class ScriptedCoordinator(CoordinatorServicer):
    """One coordinator: trains as soon as it is told to start, and loses ranks when the benchmark says so.

    Attributes:
        uid: of its job.
        pod_uid: of its pod; empty: of the pod that the operator's core in memory has made.
        token: of its pod; empty: that core takes the pod's name for it.
        num_nodes: node ranks of its job.

    Attributes:
        newest: order that has come.
        running: set once the operator has taken in that the job trains; a fault before that is one of its start.
    """

    uid: str
    pod_uid: str = ""
    token: str = ""
    num_nodes: int = RANKS // 8
    orders: asyncio.Queue[tuple[wire.Order, float]] = field(default_factory=asyncio.Queue)
    newest: wire.Order = field(default_factory=wire.Order)
    running: asyncio.Event = field(default_factory=asyncio.Event)
    step: int = 0
    sequence: int = 0
    incarnation: int = 0
    revision: int = 0
    _due: asyncio.Queue[wire.Report] = field(default_factory=asyncio.Queue)
    _started: int = 0

    async def Converse(  # noqa: N802 - the name is the protocol's
        self, request_iterator: Requests, context: Context
    ) -> AsyncIterator[wire.CoordinatorMessage]:
        """The operator's stream."""
        del context
        await anext(request_iterator)
        reader = asyncio.create_task(self._read(request_iterator))
        try:
            pod = f"job-{self.uid}-coordinator-{hash_of_pod(self.uid, 1)}"
            token, pod_uid = self.token or pod, self.pod_uid or pod
            hello = wire.Hello(version=versions.OURS.lowest, job_uid=self.uid, token=token, pod_uid=pod_uid)
            yield wire.CoordinatorMessage(hello=hello)
            while not reader.done():
                yield wire.CoordinatorMessage(report=await self._next())
        finally:
            reader.cancel()

    async def _read(self, requests: Requests) -> None:
        async for message in requests:
            match message.WhichOneof("body"):
                case "order":
                    self.take_order(message.order, time.perf_counter())
                case "acknowledge":
                    self._acknowledged(message.acknowledge)

    def take_order(self, order: wire.Order, at: float) -> None:
        """Handle an order that came at this time, by `time.perf_counter`; one in force may be said once more."""
        is_newer = (order.incarnation, order.revision) > (self.newest.incarnation, self.newest.revision)
        self.newest = order
        self.incarnation, self.revision = order.incarnation, order.revision
        if order.action == wire.START:
            self.step = 1
            self._started = self.tell(wire.STARTED, wire.RESUMED)
        elif is_newer:
            self.orders.put_nowait((order, at))

    def _acknowledged(self, acknowledge: wire.Acknowledge) -> None:
        """Faults may reach the operator by another way, and sooner than what was reported before them."""
        if 0 < self._started <= acknowledge.sequence:
            self.running.set()

    async def _next(self) -> wire.Report:
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(self._due.get(), REST_SECONDS)
        return self.next_report()

    def next_report(self) -> wire.Report:
        """Return a report of where everything stands, with a number of its own."""
        self.sequence += 1
        nodes = [wire.NodeState(node_rank=node, connected=True, launcher_ready=True) for node in range(self.num_nodes)]
        state = wire.CoordinatorState(
            incarnation=self.incarnation,
            order_revision=self.revision,
            conversation="Normal",
            controller_ready=True,
            step=self.step,
            attempt=1,
            nodes=nodes,
        )
        return wire.Report(sequence=self.sequence, state=state)

    def tell(self, *milestones: wire.MilestoneKind) -> int:
        """Report milestones; the number of the report."""
        report = self.next_report()
        for kind in milestones:
            report.milestones.add(kind=kind, incarnation=self.incarnation, step=self.step)
        self._due.put_nowait(report)
        return report.sequence

    async def decided(self, seconds: float) -> float:
        """Wait so long for the order to restart processes; when it came, by `time.perf_counter`.

        Raises:
            TimeoutError: no order came; the message names the newest one.
            RuntimeError: it is another order.
        """
        try:
            order, at = await asyncio.wait_for(self.orders.get(), seconds)
        except TimeoutError:
            words = f"{self.uid}: no order within {seconds:.0f} s; the newest is: {_in_words(self.newest)}"
            raise TimeoutError(words) from None
        if order.action != wire.IN_PLACE:
            raise RuntimeError(f"{self.uid}: the decision is {_in_words(order)}, not IN_PLACE")
        return at

    async def ordered(self) -> float:
        """Wait for the next order as `decided` does and carry it out; when it came, in seconds since 1970."""
        at = await self.decided(PATIENCE_SECONDS)
        offset = time.time() - time.perf_counter()
        self.step += 1
        self.tell(wire.STOPPED, wire.REPLACEMENTS_READY, wire.NAMED)
        self.tell(wire.RESUMED)
        self.tell(wire.RESULT)
        return at + offset

    def train(self) -> None:
        """Report that it has gone on: a rank that stands where it stood before has made no progress."""
        self.step += 100
        self._due.put_nowait(self.next_report())

    def report_exit(self, rank: int) -> None:
        """Report that a rank has exited."""
        self.step += 100
        report = self.next_report()
        fact = report.facts.add(id=f"exit/{self.step}", kind=wire.PROCESS_EXITED, node_rank=rank // 8, ranks=[rank])
        fact.incarnation, fact.exit_code, fact.step = self.incarnation, -9, self.step
        self._due.put_nowait(report)

    async def lose(self, rank: int) -> float:
        """Report that a rank has exited; returns the seconds until the order about it is here."""
        begin = time.perf_counter()
        self.report_exit(rank)
        offset = time.time() - time.perf_counter()
        return await self.ordered() - offset - begin


def _in_words(order: wire.Order) -> str:
    if not order.incarnation:
        return "none"
    return f"{wire.Action.Name(order.action)} of incarnation {order.incarnation}, revision {order.revision}"


async def serve(coordinator: ScriptedCoordinator, address: str, files: dict[str, bytes]) -> grpc.aio.Server:
    """Let it listen there.

    Args:
        coordinator: who.
        address: of its pod.
        files: the job's certificates by the names of their files.
    """
    key_and_certificate = (files["coordinator.key"], files["coordinator.crt"])
    tls = grpc.ssl_server_credentials([key_and_certificate], files["ca.crt"], require_client_auth=True)
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    add_CoordinatorServicer_to_server(coordinator, server)  # type: ignore[no-untyped-call]
    server.add_secure_port(f"{address}:{PORT}", tls)
    await server.start()
    return server


async def _serve(directory: Path, addresses: dict[str, str]) -> tuple[list[ScriptedCoordinator], list[grpc.aio.Server]]:
    coordinators = [ScriptedCoordinator(uid) for uid in addresses]
    servers = []
    for coordinator in coordinators:
        files = {file.name: file.read_bytes() for file in (directory / coordinator.uid).iterdir()}
        servers.append(await serve(coordinator, addresses[coordinator.uid], files))
    return coordinators, servers


async def _measure(run: Run, rounds: int) -> list[float]:
    directory = run.directory / "decision"
    addresses = {
        f"job-{number}": run.address(FIRST_BLOCK + number // PER_BLOCK, 2 + number % PER_BLOCK)
        for number in range(OTHER_JOBS + 1)
    }
    for uid in addresses:
        write_certificates(directory, uid)
    async with trained(run, directory, addresses) as coordinators:
        found = []
        for number in range(rounds):
            await asyncio.sleep(PAUSE_SECONDS)
            found.append(await coordinators[0].lose(number % RANKS))
        return found


@asynccontextmanager
async def trained(
    run: Run, directory: Path, addresses: dict[str, str], kubeconfig: str = ""
) -> AsyncIterator[list[ScriptedCoordinator]]:
    """Scripted coordinators whose jobs train, below an operator's core in a process of its own.

    Where something fails, the logs of `run` are kept, and the error gets a note that says where.

    Args:
        run: of the benchmark.
        directory: with certificates for each job.
        addresses: of the coordinators, by job UID.
        kubeconfig: of the API server from which faults of nodes come; empty: from none.
    """
    coordinators, servers = await _serve(directory, addresses)
    given = directory / "given.json"
    content = {"directory": str(directory), "addresses": addresses, "kubeconfig": kubeconfig}
    given.write_text(json.dumps(content))
    core = _start_core(run, given)
    try:
        await _all_running(coordinators, 4 * PATIENCE_SECONDS)
        yield coordinators
    except Exception as error:
        error.add_note(f"logs are kept in {run.keep_logs()}")
        raise
    finally:
        core.kill()
        await asyncio.gather(*(server.stop(None) for server in servers))


async def _all_running(coordinators: Sequence[ScriptedCoordinator], seconds: float) -> None:
    try:
        await asyncio.wait_for(asyncio.gather(*(each.running.wait() for each in coordinators)), seconds)
    except TimeoutError:
        late = [f"{each.uid}: {_in_words(each.newest)}" for each in coordinators if not each.running.is_set()]
        words = f"{len(late)} of {len(coordinators)} jobs do not train within {seconds:.0f} s; newest orders: {late}"
        raise TimeoutError(words) from None


def _start_core(run: Run, given: Path) -> subprocess.Popen[bytes]:
    paths = f"{CHECKOUT}:{CHECKOUT / 'operator'}"
    command = [sys.executable, "-m", "e2e.bench.operator_core", str(given)]
    return run.spawn("operator-core", command, {"PYTHONPATH": paths})


def decisions(run: Run, rounds: int) -> list[float]:
    """Seconds from a coordinator's report to the decision back at the coordinator, one for each round."""
    return asyncio.run(_measure(run, rounds))
