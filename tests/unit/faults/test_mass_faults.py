"""Many nodes break at once: a whole operator on the server in memory, fed with the objects of the device plugins.

The rack of docs/internals/benchmarks.md is measured on a real server; here is what must follow, by a clock that the
test moves.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.cli.injection import Injection, InjectionKind, device_config_map, device_map_name
from tests.rigs.metrics import sample
from tests.rigs.operator import LedOperator, OperatorWorld

NODES = 500
RACK = 50
SETTINGS = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {
        "name": "hajob-faults",
        "namespace": "hajob-system",
        "labels": {"training.hajob.io/settings": "faults"},
    },
    "data": {"quarantine": "idleChips: true"},  # no job runs here
}


class Mass:
    """A cluster of many nodes under an operator that leads."""

    def __init__(self) -> None:
        self.world = OperatorWorld()
        self.led = LedOperator(self.world)

    async def begin(self) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}
        await self.world.kube.create_object("namespaces", "", body)
        await self.world.kube.create_object("configmaps", "hajob-system", SETTINGS)
        for number in range(NODES):
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}}
            await self.world.kube.create_object("nodes", "", body)
        await self.led.wait_until_leading()
        await self.passes(10)

    async def passes(self, seconds: float) -> None:
        for _ in range(int(seconds * 2)):
            await self.world.clock.advance(0.5)

    async def break_(self, nodes: Iterable[int], kind: InjectionKind = InjectionKind.CHIP) -> None:
        now = self.world.clock.now_milliseconds()
        for number in nodes:
            chip = 3 if kind is InjectionKind.CHIP else None
            body = device_config_map(None, Injection.with_usual_values(kind, f"n{number}", chip), now)
            if kind is InjectionKind.RECOVER:
                await self.world.kube.delete_object("configmaps", "kube-system", device_map_name(f"n{number}"))
            else:
                await self.world.kube.create_object("configmaps", "kube-system", body)

    async def quarantined(self) -> set[str]:
        pages = self.world.kube.list_pages(names.QUARANTINES)
        return {raw["metadata"]["name"] async for page in pages for raw in page.items}

    async def told(self) -> dict[str, Any]:
        """What an admin is told at /faults."""
        found: dict[str, Any] = json.loads(await self.led.asked("/faults"))
        return found


@pytest.fixture
async def mass() -> AsyncIterator[Mass]:
    made = Mass()
    await made.begin()
    yield made
    await made.led.end()


async def test_a_rack_that_breaks_is_kept_out_within_a_second(mass: Mass) -> None:
    await mass.break_(range(RACK))
    await mass.passes(1)
    assert (await mass.told())["held"] == ""
    assert await mass.quarantined() == {f"n{number}" for number in range(RACK)}
    assert sample("hajob_quarantined_nodes") == RACK


async def test_a_flood_isolates_nothing_until_an_admin_believes_it(mass: Mass) -> None:
    await mass.break_(range(3 * RACK))
    await mass.passes(120)
    told = await mass.quarantined()
    assert f"{3 * RACK} of {NODES};" in (await mass.told())["held"]
    assert len(told) <= NODES // 5, "what came before the breaker opened, at most the cap"
    believed = {"metadata": {"annotations": {"training.hajob.io/believe-faults": "now"}}}
    await mass.world.kube.patch_object("configmaps", "hajob-system", "hajob-faults", believed)
    await mass.passes(10)
    assert (await mass.told())["held"] == ""
    assert len(await mass.quarantined()) == NODES // 5, "the operator by itself keeps out a fifth of the nodes"


async def test_a_false_alarm_that_is_taken_back_leaves_nothing(mass: Mass) -> None:
    await mass.break_(range(RACK, 4 * RACK))
    await mass.passes(5)
    before = await mass.quarantined()
    await mass.break_(range(RACK, 4 * RACK), InjectionKind.RECOVER)
    await mass.passes(120)
    assert (await mass.told())["held"] == ""
    assert await mass.quarantined() == before
    assert (await mass.told())["standing"] == 0
