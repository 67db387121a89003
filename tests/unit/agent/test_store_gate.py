"""The store's port of a pod: it forwards, holds, and serves nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from e2e.cluster.loopback import own_port
from tests.rigs.rank_pod import ADDRESS, until
from tests.rigs.store_gate import StoreGateRules
from trainer_sidecar.agent.clock import BootClock
from trainer_sidecar.agent.gate import listener
from trainer_sidecar.agent.store.gate import StoreGate


class Scene:
    """A gate and a store behind it that echoes."""

    def __init__(self) -> None:
        self.rules = StoreGateRules()
        self.gate = StoreGate(ADDRESS, own_port(), self.rules, BootClock())
        self.store_port = own_port()
        self.store: asyncio.Server | None = None
        self.served = 0

    async def serve(self) -> None:
        self.store = await asyncio.start_server(self._echo, ADDRESS, self.store_port)

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.served += 1
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    def open(self, is_open: bool = True) -> None:
        self.rules.open, self.rules.address = is_open, f"{ADDRESS}:{self.store_port}"
        self.gate.follow_changed_order()

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(ADDRESS, self.gate.port)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    await made.gate.listen_at_port()
    yield made
    await made.gate.close_port()
    if made.store is not None:
        made.store.close()


async def test_a_client_that_comes_too_early_waits_for_order_and_store(scene: Scene) -> None:
    reader, writer = await scene.dial()
    writer.write(b"validate")
    await asyncio.sleep(0.05)
    scene.open()
    await asyncio.sleep(0.1)
    assert not reader.at_eof(), "a store that does not listen yet is tried again"
    await scene.serve()
    assert await reader.readexactly(8) == b"validate"


async def test_without_the_lease_bytes_wait_and_the_connection_stays(scene: Scene) -> None:
    await scene.serve()
    scene.open()
    reader, writer = await scene.dial()
    writer.write(b"one")
    assert await reader.readexactly(3) == b"one"
    scene.open(False)
    writer.write(b"two")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.readexactly(1), 0.1)
    scene.open()
    assert await reader.readexactly(3) == b"two"
    assert scene.served == 1


async def test_each_side_that_ends_ends_the_other(scene: Scene) -> None:
    await scene.serve()
    scene.open()
    reader, writer = await scene.dial()
    writer.write(b"x")
    assert await reader.readexactly(1) == b"x"
    writer.write_eof()
    assert await reader.read() == b""


async def test_another_pods_process_does_not_reach_the_store(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    await scene.serve()
    scene.open()
    monkeypatch.setattr(listener, "is_of_this_pod", lambda _: False)
    _, writer = await scene.dial()
    writer.write(b"x")
    await until(lambda: [port for port, _ in scene.rules.strangers] == [scene.gate.port], "the count")
    await asyncio.sleep(0.05)
    assert scene.served == 0


async def test_a_store_that_is_named_later_is_still_the_same(scene: Scene) -> None:
    """A coordinator of 0.1 names none; the one that follows it does."""
    await scene.serve()
    scene.open()
    reader, writer = await scene.dial()
    writer.write(b"one")
    assert await reader.readexactly(3) == b"one"
    scene.rules.name = "1/2"
    scene.open()
    writer.write(b"two")
    assert await reader.readexactly(3) == b"two"
    assert scene.served == 1
