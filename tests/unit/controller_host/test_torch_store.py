"""The rendezvous store with real torch: Debian's python3-torch, or the Python in HAJOB_TORCH_PYTHON; else skipped."""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.cluster.loopback import own_address, own_port
from tests.unit.controller_host.test_host import PACKAGE, Client, children, host  # noqa: F401  a fixture

PATIENCE = 60.0


@functools.cache
def torch_python() -> str:
    """A Python with torch; empty: there is none."""
    for python in (os.environ.get("HAJOB_TORCH_PYTHON", ""), "/usr/bin/python3"):
        if python and Path(python).exists():
            command = [python, "-c", "from torch.distributed import TCPStore"]
            tried = subprocess.run(command, capture_output=True, check=False)
            if tried.returncode == 0:
                return python
    return ""


pytestmark = pytest.mark.skipif(
    not torch_python(), reason="no torch: apt-get install python3-torch, or HAJOB_TORCH_PYTHON"
)

CLIENT = """
import datetime, json, os, sys
from torch.distributed import TCPStore, PrefixStore
from torch.distributed.rendezvous import rendezvous
patience = datetime.timedelta(seconds=20)
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


def wildcard_port() -> int:
    """A port that nobody has at any address: older torch binds them all."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        return int(server.getsockname()[1])


class Rank:
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
        """Do this and wait for what comes of it."""
        self.begin(which, call, *arguments)
        return self.answer()

    def begin(self, which: str, call: str, *arguments: object) -> None:
        """Do this."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([which, call, *arguments]).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> object:
        """What came of it."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


@pytest.fixture
def rank() -> Iterator[Callable[..., Rank]]:
    """Starts ranks and ends them."""
    ranks: list[Rank] = []

    def start(*arguments: int) -> Rank:
        ranks.append(Rank(*arguments))
        return ranks[-1]

    yield start
    for one in ranks:
        one.process.kill()
        one.process.communicate()


@pytest.fixture
def store(host: Callable[..., Client]) -> tuple[Client, int, int]:  # noqa: F811
    """A host whose store is torch's: the client, MindIO's port, the store's."""
    client = host(PACKAGE % {"start": "pass"}, store="", PATH=f"{Path(torch_python()).parent}:{os.environ['PATH']}")
    client.socket.settimeout(PATIENCE)
    port, store_port = own_port(), wildcard_port()
    client.event("hello")
    client.start(port, store_port)
    client.state(controller="serving", store="listening")
    return client, port, store_port


def test_ranks_go_on_when_controller_and_coordinator_are_lost(
    store: tuple[Client, int, int], rank: Callable[..., Rank]
) -> None:
    """torch's clients connect once: the same connection must serve before and after."""
    client, port, store_port = store
    first = rank(store_port)
    assert first.ask("raw", "set", "default_pg/0", "root info") is None
    os.kill(int(children(client)[1]), signal.SIGKILL)
    client.state(controller="lost")
    client.socket.close()
    assert first.ask("raw", "get", "default_pg/0") == "root info"
    client.connect()
    client.socket.settimeout(PATIENCE)
    client.start(port, store_port)
    client.state(controller="serving", store="listening")
    assert first.ask("raw", "get", "default_pg/0") == "root info"


def test_another_attempt_reads_nothing_of_the_dead_one(
    store: tuple[Client, int, int], rank: Callable[..., Rank]
) -> None:
    """Version 2.6 and newer put no attempt before their keys: only an empty store keeps them apart."""
    client, port, store_port = store
    first = rank(store_port)
    for which in ("raw", "elastic"):
        first.ask(which, "set", "0", "of the dead attempt")
    assert first.ask("raw", "add", "store_based_barrier_key:1", 2) == 2
    client.start(port, store_port, number=2)
    client.state(controller="serving", store="listening")
    second = rank(store_port, 0, 2)
    assert second.ask("raw", "add", "store_based_barrier_key:1", 1) == 1, "a repeated name would pass at once"
    for which in ("raw", "elastic"):
        assert str(second.ask(which, "wait", ["0"], 0.5)).startswith("error")


def test_prefixes_by_version_meet_whoever_is_replaced(
    store: tuple[Client, int, int], rank: Callable[..., Rank]
) -> None:
    """1.13 and 2.1 put the attempt before every key: a replaced rank has the number of the others, and meets them."""
    _, _, store_port = store
    survivor, replaced, wrong = rank(store_port, 0, 3), rank(store_port, 1, 3), rank(store_port, 1, 4)
    survivor.ask("elastic", "set", "default_pg/0", "root info")
    assert replaced.ask("elastic", "get", "default_pg/0") == "root info"
    has_prefix = survivor.ask("raw", "wait", ["/worker/attempt_3/default_pg/0"], 0.5) is True
    met = wrong.ask("elastic", "wait", ["default_pg/0"], 0.5) is True
    assert met is not has_prefix, "without a prefix (2.6 and newer) the number does not matter"


def test_root_info_is_deleted_by_all_before_it_is_set(
    store: tuple[Client, int, int], rank: Callable[..., Rank]
) -> None:
    """As a rebuild does: all delete key "0", a barrier, group rank 0 sets it, the others get it."""
    _, _, store_port = store
    survivor, replaced = rank(store_port, 0), rank(store_port, 1)
    survivor.ask("raw", "set", "0", "old")
    assert replaced.ask("raw", "get", "0") == "old", "too early: nothing tells the store that this is over"
    assert survivor.ask("raw", "delete_key", "0") is True
    assert replaced.ask("raw", "delete_key", "0") is False
    replaced.begin("raw", "get", "0")
    survivor.ask("raw", "set", "0", "new")
    assert replaced.answer() == "new"
    assert replaced.ask("raw", "delete_key", "0") is True, "a late delete …"
    assert str(survivor.ask("raw", "wait", ["0"], 0.5)).startswith("error"), "… takes it from those who come later"


def test_a_barrier_whose_name_is_repeated_is_passed_at_once(
    store: tuple[Client, int, int], rank: Callable[..., Rank]
) -> None:
    """Why MindIO puts the repair's number into the names of groups: the store keeps what was counted."""
    _, _, store_port = store
    one = rank(store_port)
    key = "store_based_barrier_key:abc_1"
    assert [one.ask("raw", "add", key, 1) for _ in range(3)] == [1, 2, 3]
    assert one.ask("raw", "add", "store_based_barrier_key:abc_2", 1) == 1
