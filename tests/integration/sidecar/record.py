"""Records what operator, coordinator and agents of this version say to each other, byte by byte.

    python -m tests.integration.sidecar.record DIRECTORY

A training of four ranks starts, loses rank 3, repairs it in place and ends. Between the parties stand relays that speak
TLS to both sides and understand nothing of what they pass on. What they wrote down is played to later versions
(tests/unit/protocol): once a version is released, its recordings are kept for as long as its sidecars may be around.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from hajob.protocol import sidecar_pb2 as pb
from tests.integration.sidecar.policy import InPlacePolicy
from tests.rigs.certificates import Authority
from tests.rigs.sidecar_jobs import JOB, Job, Pod

ARGUMENTS = ["--tensor-model-parallel-size", "1", "--train-iters", "40", "--step-time-ms", "100"]
OPTIONS = (("grpc.so_reuseport", 0), ("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))


class Relay:
    """Stands between the one that dials and the one that answers, as both of them, and keeps their words."""

    def __init__(self, service: str, dialler: str, server: str, authority: Authority) -> None:
        self._method = f"/hajob.sidecar.v1.{service}/Converse"
        self._service = f"hajob.sidecar.v1.{service}"
        self._names = (dialler, server)
        self._authority = authority
        self._server = grpc.aio.server(options=OPTIONS)
        self._begin = time.monotonic()
        self.lines: list[str] = []

    async def start(self, listen: str, target: str) -> None:
        """Serve at `listen` what `target` (host:port) says."""
        self._target = target
        handler: Any = grpc.stream_stream_rpc_method_handler(self._converse, None, None)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(self._service, {"Converse": handler}),)
        )
        certificate, key = self._authority.issue(f"{self._names[1]}.{JOB}")
        tls = grpc.ssl_server_credentials([(key, certificate)], self._authority.pem, require_client_auth=True)
        self._server.add_secure_port(listen, tls)
        await self._server.start()

    async def stop(self) -> None:
        """Hang up."""
        await self._server.stop(None)

    def _keep(self, who: str, message: bytes) -> bytes:
        seconds = round(time.monotonic() - self._begin, 3)
        words = {"seconds": seconds, "from": who, "message": base64.b64encode(message).decode()}
        self.lines.append(json.dumps(words))
        return message

    async def _converse(self, requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
        dialler, server = self._names
        if len({json.loads(line)["from"] for line in self.lines}) < 2:
            self.lines.clear()  # nobody answered: the server was not there yet
        certificate, key = self._authority.issue(f"{dialler}.{JOB}")
        tls = grpc.ssl_channel_credentials(self._authority.pem, key, certificate)
        options = (*OPTIONS, ("grpc.ssl_target_name_override", f"{server}.{JOB}"))

        async def passed_on() -> AsyncIterator[bytes]:
            async for message in requests:
                yield self._keep(dialler, message)

        async with grpc.aio.secure_channel(self._target, tls, options=options) as channel:
            try:
                call: Any = channel.stream_stream(self._method)
                async for message in call(passed_on()):
                    yield self._keep(server, message)
            except grpc.aio.AioRpcError:
                return


class RecordedJob(Job):
    """A job whose pods are dialled at their relays."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 2, 2, ARGUMENTS)
        self.relays: dict[str, Relay] = {}

    async def record(self) -> None:
        """The whole life."""
        operator = Relay("Coordinator", "operator", "coordinator", self.authority)
        self.relays["operator-coordinator"] = operator
        at = next(self._addresses)
        await operator.start(f"{at}:7070", f"{self.coordinator_address}:7070")
        self.operator.address = at
        self.start_coordinator()
        for node_rank in range(self.nodes):
            await self._relayed(self.start_pod(node_rank, 1))
        self.operator.dial()
        self.assign()
        self.operator.order(pb.Order(incarnation=1, action=pb.START))
        await self.operator.milestone(pb.STARTED)
        await self.until_step(5)
        InPlacePolicy(self)
        self.kill(3)
        await self.operator.milestone(pb.RESULT)
        await self.operator.milestone(pb.FINISHED_ALL)
        await self.operator.hang_up()

    async def _relayed(self, pod: Pod) -> None:
        relay = self.relays[f"coordinator-agent-{pod.node_rank}"] = Relay(
            "Agent", "coordinator", "agent", self.authority
        )
        at, pod.address = pod.address, next(self._addresses)
        await relay.start(f"{pod.address}:7071", f"{at}:7071")


async def main(directory: Path) -> None:
    """Record, and write one file for each conversation."""
    with tempfile.TemporaryDirectory() as scratch:
        job = RecordedJob(Path(scratch))
        try:
            await job.record()
        finally:
            await job.stop()
            for relay in job.relays.values():
                await relay.stop()
    directory.mkdir(parents=True, exist_ok=True)
    del job.relays["coordinator-agent-0"]  # one agent's words are enough
    for name, relay in job.relays.items():
        (directory / f"{name}.jsonl").write_text("\n".join(relay.lines) + "\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
