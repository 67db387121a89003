"""A trainer container as real processes: the launcher, a start script, its ranks; the test itself is the agent."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_sidecar.install import install_below
from trainer_sidecar.launcher import protocol

PATIENCE = 90.0
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"

ECHO = """
import os, sys
print("rank", os.environ["RANK"], "args", *sys.argv[1:], flush=True)
"""


@dataclass
class Container:
    """The launcher's container and the agent's end of its socket.

    Attributes:
        answers: the agent says of every launch whose ranks have ended with 0 that it has finished.
    """

    directory: Path
    home: Path
    ranks: int = 2
    python: str = sys.executable
    launcher: subprocess.Popen[bytes] | None = None
    link: socket.socket | None = None
    said: list[dict[str, Any]] = field(default_factory=list)
    answers: bool = True
    _unread: bytes = b""

    def start(self, script: str, environment: Mapping[str, str], command: list[str]) -> None:
        """Run `bash -c SCRIPT` (or another command) below the launcher, in the directory `home`."""
        install_below(self.directory)
        own = {
            "PATH": f"{Path(self.python).parent}:{SYSTEM_PATH}",
            "HOME": str(self.home),
            "HAJOB_DIR": str(self.directory),
            "HAJOB_NODE_RANK": "0",
            "HAJOB_RANKS_PER_NODE": str(self.ranks),
            "HAJOB_WORLD_SIZE": str(self.ranks),
        }
        with (self.directory / "trainer.log").open("ab") as log:
            self.launcher = subprocess.Popen(
                [self.python, str(self.directory / "launcher.pyz"), "--", *command, script],
                env={**own, **environment},
                cwd=self.home,
                stdout=log,
                stderr=log,
            )
        self.until(self._dial, "the launcher's socket")

    def _dial(self) -> bool:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with protocol.SocketPath(str(self.directory)) as path:
                link.connect(path)
        except OSError:
            link.close()
            return False
        link.setblocking(False)
        self.link = link
        self.send({"kind": "agent", "version": 1, "output_directory": "", "attempt_limit": 0})
        return True

    def come_back(self) -> None:
        """Take the agent away for a moment, and dial as another one."""
        assert self.link is not None
        self.link.close()
        self._unread = b""
        self.until(self._dial, "the launcher's socket")

    def send(self, message: Mapping[str, Any]) -> None:
        """Tell the launcher."""
        assert self.link is not None
        self.link.sendall(json.dumps(message).encode() + b"\n")

    def hear(self) -> None:
        """Take in what the launcher has said."""
        assert self.link is not None
        try:
            while data := self.link.recv(65536):
                lines = (self._unread + data).split(b"\n")
                self._unread = lines.pop()
                for message in map(json.loads, lines):
                    self.said.append(message)
                    if self.answers and message["kind"] == "all_ended":
                        self.send({"kind": "verdict", "launch": message["launch"], "problem": ""})
        except OSError:
            return

    def script(self) -> dict[str, Any]:
        """Find the newest message about the script."""
        return self.newest("script")

    def newest(self, kind: str) -> dict[str, Any]:
        self.hear()
        return next((message for message in reversed(self.said) if message["kind"] == kind), {})

    def heard(self, kind: str) -> bool:
        """Tell whether a message of this kind has come."""
        return bool(self.newest(kind))

    def rank(self, rank: int) -> dict[str, Any]:
        """Find the newest message about a rank."""
        self.hear()
        told = (m for m in reversed(self.said) if m["kind"] == "rank" and m["rank"] == rank)
        return next(told, {})

    def launched(self, number: int = 1) -> None:
        """Wait until the script has launched its ranks, for the `number`th time."""
        self.until(lambda: self.script().get("launch") == number and self.script()["ready"], f"launch {number}")

    def start_ranks(self, start: int = 0, **environment: str) -> None:
        """Order every rank of the pod."""
        for rank in range(self.ranks):
            named = {"rank": rank, "incarnation": 1, "start": start}
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(self.ranks), "HAJOB_ATTEMPT": "1"}
            self.send({"kind": "start", **named, "environment": {**own, **environment}})

    def register(self) -> None:
        """Say that a rank of the newest launch has reached MindIO."""
        self.send({"kind": "registered", "launch": self.script()["launch"]})
        self.until(lambda: bool(self.script()["training"]), "the training")

    def log(self) -> str:
        """Read what the container has printed."""
        return (self.directory / "trainer.log").read_text(errors="replace")

    def ended(self) -> int:
        """Wait for the launcher's end; its exit code."""
        assert self.launcher is not None
        self.until(lambda: bool(self.script().get("ended")) or self.launcher_gone(), "the end of the script")
        if not self.launcher_gone():
            self.send({"kind": "seen_end"})
        return self.launcher.wait(PATIENCE)

    def launcher_gone(self) -> bool:
        """Tell whether the launcher has ended."""
        assert self.launcher is not None
        return self.launcher.poll() is not None

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for what other processes bring about; fails after PATIENCE seconds, naming `what`, with the output."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"never came: {what}; {self.said[-3:]}\n{self.log()[-3000:]}")
            time.sleep(0.01)


@contextmanager
def running(
    directory: Path,
    script: str,
    *,
    ranks: int = 2,
    command: tuple[str, ...] = ("bash", "-c"),
    python: str = sys.executable,
    **environment: str,
) -> Iterator[Container]:
    """Start a container that runs `script` in `directory/home`; everything of it ends with the block."""
    shared, home = directory / "shared", directory / "home"
    shared.mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    container = Container(shared, home, ranks, python)
    (home / "echo.py").write_text(ECHO)
    try:
        container.start(script, environment, list(command))
        yield container
    finally:
        if container.link is not None:
            container.link.close()
        if container.launcher is not None and container.launcher.poll() is None:
            container.launcher.kill()
            container.launcher.wait()


def fake_tool(directory: Path, name: str, text: str = "echo REAL $0 $*") -> Path:
    """Write a program of the image: a launcher that is not Hajob's."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def python_in(directory: Path, name: str = "python3") -> None:
    """Put an interpreter by this name into a directory, as in a virtual environment."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).symlink_to(os.path.realpath(sys.executable))


def standing_ready(launcher: int) -> set[int]:
    """List processes below a spare's launcher that wait to be told which rank they are."""
    found = set()
    for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        with suppress(OSError):  # it may end just now
            found |= {int(pid)} if b"HAJOB_WARM_FD=" in Path(f"/proc/{pid}/environ").read_bytes() else set()
    return found
