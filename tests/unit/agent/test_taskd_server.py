"""The server at port 8899 and the stand-in's client: signals arrive, reports become lines, work is done and told."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.loopback import own_address
from e2e.taskd.client import Client
from e2e.taskd.plugins import Signal
from tests.rigs.agent_node import pod_settings
from trainer_sidecar.agent.clock import BootClock
from trainer_sidecar.agent.taskd.server import TaskdServer
from trainer_sidecar.agent.taskd.table import Hold

SECONDS = 20.0
STOP = {"id": "c-1", "call": "stop_train", "order": 2, "arguments": {"ranks": [[3, 1]]}}
STRESS = {"id": "c-2", "call": "work", "arguments": {"work": {"request": "r", "stress": {"2": [0], "3": [0]}}}}
RAILS = {"id": "c-3", "call": "work", "arguments": {"work": {"request": "s", "rails": {"2": True}}}}


class Served:
    """A server, the stand-in's client at it, what that has heard, and the lines for the coordinator."""

    def __init__(self, directory: Path) -> None:
        settings = replace(pod_settings(), directory=directory, local_address=own_address(), is_followed=True)
        self.taken: list[OSError] = []
        self._news = asyncio.Event()
        self.server = TaskdServer(settings, BootClock(), self._news.set, lambda _port, error: self.taken.append(error))
        self._heard: asyncio.Queue[Signal] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self.client = Client(settings.local_address, "job", self._hear_signal)
        self.lines: list[dict[str, Any]] = []

    def _hear_signal(self, signal: Signal) -> None:
        self._loop.call_soon_threadsafe(self._heard.put_nowait, signal)

    def call(self, message: dict[str, Any]) -> None:
        self.server.apply_line(json.dumps(message))

    async def wait_for(self, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first line that was wanted."""
        async with asyncio.timeout(SECONDS):
            while True:
                self._news.clear()
                self.lines += [json.loads(line) for line in self.server.take_lines()]
                for line in self.lines:
                    if found(line):
                        return line
                await self._news.wait()

    async def wait_for_signal(self, kind: str) -> Signal:
        async with asyncio.timeout(SECONDS):
            while (signal := await self._heard.get()).type != kind:
                pass
        return signal


def is_state(kind: str) -> Callable[[dict[str, Any]], bool]:
    return lambda line: line.get("event") == "state" and line["state"]["kind"] == kind


def is_work(line: dict[str, Any]) -> bool:
    return line.get("event") == "work"


async def test_a_manager_hears_and_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKD_STRESS", "3=2")
    served = Served(tmp_path)
    serving = asyncio.create_task(served.server.serve_for_ever())
    try:
        served.server.begin_coordinator_stream()
        served.call({"call": "start", "attempt": 1, "world_size": 8})
        await served.wait_for(is_state("unheard"))
        served.client.start_streams()
        await served.wait_for(is_state(""))
        await served.wait_for_signal("keep-alive")

        served.call(STOP)
        signal = await served.wait_for_signal("stopTrain")
        assert (signal.actions, signal.ranks) == (("stop_train",), {3: 1})
        report = threading.Thread(target=served.client.report_stop, args=(0, "stop ok", {3: 1}))
        report.start()
        told = await served.wait_for(lambda line: line.get("event") == "report_stop_complete")
        assert told["arguments"] == [0, "stop ok", [[3, 1]]]
        report.join()

        served.call(STRESS)
        assert (await served.wait_for(is_work))["result"] == {"request": "r", "codes": {"2": "0", "3": "2"}}
        served.lines.clear()
        served.call(RAILS)
        assert (await served.wait_for(is_work))["result"] == {"request": "s", "codes": {"2": "0"}}
        assert served.taken == []
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    again = Served(tmp_path)  # another agent at the same volume
    again.server.begin_coordinator_stream()
    (hello,) = [json.loads(line) for line in again.server.take_lines()]
    assert [entry.get("called") or entry.get("event") for entry in hello["log"]] == [
        "stop_train",
        "report_stop_complete",
    ]
    assert hello["state"]["controller"] == "serving"
    assert again.server.bridge.stream.memory.hold is Hold.STOPPED
