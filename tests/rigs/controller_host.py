"""The controller host as a process, with packages named mindio_ttp that behave."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.loopback import own_address
from trainer_sidecar.controller_protocol import LineBuffer, connect_to_socket, encode_message
from trainer_sidecar.install import install_below

PATIENCE = 90.0
PACKAGE = """
import os, threading
calls = {}
def tft_register_mindx_callback(name, function):
    calls[name] = function
    return 0
def tft_init_controller(rank, world, copy, enable_arf=False, enable_zit=False):
    assert (rank, world, copy, enable_arf, enable_zit) == (-1, 4, False, True, False)
def tft_start_controller(address, port, enable_tls=True, tls_info=""):
    assert set(calls) == {"report_fault_ranks", "report_stop_complete", "report_strategies", "report_result"}
    assert enable_tls is False
    %(start)s
def tft_notify_controller_stop_train(ranks, kind="stop", timeout=None):
    assert all(type(rank) is int for rank in ranks)
    def report():
        if kind != "pause":
            calls["report_fault_ranks"](ranks, {})
        calls["report_stop_complete"](0, "stop ok", ranks)
    threading.Thread(target=report).start()
    return 0
def tft_notify_controller_on_global_rank(ranks, time=1):
    return 1
def tft_notify_controller_change_strategy(strategy, params=""):
    threading.Thread(target=calls["report_result"], args=(0, "ok", {}, strategy)).start()
    return 0
def tft_notify_controller_prepare_action(action, fault_ranks=None):
    raise TypeError("no")
def tft_notify_controller_dump():
    os._exit(3)
"""
STORE = """
import socket
def serve(host, port):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch's store does
    listener.bind((host, port))
    listener.listen()
    while True:
        listener.accept()[0].close()
def broken(host, port):
    raise OSError("no room")
"""


class HostClient:
    """The coordinator's end."""

    def __init__(self, directory: Path, process: subprocess.Popen[bytes]) -> None:
        self.directory, self.process = directory, process
        self.number = 0
        self.wind: dict[str, int] | None = None  # what a controller that is asked for takes over
        self.messages: list[dict[str, Any]] = []
        self.connect()

    def connect(self) -> None:
        """Dial until the host listens."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.socket = connect_to_socket(str(self.directory), "controller.sock")
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        self.socket.settimeout(PATIENCE)
        self.buffer = LineBuffer()

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read until a message is the wanted one; what was read before stays in `messages`."""
        while True:
            for index, message in enumerate(self.messages):
                if wanted(message):
                    del self.messages[: index + 1]
                    return message
            data = self.socket.recv(65536)
            assert data, "the host hung up"
            self.messages += self.buffer.cut_messages(data)

    def state(self, **wanted: str) -> dict[str, Any]:
        """Wait for a state."""
        message = self.until(
            lambda m: m.get("event") == "state" and all(m["state"].get(k) == v for k, v in wanted.items())
        )
        return dict(message["state"])

    def event(self, name: str) -> dict[str, Any]:
        """Wait for an event."""
        return self.until(lambda m: m.get("event") == name)

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Ask for a call and wait for its answer; events before it are kept."""
        self.number += 1
        number = self.number
        self.socket.sendall(encode_message({"id": number, "call": name, "arguments": arguments}))
        kept: list[dict[str, Any]] = []
        answer = None
        while answer is None:
            for message in self.messages:
                if message.get("answer") == number:
                    answer = message
                else:
                    kept.append(message)
            self.messages = []
            if answer is None:
                self.messages = self.buffer.cut_messages(self.socket.recv(65536))
        self.messages = kept
        return answer

    def start(self, port: int, store_port: int, *, number: int = 1, call: str = "start", **environment: str) -> None:
        """Ask for a controller of this attempt, and for its store; for that alone with another `call`."""
        request = {"id": 0, "call": call, "attempt": number, "world_size": 4, "arf": True, "zit": False}
        request["wind"] = self.wind
        place = {"address": own_address(), "port": port, "store_port": store_port, "environment": environment}
        self.socket.sendall(encode_message({**request, **place}))


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Callable[..., HostClient]]:
    """Start `controller_host.pyz` as an image with the given package would."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(
        package: str = PACKAGE % {"start": "pass"},
        *,
        store: str = "store:serve",
        program: str = "",
        sees_image: bool = True,
        python: str = sys.executable,
        **more: str,
    ) -> HostClient:
        deep = tmp_path / ("a directory whose name is far too long for a socket " * 3)
        image = tmp_path / "image"
        (image / "mindio_ttp").mkdir(parents=True, exist_ok=True)
        (image / "mindio_ttp" / "__init__.py").touch()
        if package:
            (image / "mindio_ttp" / "controller_ttp.py").write_text(package)
        (image / "store.py").write_text(STORE)
        install_below(deep)
        path = f"{image}:{deep / 'controller_host.pyz'}" if sees_image else str(deep / "controller_host.pyz")
        environment = {**os.environ, "HAJOB_DIR": str(deep), "PYTHONPATH": path, "HAJOB_STORE": store, **more}
        command = ["-c", program] if program else [str(deep / "controller_host.pyz")]
        processes.append(subprocess.Popen([python, *command], env=environment))
        return HostClient(deep, processes[-1])

    yield start
    for process in processes:
        process.kill()
        process.wait()


def children_of_host(client: HostClient) -> list[str]:
    """List the host's processes, the store first and the controller behind it."""
    return Path(f"/proc/{client.process.pid}/task/{client.process.pid}/children").read_text().split()
