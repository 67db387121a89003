"""The rendezvous store of real torch, and ranks that connect to it."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.cluster.loopback import own_address, own_port
from e2e.trainer.framework_python import SYSTEM, named_torch
from tests.rigs.controller_host import PACKAGE, HostClient

PATIENCE = 60.0
CLIENT = """
import datetime, json, os, sys
from torch.distributed import TCPStore, PrefixStore
from torch.distributed.rendezvous import rendezvous
patience = datetime.timedelta(seconds=600)
stores = {}
def raw():
    if "raw" not in stores:
        port = int(os.environ["MASTER_PORT"])
        stores["raw"] = TCPStore(os.environ["MASTER_ADDR"], port, is_master=False, timeout=patience)
    return stores["raw"]
def elastic():
    if "elastic" not in stores:
        stores["elastic"] = next(iter(rendezvous("env://", timeout=patience)))[0]
    return stores["elastic"]
for line in sys.stdin:
    which, call, *arguments = json.loads(line)
    try:
        store = {"raw": raw, "elastic": elastic}[which]()
        if call == "wait":
            store.wait(arguments[0], datetime.timedelta(seconds=arguments[1]))
            answer = True
        else:
            answer = getattr(store, call)(*arguments)
    except Exception as error:
        answer = "error: %s" % type(error).__name__
    print(json.dumps(answer.decode() if isinstance(answer, bytes) else answer), flush=True)
"""


@functools.cache
def torch_python() -> str:
    """Find a Python with torch; empty: there is none."""
    for python in (named_torch(), SYSTEM):
        if Path(python).exists():
            command = [python, "-c", "from torch.distributed import TCPStore"]
            tried = subprocess.run(command, capture_output=True, check=False)
            if tried.returncode == 0:
                return python
    return ""


@functools.cache
def torch_can(method: str) -> bool:
    """Whether torch's store has this method."""
    command = [torch_python(), "-c", f"from torch.distributed import TCPStore; TCPStore.{method}"]
    return bool(torch_python()) and subprocess.run(command, capture_output=True, check=False).returncode == 0


NEEDS_TORCH = pytest.mark.skipif(
    not torch_python(), reason="no torch: apt-get install python3-torch, or HAJOB_TORCH_PYTHON"
)


def wildcard_port() -> int:
    """Find a port that nobody has at any address: older torch binds them all."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        return int(server.getsockname()[1])


class TorchRank:
    """A process of torch's: `raw` is its store without, `elastic` with what its version puts before every key."""

    def __init__(self, port: int, rank: int = 0, attempt: int = 1) -> None:
        environment = {
            **os.environ, "MASTER_ADDR": own_address(), "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": "2",
            "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": str(attempt),
        }  # fmt: skip
        self.process = subprocess.Popen(
            [torch_python(), "-u", "-c", CLIENT], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, which: str, call: str, *arguments: object) -> object:
        """Have the process do this, and wait for what comes of it."""
        self.begin(which, call, *arguments)
        return self.answer()

    def begin(self, which: str, call: str, *arguments: object) -> None:
        """Have the process do this."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([which, call, *arguments]).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> object:
        """Wait for what came of it."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


@pytest.fixture
def rank() -> Iterator[Callable[..., TorchRank]]:
    """Start ranks of torch, and end them after the test."""
    ranks: list[TorchRank] = []

    def start(*arguments: int) -> TorchRank:
        ranks.append(TorchRank(*arguments))
        return ranks[-1]

    yield start
    for one in ranks:
        one.process.kill()
        one.process.communicate()


@pytest.fixture
def store(host: Callable[..., HostClient]) -> tuple[HostClient, int, int]:
    """Start a host whose store is torch's: the client, MindIO's port, the store's."""
    client = host(PACKAGE % {"start": "pass"}, store="", PATH=f"{Path(torch_python()).parent}:{os.environ['PATH']}")
    client.socket.settimeout(PATIENCE)
    port, store_port = own_port(), wildcard_port()
    client.event("hello")
    client.start(port, store_port)
    client.state(controller="serving", store="listening")
    return client, port, store_port
