"""The toy's store held against torch's, both ways; skipped where there is no torch (HAJOB_TORCH_PYTHON, python3-torch).

Its client has to find itself understood by torch's store, and torch's client by its store, in every operation.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest

from e2e.cluster.loopback import own_address, own_port
from e2e.trainer.store import serve
from e2e.trainer.store_client import Client, StoreLostError
from e2e.trainer.store_wire import NEW, OLD, Version
from tests.rigs.torch_store import NEEDS_TORCH, TorchRank, torch_python, wildcard_port

pytestmark = [NEEDS_TORCH, pytest.mark.slow]

STORE = """
import sys, threading, torch
from torch.distributed import TCPStore
store = TCPStore(sys.argv[1], int(sys.argv[2]), is_master=True, wait_for_workers=False)
print(torch.__version__, flush=True)
threading.Event().wait()
"""


@pytest.fixture
def torch_store() -> Iterator[tuple[int, Version]]:
    """Port of a store of torch's, and how its version speaks."""
    port = wildcard_port()
    command = [torch_python(), "-c", STORE, own_address(), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            major, minor = process.stdout.readline().split(".")[:2]
            yield port, NEW if (int(major), int(minor)) >= (2, 1) else OLD
        finally:
            process.kill()


@pytest.fixture
def toy_store() -> int:
    """Port of one of the toy's."""
    port = own_port()
    threading.Thread(target=serve, args=(own_address(), port), daemon=True).start()
    return port


@pytest.fixture
def rank() -> Iterator[Callable[[int], TorchRank]]:
    """Starts processes of torch's."""
    ranks: list[TorchRank] = []

    def start(port: int) -> TorchRank:
        ranks.append(TorchRank(port))
        return ranks[-1]

    yield start
    for one in ranks:
        one.process.kill()
        one.process.communicate()


def test_the_toys_client_is_understood_by_torchs_store(torch_store: tuple[int, Version]) -> None:
    port, version = torch_store
    one, other = (Client(own_address(), port, 1, version) for _ in range(2))
    assert one.get("address/0") is None
    assert one.wait("address/0", 0.05) is None
    one.set("address/0", ["127.0.0.1", 7])
    assert one.gather("address", [0, 1], 0.05) is None
    threading.Timer(0.1, lambda: other.set("address/1", ["127.0.0.2", 8])).start()
    assert one.gather("address", [1, 0], 30.0) == [["127.0.0.2", 8], ["127.0.0.1", 7]]
    assert [one.highest("number", 9), other.highest("number", 2), other.highest("number", 10)] == [9, 9, 10]
    assert one.get("number") == 10
    assert one.wait("address/1", 1.0) == ["127.0.0.2", 8]


def test_torchs_client_is_understood_by_the_toys_store(toy_store: int, rank: Callable[[int], TorchRank]) -> None:
    one, other = rank(toy_store), rank(toy_store)
    assert one.ask("raw", "set", "key", "value") is None
    assert other.ask("raw", "get", "key") == "value"
    assert [one.ask("raw", "add", "count", 2), other.ask("raw", "add", "count", 3)] == [2, 5]
    assert other.ask("raw", "compare_set", "key", "other", "new") == "value"
    assert other.ask("raw", "compare_set", "key", "value", "new") == "new"
    assert other.ask("raw", "compare_set", "fresh", "", "set") == "set"
    assert other.ask("raw", "compare_set", "missing", "expected", "set") == "expected"
    keys = int(str(one.ask("raw", "num_keys")))
    assert (one.ask("raw", "delete_key", "key"), one.ask("raw", "delete_key", "key")) == (True, False)
    assert other.ask("raw", "num_keys") == keys - 1
    other.begin("raw", "wait", ["late"], 20)
    assert one.ask("raw", "set", "late", "there") is None
    assert other.answer() is True


def test_both_find_each_others_keys(torch_store: tuple[int, Version], rank: Callable[[int], TorchRank]) -> None:
    """As torch puts the attempt before its keys, up to 2.5."""
    port, version = torch_store
    theirs, ours = rank(port), Client(own_address(), port, 1, version)
    ours.set("address/0", ["127.0.0.1", 7])
    key = "/worker/attempt_1/address/0"
    assert json.loads(str(theirs.ask("raw", "get", key))) == ["127.0.0.1", 7]


def test_torchs_store_ends_as_the_toys(torch_store: tuple[int, Version], toy_store: int) -> None:
    """Who asks for what is not there, without having waited for it, is cut off by both."""
    port, version = torch_store
    for where in (port, toy_store):
        client = Client(own_address(), where, 1, version)
        client.set("key", 1)
        with pytest.raises(StoreLostError):
            client.values([b"missing"])
        assert Client(own_address(), where, 1, version).get("key") == 1
