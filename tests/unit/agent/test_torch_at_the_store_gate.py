"""torch's own client at the store's port of a pod: it connects once, so whatever the gate does must leave it whole."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
from collections.abc import Callable

import pytest

from e2e.cluster.loopback import own_address, own_port
from tests.rigs.controller_host import HostClient, children_of_host
from tests.rigs.store_gate import StoreGateRules
from tests.rigs.torch_store import NEEDS_TORCH, TorchRank, torch_can, torch_python, wildcard_port
from trainer_sidecar.agent.clock import BootClock
from trainer_sidecar.agent.store.gate import StoreGate
from trainer_sidecar.coordinator.shell.store_filling import fill_store
from trainer_sidecar.coordinator.state.store_keeping import StoreKeeping

pytestmark = [NEEDS_TORCH, pytest.mark.slow]


async def test_torchs_client_is_held_at_the_gate_and_goes_on(
    store: tuple[HostClient, int, int],
    rank: Callable[..., TorchRank],
) -> None:
    """Before the store is known, and in the middle of a get when the lease has run out."""
    rules, (_, _, store_port) = StoreGateRules(), store
    gate = StoreGate(own_address(), own_port(), rules, BootClock())
    await gate.listen_at_port()
    try:
        held, direct = rank(gate.port, 0), rank(store_port, 1)
        held.begin("raw", "add", "ranks", 1)  # a set is not answered
        await asyncio.to_thread(direct.ask, "raw", "set", "ready", "yes")  # both have begun by now, or soon
        assert not await answers(held)
        rules.address, rules.open = f"{own_address()}:{store_port}", True
        gate.follow_changed_order()
        assert await asyncio.to_thread(held.answer) == 1
        assert await asyncio.to_thread(direct.ask, "raw", "add", "ranks", 1) == 2
        held.begin("raw", "get", "1")
        rules.open = False
        gate.follow_changed_order()
        await asyncio.to_thread(direct.ask, "raw", "set", "1", "rebuilt")
        assert not await answers(held)
        rules.open = True
        gate.follow_changed_order()
        assert await asyncio.to_thread(held.answer) == "rebuilt"
    finally:
        await gate.close_port()


async def test_another_store_goes_on_where_the_lost_one_was(
    store: tuple[HostClient, int, int],
    rank: Callable[..., TorchRank],
) -> None:
    """Two pods; the store's process dies while one waits for a key; the second store has what both had written."""
    host_client, _, store_port = store
    pods = [Pod(f"{own_address()}:{store_port}") for _ in range(2)]
    for pod in pods:
        await pod.gate.listen_at_port()
    first, second = (rank(pod.gate.port, number) for number, pod in enumerate(pods))
    others: list[subprocess.Popen[bytes]] = []
    try:
        for number, client in enumerate((first, second)):
            assert await asyncio.to_thread(client.ask, "raw", "set", f"address/{number}", f"10.0.0.{number}") is None
            assert await asyncio.to_thread(client.ask, "raw", "add", "barrier", 1) == number + 1
        await asyncio.to_thread(first.ask, "raw", "set", "root", "old")
        assert await asyncio.to_thread(second.ask, "raw", "get", "root") == "old"
        assert await asyncio.to_thread(second.ask, "raw", "delete_key", "root") is True
        address = f"{own_address()}:{await asyncio.to_thread(another_store, others)}"
        first.begin("raw", "get", "root")  # for 20 s; on a loaded machine torch takes as long to be imported
        assert not await answers(first)
        os.kill(int(children_of_host(host_client)[0]), signal.SIGKILL)
        await asyncio.to_thread(host_client.state, store="lost")
        assert not await answers(first), "a get that waits outlives the store"
        for pod in pods:
            pod.rules.open = False
            pod.gate.follow_changed_order()
        keeping = StoreKeeping()
        keeping.begin_gathering("word", 100.0)
        for number, pod in enumerate(pods):
            for part in pod.gate.take_content("word"):
                keeping.add_content(str(number), part, 100.0)
        keeping.finish_gathering(["0", "1"], 100.0)
        keeping.begin_filling()
        fill = keeping.take_fill()
        assert fill is not None
        assert await fill_store(address, fill) == ""
        for pod in pods:
            pod.rules.address, pod.rules.name, pod.rules.kept, pod.rules.open = address, "1/2", True, True
            pod.gate.follow_changed_order()
        assert await asyncio.to_thread(second.ask, "raw", "get", "address/0") == "10.0.0.0"
        assert await asyncio.to_thread(second.ask, "raw", "add", "barrier", 1) == 3
        assert not await answers(first), "what was deleted stays so"
        await asyncio.to_thread(second.ask, "raw", "set", "root", "new")
        assert await asyncio.to_thread(first.answer) == "new"
        successor = rank(pods[0].gate.port, 0)
        assert await asyncio.to_thread(successor.ask, "raw", "get", "address/1") == "10.0.0.1"
    finally:
        for pod in pods:
            await pod.gate.close_port()
        for process in others:
            process.kill()
            process.communicate()


async def test_queues_lists_and_barriers_pass_the_gate(
    store: tuple[HostClient, int, int],
    rank: Callable[..., TorchRank],
) -> None:
    """What torch 2.8 and 2.15 have added. A queue cannot be kept, and who asks for the content is told so."""
    if not torch_can("list_keys"):
        pytest.skip("this torch has no list_keys: HAJOB_TORCH_PYTHON=newest has")
    pod = Pod(f"{own_address()}:{store[2]}")
    await pod.gate.listen_at_port()
    first, second = rank(pod.gate.port, 0), rank(pod.gate.port, 1)
    try:
        await asyncio.to_thread(first.ask, "raw", "set", "address", "10.0.0.1")
        assert "address" in str(await asyncio.to_thread(second.ask, "raw", "list_keys"))
        first.begin("raw", "barrier", "all", 2)
        assert not await answers(first)
        assert await asyncio.to_thread(second.ask, "raw", "barrier", "all", 2) is None
        assert await asyncio.to_thread(first.answer) is None
        await asyncio.to_thread(first.ask, "raw", "queue_push", "queue", "item")
        assert await asyncio.to_thread(second.ask, "raw", "queue_len", "queue") == 1
        assert await asyncio.to_thread(second.ask, "raw", "queue_pop", "queue") == "item"
        assert await asyncio.to_thread(second.ask, "raw", "get", "address") == "10.0.0.1", "the bytes are still cut"
        assert any("queue" in part.problem for part in pod.gate.take_content("after"))
    finally:
        await pod.gate.close_port()


class Pod:
    """A gate of a pod whose coordinator serves at `address`."""

    def __init__(self, address: str) -> None:
        self.rules = StoreGateRules()
        self.rules.address, self.rules.name, self.rules.open = address, "1/1", True
        self.gate = StoreGate(own_address(), own_port(), self.rules, BootClock())


def another_store(processes: list[subprocess.Popen[bytes]]) -> int:
    """A store of torch's in a process of its own: where it listens."""
    port = wildcard_port()
    code = (
        "import sys, time; from torch.distributed import TCPStore\n"
        f"store = TCPStore('127.0.0.1', {port}, is_master=True, wait_for_workers=False)\n"
        "print('listens', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([torch_python(), "-c", code], stdout=subprocess.PIPE)
    processes.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == b"listens\n"
    return port


async def answers(client: TorchRank) -> bool:
    """Whether its answer has come half a second from now."""
    await asyncio.sleep(0.5)
    assert client.process.stdout is not None
    return bool(select.select([client.process.stdout], [], [], 0.0)[0])
