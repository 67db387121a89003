"""One manager of the real TaskD, two agents of it, and the server at port 8899 that sends it signals."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self

import grpc

from e2e.bootstrap.paths import CHECKOUT
from e2e.protocols import load_protocol
from e2e.taskd.lab.deeds import VARIABLE, Deed, read_deeds
from e2e.taskd.wire import PORT, PROTOCOL

SECONDS: Final = 30.0
SETTLED_SECONDS: Final = 0.6
"""From a signal to what follows it takes up to 0.3 s; what has not come by then does not come."""
LOOK_SECONDS: Final = 0.02
NODES: Final = ("0", "1")
HELD_STREAMS: Final = ("SubscribeNotifySwitch", "SubscribeNotifyExecStressTest")
ANSWERED: Final = (
    "Init",
    "Register",
    "ReportProcessFault",
    "ReportStopComplete",
    "ReportRecoverStrategy",
    "ReportRecoverStatus",
)


class Lab:
    """A manager at an address, and all that it did; a context that ends its processes."""

    def __init__(self, address: str, directory: Path, process_recover: bool) -> None:
        self._address, self._directory = address, directory
        self._deeds = directory / "deeds"
        (self._pb,) = load_protocol(PROTOCOL, "pb2")
        self._signals: queue.Queue[Any] = queue.Queue()
        self._pool = ThreadPoolExecutor(max_workers=16)
        self._server = grpc.server(self._pool, options=(("grpc.so_reuseport", 0),))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        paths = (os.environ["HAJOB_TASKD"], CHECKOUT / "e2e/taskd/lab/package", CHECKOUT)
        recover = {"PROCESS_RECOVER": "on"} if process_recover else {}
        self._environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "GOMAXPROCS": "1",
            "TTP_LOG_STDOUT": "1",
            "MINDX_SERVER_IP": address,
            "MINDX_TASK_ID": "lab-of-taskd",
            "POD_IP": address,
            "TTP_PORT": "8000",
            "WORLD_SIZE": "4",
            "LOCAL_WORLD_SIZE": "2",
            VARIABLE: str(self._deeds),
            **recover,
        }

    def __enter__(self) -> Self:
        handlers = {name: _unary(self._answer) for name in ANSWERED}
        handlers |= {name: _stream(self._hold_stream) for name in HELD_STREAMS}
        handlers["SubscribeProcessManageSignal"] = _stream(self._send_signals)
        trace = {"SubscribeDataTraceSwitch": _stream(self._hold_stream)}
        for service, methods in (("Recover", handlers), ("TrainingDataTrace", trace)):
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        self._server.add_insecure_port(f"{self._address}:{PORT}")
        self._server.start()
        try:
            self._start("manager", str(CHECKOUT / "e2e/trainer/image/manager.py"))
            self.wait(("mindio", "start"))
            for node in NODES:
                self._start_agent(node, int(node))
            self.wait(*((f"agent {node}", "registered") for node in NODES))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for name in list(self._processes):
            self._kill(name)
        self._signals.put(None)
        self._server.stop(grace=0).wait()

    def register(self, node: str) -> None:
        """Register an agent, in the place of the one that has registered for this node."""
        self._kill(f"agent {node}")
        since = self.seen()
        self._start_agent(node, since + len(NODES))
        self.wait((f"agent {node}", "registered"), since=since)

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name)
        assert process.stdin is not None
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.stdin.close()
        process.wait()

    def _start_agent(self, node: str, number: int) -> None:
        """Start an agent; its proxy has an address of its own."""
        prefix, _, last = self._address.rpartition(".")
        loopback = f"{prefix}.{int(last) + 100 + number}"
        self._start(f"agent {node}", "-m", "e2e.taskd.lab.agent", node, self._address, loopback)

    def _start(self, name: str, *words: str) -> None:
        own = self._directory / name.replace(" ", "-")
        own.mkdir(mode=0o750, exist_ok=True)
        with (own / "output").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                [sys.executable, *words],
                cwd=own,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def send(self, fields: Mapping[str, Any]) -> None:
        """Send a signal, named as in the vectors."""
        given = dict(fields)
        ranks = [
            self._pb.FaultRank(rankId=str(rank), faultType=str(kind)) for rank, kind in given.get("ranks", {}).items()
        ]
        self._signals.put(
            self._pb.ProcessManageSignal(
                uuid=given.get("uuid", ""),
                jobId="lab-of-taskd",
                signalType=given["type"],
                actions=given.get("actions", ()),
                faultRanks=ranks,
                changeStrategy=given.get("strategy", ""),
                timeout=given.get("timeout", 0),
                nodeRankIds=given.get("nodes", ()),
                extraParams=given.get("extra", ""),
            )
        )

    def report_fault(self, node: str, ranks: list[int], seconds_ago: int) -> None:
        """Let an agent tell of workers that have ended."""
        pipe = self._processes[f"agent {node}"].stdin
        assert pipe is not None
        pipe.write(json.dumps({"ranks": ranks, "seconds_ago": seconds_ago}).encode() + b"\n")
        pipe.flush()

    def seen(self) -> int:
        """How many deeds there are."""
        return len(read_deeds(self._deeds))

    def wait(self, *wanted: Deed, since: int = 0) -> list[Deed]:
        """Wait until all of these were done, each as often as it is named; returns the deeds since.

        Raises:
            AssertionError: they were not, in time.
        """
        end = time.monotonic() + SECONDS
        while True:
            found = read_deeds(self._deeds)[since:]
            if all(found.count(one) >= wanted.count(one) for one in wanted):
                return found
            if time.monotonic() > end:
                raise AssertionError(f"{wanted} were wanted, {found} came; see {self._directory}")
            time.sleep(LOOK_SECONDS)

    def deeds_when_settled(self, since: int) -> list[Deed]:
        """What was done by the time at which all that follows a signal has come."""
        time.sleep(SETTLED_SECONDS)
        return read_deeds(self._deeds)[since:]

    # -- the server ---------------------------------------------------------------------------------------------------

    def _answer(self, _request: object, _context: object) -> Any:  # noqa: ANN401 - a generated message
        return self._pb.Status()

    def _hold_stream(self, _request: object, context: grpc.ServicerContext) -> Iterator[Any]:
        while context.is_active():
            time.sleep(SETTLED_SECONDS)
        yield from ()

    def _send_signals(self, _request: object, context: grpc.ServicerContext) -> Iterator[Any]:
        while context.is_active() and (message := self._signals.get()) is not None:
            yield message


def _unary(answer: Any) -> Any:  # noqa: ANN401 - types of grpc
    return grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=bytes, response_serializer=lambda one: one.SerializeToString()
    )


def _stream(send: Any) -> Any:  # noqa: ANN401 - types of grpc
    return grpc.unary_stream_rpc_method_handler(
        send, request_deserializer=bytes, response_serializer=lambda one: one.SerializeToString()
    )
