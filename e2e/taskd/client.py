"""The manager as gRPC client of whoever listens at port 8899: one long connection, a new one for each report."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import grpc

from e2e.protocols import load_protocol
from e2e.taskd.plugins import Signal
from e2e.taskd.traits import has_trait
from e2e.taskd.wire import PORT, PROTOCOL, stream_call, unary_call

AGAIN_SECONDS: Final = 1.0
OM_AGAIN_SECONDS: Final = 2.0
TRIES: Final = 4
ROLE: Final = "taskd"
BACKOFF: Final = (("grpc.initial_reconnect_backoff_ms", 1000), ("grpc.max_reconnect_backoff_ms", 120000))
LOCAL: Final = (("grpc.use_local_subchannel_pool", 1),)


def log(text: str) -> None:
    """Say something in the manager's log, which is its stderr."""
    print(f"[taskd manager] {text}", flush=True)


class Client:
    """All calls of one manager; `take` gets each signal, in its stream's thread."""

    def __init__(self, address: str, job: str, take: Callable[[Signal], None]) -> None:
        self._target = f"[{address}]:{PORT}" if ":" in address else f"{address}:{PORT}"
        (self._pb,) = load_protocol(PROTOCOL, "pb2")
        self._take = take
        self._info = self._pb.ClientInfo(jobId=job, role=ROLE)
        self._job = job

    def start_streams(self) -> None:
        """Open all streams, each in a thread of its own, for ever."""
        channel = grpc.insecure_channel(self._target, options=BACKOFF if has_trait("backoff") else ())
        for run in (self._run_signals, self._run_switches, self._run_tests, self._run_trace):
            threading.Thread(target=run, args=(channel,), daemon=True).start()

    def _run_signals(self, channel: grpc.Channel) -> None:
        pb = self._pb
        init = unary_call(channel, "/Recover/Init", pb.Status)
        register = unary_call(channel, "/Recover/Register", pb.Status)
        subscribe = stream_call(channel, "/Recover/SubscribeProcessManageSignal", pb.ProcessManageSignal)
        while True:
            with contextlib.suppress(grpc.RpcError):
                if init(self._info).code == 0 and register(self._info).code == 0:
                    for message in subscribe(self._info):
                        self._take(_signal_of(message))
            time.sleep(AGAIN_SECONDS)

    def _run_switches(self, channel: grpc.Channel) -> None:
        self._hold_stream(channel, "/Recover/SubscribeNotifySwitch", self._pb.SwitchRankList, self._answer_switch)

    def _run_tests(self, channel: grpc.Channel) -> None:
        path = "/Recover/SubscribeNotifyExecStressTest"
        self._hold_stream(channel, path, self._pb.StressTestRankParams, self._answer_test)

    def _hold_stream(self, channel: grpc.Channel, path: str, kind: Any, answer: Callable[[Any], None]) -> None:  # noqa: ANN401 - generated messages
        while True:
            with contextlib.suppress(grpc.RpcError):
                for message in stream_call(channel, path, kind)(self._info):
                    answer(message)
            time.sleep(OM_AGAIN_SECONDS)

    def _run_trace(self, channel: grpc.Channel) -> None:
        path = "/TrainingDataTrace/SubscribeDataTraceSwitch"
        while True:
            with contextlib.suppress(grpc.RpcError):
                for message in stream_call(channel, path, self._pb.DataStatusRes)(self._info):
                    if not message.HasField("profilingSwitch") and has_trait("empty_trace_kills"):
                        log("SIGABRT: nil pointer dereference")
                        os.abort()
            time.sleep(AGAIN_SECONDS)

    def _answer_switch(self, message: Any) -> None:  # noqa: ANN401 - a generated message
        log(f"switch nic: {dict(zip(message.rankID, message.op, strict=False))}")
        self._reply("ReplySwitchNicResult", self._pb.SwitchResult(jobId=self._job, result=True))

    def _answer_test(self, message: Any) -> None:  # noqa: ANN401 - a generated message
        pb, codes = self._pb, dict(word.split("=") for word in os.environ.get("TASKD_STRESS", "").split(",") if word)
        result = pb.StressTestResult(jobId=self._job)
        for rank, wanted in message.stressParam.items():
            for operation in wanted.ops:
                code = codes.get(rank, "0")
                result.stressResult[rank].rankResult[str(operation)].CopyFrom(
                    pb.StressTestOpResult(code=code, result="played")
                )
        log(f"stress test of ranks {sorted(message.stressParam)}")
        self._reply("ReplyStressTestResult", result)

    def _reply(self, name: str, message: Any) -> None:  # noqa: ANN401 - a generated message
        for _ in range(10):
            if self._send_once(name, message):
                return
            time.sleep(AGAIN_SECONDS)

    def _send_once(self, name: str, message: Any) -> bool:  # noqa: ANN401 - a generated message
        with grpc.insecure_channel(self._target, options=LOCAL) as channel:
            try:
                unary_call(channel, f"/Recover/{name}", self._pb.Status)(message)
            except grpc.RpcError as error:
                log(f"{name} failed: {error.code()}")
                return False
        return True

    # -- reports of MindIO's callbacks; MindIO waits for each ----------------------------------------------------------

    def report_fault(self, ranks: Mapping[int, int]) -> None:
        """Send ReportProcessFault."""
        self._report("ReportProcessFault", self._pb.ProcessFaultRequest(jobId=self._job, faultRanks=self._ranks(ranks)))

    def report_stop(self, code: int, text: str, ranks: Mapping[int, int]) -> None:
        """Send ReportStopComplete."""
        status = self._pb.Status(code=code, info=text)
        message = self._pb.StopCompleteRequest(jobId=self._job, status=status, faultRanks=self._ranks(ranks))
        self._report("ReportStopComplete", message)

    def report_strategies(self, ranks: Mapping[int, int], strategies: list[str]) -> None:
        """Send ReportRecoverStrategy."""
        message = self._pb.RecoverStrategyRequest(jobId=self._job, faultRanks=self._ranks(ranks), strategies=strategies)
        self._report("ReportRecoverStrategy", message)

    def report_result(self, code: int, text: str, ranks: Mapping[int, int], strategy: str) -> None:
        """Send ReportRecoverStatus."""
        message = self._pb.RecoverStatusRequest(
            jobId=self._job,
            status=self._pb.Status(code=code, info=text),
            strategy=strategy,
            isolateRankIds=[str(rank) for rank in ranks],
        )
        self._report("ReportRecoverStatus", message)

    def _ranks(self, ranks: Mapping[int, int]) -> list[Any]:
        return [self._pb.FaultRank(rankId=str(rank), faultType=str(kind)) for rank, kind in ranks.items()]

    def _report(self, name: str, message: Any) -> None:  # noqa: ANN401 - a generated message
        tries = TRIES if has_trait("reports_lost") else 1000
        for _ in range(tries):
            if self._send_once(name, message):
                return
            time.sleep(0.06 if has_trait("reports_lost") else AGAIN_SECONDS)
        log(f"{name} is dropped")


def _signal_of(message: Any) -> Signal:  # noqa: ANN401 - a generated message
    ranks = {
        int(one.rankId): int(one.faultType)
        for one in message.faultRanks
        if one.rankId.isdecimal() and one.faultType.isdecimal()
    }
    return Signal(
        message.signalType,
        message.uuid,
        tuple(message.actions),
        ranks,
        message.changeStrategy,
        message.timeout,
        tuple(message.nodeRankIds),
        message.extraParams,
    )
