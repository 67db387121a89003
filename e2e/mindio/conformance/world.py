"""The processes of one run and everything they have told, in order of arrival."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.cluster.loopback import own_address, own_port
from e2e.mindio.conformance.gate import Gate
from e2e.mindio.conformance.keeping_gate import KeepingGate
from e2e.mindio.conformance.vector import Vector

REPOSITORY = Path(__file__).resolve().parents[3]
SIMULATOR = REPOSITORY / "e2e" / "mindio" / "package"
ADDRESS = own_address()
Event = dict[str, Any]

DEFAULTS = {
    "MINDIO_WAIT_MINDX_TIME": "10",
    "TTP_NORMAL_ACTION_TIME_LIMIT": "30",
    "MINDX_TASK_ID": "laboratory",
    "SIM_MINDIO_EXIT_DELAY": "0.5",
    "SIM_MINDIO_RECOVER_WAIT": "25",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
}


@dataclass
class Member:
    """One process: `key` is "controller", or rank and generation as in "2.0"."""

    key: str
    process: asyncio.subprocess.Process
    events: list[Event] = field(default_factory=list)
    steps: list[Event] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    ended: float | None = None

    @property
    def code(self) -> int | None:
        """The exit code, None while it runs, negative for a signal."""
        return self.process.returncode


class World:
    """Starts, commands and ends the processes of a run."""

    def __init__(self, vector: Vector, package: Path, extra: dict[str, str] | None = None) -> None:
        self.vector = vector
        self.extra = extra or {}
        self.package = package
        self.members: dict[str, Member] = {}
        self.events: list[Event] = []
        self.callbacks: list[Event] = []
        self.changed = asyncio.Event()
        self.gates: dict[int, Gate] = {}
        self.port = own_port()
        self._directory = tempfile.TemporaryDirectory(prefix="hajob-mindio-")
        self._tasks: list[asyncio.Task[None]] = []

    # ---- processes

    def environment(self, extra: dict[str, str]) -> dict[str, str]:
        """The environment of a process; what the vector says comes last."""
        path = os.pathsep.join([str(self.package), str(REPOSITORY)])
        directory = self._directory.name
        env = os.environ | DEFAULTS | {"PYTHONPATH": path, "TTP_LOG_PATH": directory} | self.extra
        if self.vector.real_exit_delay:
            env.pop("SIM_MINDIO_EXIT_DELAY")
        return env | {k: str(v) for k, v in self.vector.env.items()} | {k: str(v) for k, v in extra.items()}

    async def spawn(self, key: str, module: str, extra: dict[str, str]) -> Member:
        """Start one process of the laboratory."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"e2e.mindio.lab.{module}",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self._directory.name,
            env=self.environment(extra),
        )
        member = self.members[key] = Member(key, process)
        self._tasks.append(asyncio.ensure_future(self._read(member)))
        return member

    async def _read(self, member: Member) -> None:
        assert member.process.stdout is not None
        async for line in member.process.stdout:
            text = line.decode(errors="replace").rstrip("\n")
            if text.startswith("{'event'"):
                event = ast.literal_eval(text) | {"key": member.key}
                self._take(member, event)
            else:
                member.output.append(text)
        await member.process.wait()
        member.ended = time.monotonic()
        self.changed.set()

    def _take(self, member: Member, event: Event) -> None:
        if event["event"] == "step":
            member.steps.append(event)
        else:
            member.events.append(event)
            self.events.append(event)
        if event["event"] == "callback":
            self.callbacks.append(event)
        self.changed.set()

    def send(self, key: str, command: dict[str, Any]) -> None:
        """Give a process a command."""
        stdin = self.members[key].process.stdin
        assert stdin is not None
        with contextlib.suppress(OSError):
            stdin.write((repr(command) + "\n").encode())

    def newest(self, rank: int | str) -> str:
        """The key of a rank's newest process; a key stands for itself."""
        if str(rank) in self.members:
            return str(rank)
        keys = [k for k in self.members if k.startswith(f"{rank}.")]
        return max(keys, key=lambda k: int(k.split(".")[1]))

    def signal(self, key: str, number: int) -> None:
        """Send a signal to one process of this run."""
        member = self.members[key]
        if member.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member.process.pid, number)

    async def start_controller(self) -> None:
        """Start, register, initialise and start the controller."""
        v = self.vector
        count = len([k for k in self.members if k.startswith("controller")])
        if count:
            old = self.members.pop("controller")
            old.key = f"controller.{count - 1}"
            self.members[old.key] = old
        await self.spawn("controller", "controller", v.controller_env)
        if not v.controller:
            return
        self.send("controller", {"register": v.callbacks})
        self.send("controller", {"call": "init_controller", "args": [v.host, v.ranks, v.copy, v.arf, v.zit]})
        start = {"call": "start_controller", "args": [ADDRESS, self.port], "kwargs": {"enable_tls": False}}
        self.send("controller", start)
        await self._returned("start_controller")

    async def _returned(self, call: str) -> None:
        end = time.monotonic() + 30.0
        events = self.members["controller"].events
        while not any(e.get("call") == call for e in events) and time.monotonic() < end:
            self.changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), 0.5)

    async def start_rank(self, rank: int, changes: dict[str, Any] | None = None) -> str:
        """Start a process for a rank."""
        v = self.vector
        generation = len([k for k in self.members if k.split(".")[0] == str(rank)])
        key = f"{rank}.{generation}"
        await self.spawn(key, "rank", v.rank_env.get(rank, {}) if generation == 0 else {})
        port = self.gates[rank].port if rank in self.gates else self.port
        settings = {
            "rank": rank,
            "world": v.ranks,
            "address": ADDRESS,
            "port": port,
            "board": f"{self._directory.name}/board",
            "groups": v.groups_of(rank),
            "dp_group": v.dp_group_of(rank),
            "local_copy": v.copy,
            "uce": v.uce,
            "arf": v.arf,
            "zit": v.zit,
        }
        own = v.rank_settings.get(rank, {}) if generation == 0 else {}
        self.send(key, {"settings": settings | v.rank | own | (changes or {})})
        return key

    async def begin(self) -> None:
        """Controller, gates, ranks."""
        Path(f"{self._directory.name}/board").write_bytes(bytes(8 * self.vector.ranks))
        await self.start_controller()
        for rank in self.vector.gates:
            gate = self.gates[rank] = (KeepingGate if self.vector.keeps else Gate)(ADDRESS, self.port)
            await gate.listen()
        ranks = range(self.vector.ranks) if self.vector.start is None else self.vector.start
        for rank in ranks:
            await self.start_rank(rank)

    async def end(self) -> None:
        """End everything that this run has started."""
        for member in self.members.values():
            self.signal(member.key, signal.SIGKILL)
        for gate in self.gates.values():
            await gate.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._directory.cleanup()
