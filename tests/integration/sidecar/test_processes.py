"""Crashes of Hajob's own processes, and callers that must not be heard."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from hajob.protocol import sidecar_pb2 as pb
from hajob.protocol import sidecar_pb2_grpc as rpc
from tests.integration.sidecar.policy import InPlacePolicy
from tests.integration.sidecar.standstill import watched
from tests.rigs.sidecar_jobs import JOB, Job, Operator
from tests.rigs.sidecar_recoveries import finish_undisturbed
from trainer_sidecar.coordinator.shell import clock

NewJob = Callable[..., Job]


async def test_coordinator_crash_in_an_incident_goes_on(new_job: NewJob, undisturbed: Path) -> None:
    job = new_job()
    await job.start()
    await job.until_step(5)
    job.kill(3)
    await job.operator.milestone(pb.STOPPED)
    await job.restart_coordinator()
    await job.operator.until(lambda: job.operator.state.conversation == "Stopped", "its takeover")
    assert job.operator.state.incarnation == 2
    order = pb.Order(incarnation=2, revision=1, action=pb.IN_PLACE, lost_ranks=[3], restart_ranks=[3])
    job.operator.order(order)
    result = await job.operator.milestone(pb.RESULT)
    assert result.result_code == 0
    await finish_undisturbed(job, undisturbed, {3})


async def test_coordinator_crash_at_rest_keeps_the_job_recoverable(new_job: NewJob, undisturbed: Path) -> None:
    job = new_job()
    await job.start()
    await job.until_step(5)
    await job.restart_coordinator()
    await job.operator.until(lambda: job.operator.state.controller_ready, "its takeover")
    InPlacePolicy(job)
    job.kill(2)
    result = await job.operator.milestone(pb.RESULT)
    assert result.result_code == 0
    await finish_undisturbed(job, undisturbed, {2})


async def test_a_lost_container_is_said_and_the_training_goes_on(new_job: NewJob, undisturbed: Path) -> None:
    job = new_job()
    await job.start()
    await job.until_step(5)
    async with watched() as standstill:
        killed = clock.now()
        job.controller.send(signal.SIGKILL)
        await job.fact(pb.CONTROLLER_LOST)
    told = next(at for fact, at in job.operator.arrivals if fact.kind == pb.CONTROLLER_LOST)
    seconds = told - killed - standstill.seconds(killed, told)
    assert seconds < 3.0, "the specification's bound for CoordinatorReady"
    assert not job.operator.state.controller_ready
    assert job.operator.state.conversation == "Lost"
    await finish_undisturbed(job, undisturbed, set())


async def _refusal(job: Job, name: str, hello: pb.Hello) -> grpc.aio.AioRpcError:
    certificate, key = job.authority.issue(name)
    secret = grpc.ssl_channel_credentials(job.authority.pem, key, certificate)
    options = (("grpc.ssl_target_name_override", f"coordinator.{JOB}"), ("grpc.enable_http_proxy", 0))
    async with grpc.aio.secure_channel(f"{job.coordinator_address}:7070", secret, options) as channel:
        call: Any = rpc.CoordinatorStub(channel).Converse()  # type: ignore[no-untyped-call]
        with contextlib.suppress(grpc.aio.AioRpcError):  # the refusal may come first
            await call.write(pb.OperatorMessage(hello=hello))
        return await _status(call)


async def _status(call: Any) -> grpc.aio.AioRpcError:
    """How the server ended a stream."""
    with contextlib.suppress(grpc.aio.AioRpcError):
        while await call.read() is not grpc.aio.EOF:
            pass
    details = await call.details()
    return grpc.aio.AioRpcError(await call.code(), grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


async def test_only_the_operator_with_the_highest_fence_is_heard(new_job: NewJob) -> None:
    job = new_job()
    job.operator.fence = 7
    job.start_coordinator()
    job.operator.dial()
    await job.operator.until(lambda: job.operator.hello is not None, "the coordinator's hello")
    assert job.operator.hello is not None
    assert (job.operator.hello.token, job.operator.hello.pod_uid) == ("a token", "uid-coordinator")
    hello = pb.Hello(version=1, job_uid=JOB, fence=9)
    stranger = await _refusal(job, f"agent.{JOB}", hello)
    # INTERNAL is what the stranger's own gRPC says when the refusal overtakes its first message.
    assert stranger.code() in {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INTERNAL}
    late = await _refusal(job, f"operator.{JOB}", pb.Hello(version=1, job_uid=JOB, fence=6))
    assert late.code() is grpc.StatusCode.ABORTED
    foreign = await _refusal(job, f"operator.{JOB}", pb.Hello(version=1, job_uid="another", fence=9))
    assert foreign.code() is grpc.StatusCode.FAILED_PRECONDITION
    other = await _refusal(job, f"operator.{JOB}", pb.Hello(version=99, job_uid=JOB, fence=9))
    assert other.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_taken_port_is_named(new_job: NewJob) -> None:
    job = new_job()
    with socket.create_server((job.coordinator_address, 8000)):
        job.start_coordinator()
        job.operator.dial()
        job.assign()
        job.operator.order(pb.Order(incarnation=1, action=pb.START))
        fact = await job.fact(pb.PORT_TAKEN)
    assert f"port 8000 at {job.coordinator_address}" in fact.message
    await job.operator.until(lambda: job.operator.state.controller_problem == "", "the port, free again")


async def test_six_seconds_without_a_lease_cost_nothing(new_job: NewJob, undisturbed: Path) -> None:
    """The coordinator stands still: no grants, the gates hold, nobody is taken for dead afterwards."""
    job = new_job()
    await job.start()
    await job.until_step(5)
    job.coordinator.send(signal.SIGSTOP)
    await asyncio.sleep(6.0)  # the time itself is what is tested
    job.coordinator.send(signal.SIGCONT)
    step = job.operator.state.step
    await job.until_step(step + 1)
    assert job.operator.facts == []
    InPlacePolicy(job)
    job.kill(1)
    result = await job.operator.milestone(pb.RESULT)
    assert result.result_code == 0
    await finish_undisturbed(job, undisturbed, {1})


async def test_new_leader_hears_what_the_old_one_had_not(new_job: NewJob, undisturbed: Path) -> None:
    job = new_job()
    await job.start()
    await job.until_step(5)
    await job.operator.hang_up()
    job.kill(3)
    leader = Operator(job.coordinator_address, job.authority, fence=2)
    leader.assignment, leader.current = job.operator.assignment, job.operator.current
    job.operator = leader
    leader.dial()
    fact = await job.fact(pb.PROCESS_EXITED)
    assert list(fact.ranks) == [3]
    await leader.milestone(pb.STOPPED)
    order = pb.Order(incarnation=leader.state.incarnation, revision=1, action=pb.IN_PLACE)
    order.lost_ranks.append(3)
    order.restart_ranks.append(3)
    leader.order(order)
    result = await leader.milestone(pb.RESULT)
    assert result.result_code == 0
    await finish_undisturbed(job, undisturbed, {3})


async def test_pause_and_continue(new_job: NewJob, undisturbed: Path) -> None:
    job = new_job()
    operator = job.operator
    await job.start()
    await job.until_step(5)
    operator.order(pb.Order(incarnation=2, revision=1, action=pb.PAUSE, timeout_seconds=60))
    await operator.until(lambda: operator.state.conversation == "Paused", "the pause")
    step = operator.state.step
    operator.order(pb.Order(incarnation=2, revision=2, action=pb.CONTINUE))
    await operator.until(lambda: operator.state.conversation == "Serving", "the end of the pause")
    await job.until_step(step + 5)
    await finish_undisturbed(job, undisturbed, set())
