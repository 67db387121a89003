"""torch's own client at the store's port of a pod: it connects once, so whatever the gate does must leave it whole."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

import pytest

from e2e.cluster.loopback import own_address, own_port
from tests.unit.agent.test_store_gate import Rules
from tests.unit.controller_host.test_host import Client, host  # noqa: F401  a fixture
from tests.unit.controller_host.test_torch_store import (  # noqa: F401  fixtures among them
    Rank,
    rank,
    store,
    torch_python,
)
from trainer_sidecar.agent.store_gate import StoreGate

pytestmark = pytest.mark.skipif(
    not torch_python(), reason="no torch: apt-get install python3-torch, or HAJOB_TORCH_PYTHON"
)


async def test_torchs_client_is_held_at_the_gate_and_goes_on(
    store: tuple[Client, int, int],  # noqa: F811
    rank: Callable[..., Rank],  # noqa: F811
) -> None:
    """Before the store is known, and in the middle of a get when the lease has run out."""
    rules, (_, _, store_port) = Rules(), store
    gate = StoreGate(own_address(), own_port(), rules)
    await gate.listen()
    try:
        held, direct = rank(gate.listener.port, 0), rank(store_port, 1)
        held.begin("raw", "add", "ranks", 1)  # a set is not answered
        await asyncio.to_thread(direct.ask, "raw", "set", "ready", "yes")  # both have begun by now, or soon
        assert not await answers(held)
        rules.address, rules.open = f"{own_address()}:{store_port}", True
        gate.changed()
        assert await asyncio.to_thread(held.answer) == 1
        assert await asyncio.to_thread(direct.ask, "raw", "add", "ranks", 1) == 2
        held.begin("raw", "get", "1")
        rules.open = False
        gate.changed()
        await asyncio.to_thread(direct.ask, "raw", "set", "1", "rebuilt")
        assert not await answers(held)
        rules.open = True
        gate.changed()
        assert await asyncio.to_thread(held.answer) == "rebuilt"
    finally:
        await gate.close()


async def answers(client: Rank) -> bool:
    """Whether its answer has come half a second from now."""
    await asyncio.sleep(0.5)
    assert client.process.stdout is not None
    return bool(select.select([client.process.stdout], [], [], 0.0)[0])
