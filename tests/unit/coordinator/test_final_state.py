"""A coordinator whose pod is ended says how the attempt ended before it goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from e2e.cluster.loopback import own_address, own_port
from hajob.protocol import sidecar_pb2 as pb
from hajob.protocol import sidecar_pb2_grpc as rpc
from hajob.wire.tls import read_tls_files as read_certificates
from tests.rigs.certificates import Authority
from tests.rigs.rank_pod import PATIENCE
from trainer_sidecar.coordinator.shell.clock import now
from trainer_sidecar.coordinator.shell.hub import Hub
from trainer_sidecar.coordinator.shell.settings import read_settings
from trainer_sidecar.coordinator.state.steps import Steps

JOB = "3f1d2c3e-job"


class Running:
    """A hub without agents, and its operator."""

    def __init__(self, directory: Path) -> None:
        authority, address = Authority(), own_address()
        settings = {
            "POD_IP": address,
            "POD_NAME": "job-coordinator",
            "POD_UID": "uid-coordinator",
            "HAJOB_COORDINATOR_PORT": str(own_port()),
            "HAJOB_DIR": str(directory),
            "HAJOB_TLS_DIR": str(authority.write(directory / "coordinator", f"coordinator.{JOB}")),
            "HAJOB_JOB_UID": JOB,
            "MINDIO_WAIT_MINDX_TIME": "120",
        }
        self.hub, self.ending = Hub(read_settings(settings)), asyncio.Event()
        self.task = asyncio.create_task(self.hub.serve_until(self.ending))
        tls = grpc.ssl_channel_credentials(
            *read_certificates(authority.write(directory / "operator", f"operator.{JOB}"))
        )
        options = (("grpc.ssl_target_name_override", f"coordinator.{JOB}"), ("grpc.enable_http_proxy", 0))
        target = f"{address}:{settings['HAJOB_COORDINATOR_PORT']}"
        self.channel = grpc.aio.secure_channel(target, tls, options=options)
        stub = rpc.CoordinatorStub(self.channel)  # type: ignore[no-untyped-call]
        self.call: Any = stub.Converse(wait_for_ready=True)
        self.milestones: list[pb.Milestone] = []
        self.is_heard = asyncio.Event()

    async def converse(self) -> None:
        """Say hello, and read to the end."""
        await self.call.write(pb.OperatorMessage(hello=pb.Hello(version=1, highest_version=1, job_uid=JOB, fence=1)))
        while (message := await self.call.read()) is not grpc.aio.EOF:
            self.is_heard.set()
            self.milestones.extend(message.report.milestones)

    def stop_the_attempt(self) -> None:
        """Its last step is told 0.2 s from now."""
        job, steps = self.hub.core.job, Steps()
        steps.note_printed_step(0, 41, now(), 1)
        job.ending.gather_before_end(steps, now(), 1, job.attempt)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    made = Running(tmp_path)
    yield made
    made.ending.set()
    await made.task
    await made.channel.close()


async def test_the_last_step_is_told_before_the_pod_goes(running: Running) -> None:
    conversation = asyncio.create_task(running.converse())
    async with asyncio.timeout(PATIENCE):
        await running.is_heard.wait()
    running.stop_the_attempt()
    running.ending.set()
    async with asyncio.timeout(PATIENCE):
        await conversation
    assert [(mark.kind, mark.step) for mark in running.milestones] == [(pb.STEP_BEFORE, 41)]
