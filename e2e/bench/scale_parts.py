"""Around a coordinator whose scale is measured: the operator, the controller host, processes of light agents."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from hajob.protocol import sidecar_pb2 as pb
from hajob.protocol import sidecar_pb2_grpc, versions
from trainer_sidecar import controller_protocol
from trainer_sidecar.coordinator.shell.clock import now

JOB = "scale"
COORDINATOR_PORT = 7070
PATIENCE_SECONDS = 180.0
Stream = grpc.aio.StreamStreamCall[pb.OperatorMessage, pb.CoordinatorMessage]


class OperatorProcess:
    """Says assignment and order, answers the fact of a lost node at once, acknowledges."""

    def __init__(self, address: str, tls: Path) -> None:
        authority, key, certificate = ((tls / f).read_bytes() for f in ("ca.crt", "operator.key", "operator.crt"))
        self._secret = grpc.ssl_channel_credentials(authority, key, certificate)
        self._address = f"{address}:{COORDINATOR_PORT}"
        self._outgoing: asyncio.Queue[pb.OperatorMessage] = asyncio.Queue()
        self.state = pb.CoordinatorState()
        self.facts: list[pb.Fact] = []
        self.milestones: list[pb.Milestone] = []
        self.levels: list[pb.OperatorMessage] = []
        self.on_fact: Callable[[pb.Fact], None] = lambda _: None
        self._news = asyncio.Event()

    def say(self, message: pb.OperatorMessage) -> None:
        """A level, which is repeated on every new stream."""
        self.levels = [one for one in self.levels if one.WhichOneof("body") != message.WhichOneof("body")] + [message]
        self._outgoing.put_nowait(message)

    async def run(self) -> None:
        """Dial for ever."""
        options = (
            ("grpc.ssl_target_name_override", f"coordinator.{JOB}"),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", 64 << 20),
            ("grpc.max_send_message_length", 64 << 20),
        )
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                async with grpc.aio.secure_channel(self._address, self._secret, options) as channel:
                    await self._converse(channel)
            await asyncio.sleep(0.1)

    async def _converse(self, channel: grpc.aio.Channel) -> None:
        self._outgoing = asyncio.Queue()
        stub = sidecar_pb2_grpc.CoordinatorStub(channel)  # type: ignore[no-untyped-call]
        call: Stream = stub.Converse()
        await call.write(pb.OperatorMessage(hello=pb.Hello(version=versions.OURS.lowest, job_uid=JOB, fence=1)))
        for level in self.levels:
            await call.write(level)
        writer = asyncio.create_task(self._write(call))
        try:
            while isinstance(message := await call.read(), pb.CoordinatorMessage):
                if message.WhichOneof("body") == "report":
                    self._take(message.report)
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _write(self, call: Stream) -> None:
        while True:
            await call.write(await self._outgoing.get())

    def _take(self, report: pb.Report) -> None:
        self.state = report.state
        self.facts += report.facts
        self.milestones += report.milestones
        for fact in report.facts:
            self.on_fact(fact)
        self._outgoing.put_nowait(pb.OperatorMessage(acknowledge=pb.Acknowledge(sequence=report.sequence)))
        self._news.set()

    async def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for reports until it holds."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise RuntimeError(f"not within {PATIENCE_SECONDS:.0f} s: {what}") from None


@dataclass
class ControllerHost:
    """Takes every call at once, and remembers when."""

    directory: Path
    calls: dict[str, float] = field(default_factory=dict)  # when each came first
    state: dict[str, Any] = field(default_factory=lambda: {"attempt": 0, "controller": "none", "store": "none"})
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self) -> None:
        """One client after the other, as the real one."""
        listener = controller_protocol.listen_on_socket(str(self.directory), controller_protocol.SOCKET_NAME)
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(listener)
            connection.setblocking(False)
            await self._send(connection, {"event": "hello", "version": 1, "state": self.state, "log": []})
            buffer = controller_protocol.LineBuffer()
            while data := await loop.sock_recv(connection, 65536):
                at = now()
                for message in buffer.cut_messages(data):
                    await self._take(connection, message, at)

    async def _take(self, connection: socket.socket, message: dict[str, Any], at: float) -> None:
        self.calls.setdefault(message["call"], at)
        self._news.set()
        if message["call"] == "start":
            self.state = {"attempt": message["attempt"], "controller": "serving", "store": "listening"}
            await self._send(connection, {"event": "state", "state": self.state})
        else:
            answer = {"id": message["id"], "call": message["call"], "code": 0, "t": int(at * 1e9)}
            await self._send(connection, answer)

    @staticmethod
    async def _send(connection: socket.socket, message: dict[str, Any]) -> None:
        await asyncio.get_running_loop().sock_sendall(connection, controller_protocol.encode_message(message))

    async def until(self, call: str) -> float:
        """Wait until it has been called; when."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while call not in self.calls:
                self._news.clear()
                await self._news.wait()
        return self.calls[call]


class Agents:
    """The processes of agents."""

    def __init__(self, processes: list[subprocess.Popen[str]], owner: dict[str, subprocess.Popen[str]]) -> None:
        self._processes = processes
        self._owner = owner

    async def serving(self) -> None:
        """Every one listens."""
        for process in self._processes:
            line = await self._read(process)
            if line.strip() != "serving":
                raise RuntimeError("the light agents could not be started; their log says why")

    async def lose(self, uid: str) -> float:
        """This one falls silent; when it has spoken last."""
        told = json.loads(await self._ask(self._owner[uid], f"lose {uid}"))
        return float(told["lost"]) / 1e9

    def forget(self) -> None:
        """Count from now."""
        for process in self._processes:
            self._write(process, "forget")

    async def tell(self) -> dict[str, Any]:
        """What was counted, of all."""
        told = [json.loads(await self._ask(process, "tell")) for process in self._processes]
        total = {name: sum(one[name] for one in told) for name in told[0]}
        return total | {"slowest_answer": max(one["slowest_answer"] for one in told)}

    async def _ask(self, process: subprocess.Popen[str], line: str) -> str:
        self._write(process, line)
        return await self._read(process)

    @staticmethod
    def _write(process: subprocess.Popen[str], line: str) -> None:
        assert process.stdin is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()

    @staticmethod
    async def _read(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return await asyncio.to_thread(process.stdout.readline)

    def end(self) -> None:
        """None is left."""
        for process in self._processes:
            process.kill()
            process.wait()
