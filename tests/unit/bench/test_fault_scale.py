"""A small flood on a replayed watch loses nothing, and every number stands beside its limit."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp.test_utils import TestServer

from e2e.bench import fault_scale, replay_server, watch_path
from hajob.cli.injection import Injection, InjectionKind, device_config_map


async def small_flood() -> dict[str, Any]:
    broken = device_config_map(None, Injection.with_usual_values(InjectionKind.CHIP, "node-5", 3), 1_795_255_200_000)
    broken["metadata"] |= {"resourceVersion": "1", "uid": "broken"}
    async with TestServer(replay_server.application(50, 200, [broken])) as server:
        url = str(server.make_url("")).rstrip("/")
        return await asyncio.wait_for(watch_path.measure(url, (200, 1)), 60)


async def test_a_small_flood_loses_nothing() -> None:
    found = await small_flood()
    assert (found["taken"], found["newest"], found["pods"], len(found["told"])) == (200, 200, 200, 1)


def test_each_number_stands_beside_its_limit() -> None:
    flood = {"expected": 120_000, "taken": 119_999, "after_seconds": 0.5}
    found = fault_scale.Found([10.0] * 99 + [300.0], flood, 1.0, 2.0, 150, 3.0, 100.0)
    verdicts = {one.name.rpartition(": ")[2]: one.verdict for one in fault_scale.rows(found)}
    assert verdicts["fault written -> order"] == "ok"
    assert verdicts["fault written -> order, 99th of 100"] == "missed"
    assert verdicts["lost"] == "missed"
    assert [verdict for verdict in verdicts.values() if verdict == "missed"] == ["missed", "missed"]
