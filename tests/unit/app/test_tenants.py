"""Pods of other tenants and quotas, as the API server in memory tells of them."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hajob.api import constants as names
from hajob.app.core import OperatorCore
from hajob.app.tenants import Tenants
from hajob.capacity.caches import Caches
from hajob.capacity.nodes import Capacity
from hajob.job.cluster import Cluster
from hajob.job.ports import Ports
from hajob.kube.client import ApiError
from hajob.kube.informer import PATIENCE_SECONDS
from tests.rigs.fake_clock import settle
from tests.rigs.tenants import EIGHT_CHIPS, RecordedTenants

FRAMES = 20
"""Enough of the stack to see from which test an allocation came."""


@pytest.fixture
async def told() -> AsyncIterator[RecordedTenants]:
    made = RecordedTenants()
    await settle()
    yield made
    for task in made.tasks:
        task.cancel()


async def test_a_pod_with_chips_occupies_its_node_until_it_ends(told: RecordedTenants) -> None:
    told.put()
    await settle()
    told.put(nodeName="node-1")
    await settle()
    told.put("Succeeded", nodeName="node-1")
    await settle()
    assert told.pods[-2:] == [("", "node-1"), ("node-1", "")]


async def test_pods_of_jobs_are_none_of_the_others(told: RecordedTenants) -> None:
    told.put(nodeName="node-1", labels={names.LABEL_JOB_UID: "uid-1"})
    await settle()
    assert told.pods == []


async def test_a_changed_quota_is_told_and_one_that_goes(told: RecordedTenants) -> None:
    quota: dict[str, Any] = {"metadata": {"name": "q"}, "status": {"hard": {"pods": "5"}, "used": {"pods": "5"}}}
    told.kube.put("resourcequotas", "b", quota)
    await settle()
    quota["status"]["used"] = {"pods": "4"}
    told.kube.put("resourcequotas", "b", quota)
    await settle()
    await told.kube.delete_object("resourcequotas", "b", "q")
    await settle()
    assert told.quotas == [("b", "q", 5000), ("b", "q", 4000), ("b", "q", None)]


async def test_an_operator_that_may_not_list_them_starts_all_the_same() -> None:
    told = RecordedTenants()
    told.kube.fail(*[ApiError(403, "Forbidden", "no")] * 100)
    waiting = asyncio.create_task(told.tenants.wait_until_synced())
    await told.clock.advance(PATIENCE_SECONDS + 1)
    assert waiting.done()
    for task in told.tasks:
        task.cancel()


async def test_ten_thousand_pods_of_others_take_six_megabytes(told: RecordedTenants) -> None:
    core = OperatorCore(cast("Ports", SimpleNamespace(cluster=Cluster(told.clock, Capacity()))), Caches())
    told.tenants = Tenants(told.kube, told.clock, ("",), core)
    gc.collect()
    tracemalloc.start(FRAMES)
    for number in range(10_000):
        uid = f"0f8fad5b-d9cb-469f-a165-{number:012}"
        metadata = {"name": f"other-{number:05}", "namespace": "others", "uid": uid}
        spec = {"nodeName": f"node-{number % 1000}", "containers": [{"resources": {"limits": EIGHT_CHIPS}}]}
        raw = json.dumps({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})
        told.tenants.informers[0]._store_object(json.loads(raw))
    gc.collect()
    here = tracemalloc.Filter(True, __file__, all_frames=True)  # threads that other tests have left allocate, too
    taken = sum(one.size for one in tracemalloc.take_snapshot().filter_traces([here]).statistics("filename"))
    tracemalloc.stop()
    assert len(told.tenants.informers[0]) == 10_000
    assert taken < 6e6
