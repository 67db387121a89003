"""The gRPC server at port 8899 of the pod's loopback: `Recover` and the side streams of a TaskD manager.

Nothing is negotiated, and every report is answered at once: a report that waits blocks MindIO's callback, and one that
is refused is lost after four tries within a quarter of a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from hajob.protocol import taskd_pb2 as pb
from hajob.protocol.addresses import host_port
from trainer_sidecar.agent.clock import SECOND, Clock
from trainer_sidecar.agent.settings import AgentSettings
from trainer_sidecar.agent.taskd.bridge import Bridge, Kept
from trainer_sidecar.agent.taskd.signals import KEEP_ALIVE, Signal
from trainer_sidecar.agent.taskd.table import Hold, SignalStream, StreamMemory

PORT = 8899
"""A constant of TaskD's; only the address can be chosen."""
KEPT_FILE = "taskd.json"
BIND_RETRY_SECONDS = 1.0
# A manager that is gone is noticed after seconds, so a look each second is enough.
LOOK_SECONDS = 1.0
# Work of minutes: when it begins a moment later nobody notices.
WORK_LOOK_SECONDS = 0.5
SERVER_OPTIONS = (("grpc.so_reuseport", 0),)
Context = grpc.aio.ServicerContext[Any, Any]

log = logging.getLogger(__name__)


def read_kept_file(directory: Path) -> Kept:
    """Return what an agent before this one has kept; a file that cannot be read counts as none."""
    try:
        found = json.loads((directory / KEPT_FILE).read_text())
        memory = found["memory"]
        return Kept(**{**found, "memory": StreamMemory(Hold(memory["hold"]), memory["switched"])})
    except FileNotFoundError:
        return Kept()
    except (OSError, LookupError, ValueError, TypeError):
        log.exception("what was said with TaskD before is not known: %s", KEPT_FILE)
        return Kept()


class TaskdServer:
    """Server of one pod, and the lines that it has for the coordinator.

    Attributes:
        bridge: decides what is said.
    """

    def __init__(
        self,
        settings: AgentSettings,
        clock: Clock,
        wake_report: Callable[[], None],
        report_taken_port: Callable[[int, OSError], None],
    ) -> None:
        self._file = settings.directory / KEPT_FILE
        self._address = address = settings.local_address
        self._clock = clock
        self._wake_report = wake_report
        self._report_taken_port = report_taken_port
        kept = read_kept_file(settings.directory)
        self._stream = SignalStream(settings.ranks_per_node, kept.memory)
        self.bridge = Bridge(self._stream, address, self._add_line_for_coordinator, kept)
        self._lines: list[str] = []
        self._signals: asyncio.Queue[Signal] | None = None  # of the manager that hears
        self._news = asyncio.Event()

    # -- the coordinator ------------------------------------------------------------------------------------------

    def begin_coordinator_stream(self) -> None:
        """Begin with another stream of a coordinator: it is told everything anew."""
        self._lines.clear()
        self.bridge.greet_coordinator(self._clock.now())

    def apply_line(self, line: str) -> None:
        """Take a line of the coordinator's."""
        try:
            self.bridge.apply_call(json.loads(line), self._clock.now())
        except (ValueError, KeyError, TypeError):
            log.exception("a call of the coordinator's is not understood: %.200s", line)
        self._news.set()

    def take_lines(self) -> list[str]:
        """Return the lines for the coordinator, each once."""
        taken, self._lines = self._lines, []
        return taken

    def _add_line_for_coordinator(self, message: dict[str, Any]) -> None:
        self._lines.append(json.dumps(message, separators=(",", ":")))
        self._save_what_is_kept()
        self._wake_report()

    def _save_what_is_kept(self) -> None:
        newer = self._file.with_suffix(".new")
        try:
            newer.write_text(json.dumps(dataclasses.asdict(self.bridge.kept)))
            newer.replace(self._file)
        except OSError:
            log.exception("what was said with TaskD is not kept, a restart of this agent would forget it")

    # -- life -----------------------------------------------------------------------------------------------------

    async def serve_for_ever(self) -> None:
        """Listen, send signals when they are due, and look whether the manager is still there."""
        server = await self._start_listening()
        log.info("TaskD is served at %s:%d", self._address, PORT)
        self.bridge.resume_service(self._now_in_seconds())
        try:
            while True:
                self._news.clear()
                if self._signals is not None:
                    signal = self._stream.take_due_signal(self._now_in_seconds())
                    if signal is not None:
                        log.info("to TaskD: %s", signal)
                        self._signals.put_nowait(signal)
                self.bridge.check_manager(self._now_in_seconds())
                self.bridge.give_settled_answers(self._now_in_seconds())
                await self._wait_for_news()
        finally:
            await server.stop(grace=0)

    async def _wait_for_news(self) -> None:
        signal = self._stream.wait_seconds(self._now_in_seconds()) if self._signals is not None else None
        waits = [one for one in (signal, self.bridge.wait_seconds(self._now_in_seconds())) if one is not None]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min([*waits, LOOK_SECONDS])):
                await self._news.wait()

    async def _start_listening(self) -> grpc.aio.Server:
        while True:
            server = grpc.aio.server(options=SERVER_OPTIONS)
            server.add_generic_rpc_handlers((self._recover_service(), self._trace_service()))
            try:
                if server.add_insecure_port(host_port(self._address, PORT)):
                    await server.start()
                    return server
                problem = OSError(f"{self._address}:{PORT} cannot be listened on")
            except RuntimeError as error:
                problem = OSError(str(error))
            self._report_taken_port(PORT, problem)
            await asyncio.sleep(BIND_RETRY_SECONDS)

    def _now_in_seconds(self) -> float:
        return self._clock.now() / SECOND

    # -- the services -----------------------------------------------------------------------------------------------

    def _recover_service(self) -> grpc.GenericRpcHandler:
        bridge = self.bridge
        handlers = {
            name: _unary_handler(request, self._answer_report(take))
            for name, request, take in (
                ("Init", pb.Client, None),
                ("Register", pb.Client, None),
                ("HealthCheck", pb.Client, None),
                ("ReportProcessFault", pb.ProcessFault, bridge.report_process_fault),
                ("ReportStopComplete", pb.StopComplete, bridge.report_stop_complete),
                ("ReportRecoverStrategy", pb.Strategies, bridge.report_offered_strategies),
                ("ReportRecoverStatus", pb.Result, bridge.report_strategy_result),
                ("ReplySwitchNicResult", pb.RailResult, bridge.report_switched_rails),
                ("ReplyStressTestResult", pb.StressResult, bridge.report_stress_test),
            )
        }
        handlers["SubscribeProcessManageSignal"] = _stream_handler(self._send_signals)
        handlers["SubscribeNotifySwitch"] = _stream_handler(self._stream_of_work(bridge.take_rail_switch))
        handlers["SubscribeNotifyExecStressTest"] = _stream_handler(self._stream_of_work(bridge.take_stress_test))
        return grpc.method_handlers_generic_handler("Recover", handlers)

    @staticmethod
    def _trace_service() -> grpc.GenericRpcHandler:
        """Build the service whose stream stays silent: an empty message on it ends the manager."""
        handlers = {"SubscribeDataTraceSwitch": _stream_handler(_hold_stream_open)}
        return grpc.method_handlers_generic_handler("TrainingDataTrace", handlers)

    def _answer_report(self, take: Callable[[Any, int], None] | None) -> Callable[[Any, Any], Any]:
        async def answer_report(request: Message, _: Context) -> pb.Answer:
            if take is not None:
                log.info("TaskD: %s", " ".join(str(request).split()))
                take(request, self._clock.now())
                self._news.set()
            return pb.Answer()

        return answer_report

    @staticmethod
    def _stream_of_work(take: Callable[[], Message | None]) -> Callable[[Any, Any], AsyncIterator[Message]]:
        """Return what sends the work of pauses on a side stream, each once, and holds the stream open between them."""

        async def send_work(_request: pb.Client, _context: Context) -> AsyncIterator[Message]:
            while True:
                message = take()
                if message is not None:
                    log.info("to TaskD: %s", " ".join(str(message).split()))
                    yield message
                await asyncio.sleep(WORK_LOOK_SECONDS)

        return send_work

    async def _send_signals(self, request: pb.Client, context: Context) -> AsyncIterator[pb.ManageSignal]:
        """Send the manager its signals, as long as it hears; a manager that may be told nothing is only held."""
        may_hear = self.bridge.note_subscriber(context.peer(), request.job)
        log.info(
            "a TaskD manager has subscribed from %s%s", context.peer(), "" if may_hear else ", and is told nothing"
        )
        yield pb.ManageSignal(job=request.job, type=KEEP_ALIVE)
        if not may_hear:
            await asyncio.Event().wait()
        signals = self._signals = asyncio.Queue()
        self._news.set()
        try:
            while True:
                message = (await signals.get()).to_message()
                message.job = request.job
                yield message
        finally:
            if self._signals is signals:
                self._signals = None
                self.bridge.note_left_subscriber(self._now_in_seconds())


async def _hold_stream_open(_request: pb.Client, _context: Context) -> AsyncIterator[pb.Answer]:
    """Hold a stream open and send nothing: without it TaskD asks for it anew every second or two."""
    await asyncio.Event().wait()
    yield pb.Answer()


def _unary_handler(request: type[Message], answer: Callable[[Any, Any], Any]) -> grpc.RpcMethodHandler[Any, Any]:
    return grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=request.FromString, response_serializer=pb.Answer.SerializeToString
    )


def _stream_handler(send: Callable[[Any, Any], AsyncIterator[Any]]) -> grpc.RpcMethodHandler[Any, Any]:
    return grpc.unary_stream_rpc_method_handler(
        send,
        request_deserializer=pb.Client.FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )
