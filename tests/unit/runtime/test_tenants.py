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
from hajob.runtime.caches import Caches
from hajob.runtime.core import OperatorCore
from hajob.runtime.kube import ApiError
from hajob.runtime.ports import Ports
from hajob.runtime.tenants import PATIENCE_SECONDS, Tenants
from hajob.sources.pod import ForeignPod
from hajob.sources.quota import Quota
from tests.rigs.fake_clock import FakeClock, settle
from tests.rigs.fake_kube import FakeKube

CHIPS = {names.DEFAULT_RESOURCE_NAME: "8"}


class Told:
    """What the tenants did, in order."""

    def __init__(self, *namespaces: str) -> None:
        self.clock = FakeClock()
        self.kube = FakeKube(self.clock)
        self.pods: list[tuple[str, str]] = []
        self.quotas: list[tuple[str, str, int | None]] = []
        self.tenants = Tenants(self.kube, self.clock, namespaces or ("",), self._pod, self._quota)
        self.tasks = [asyncio.create_task(informer.run()) for informer in self.tenants.informers]

    def _pod(self, now: ForeignPod | None, before: ForeignPod | None) -> None:
        self.pods.append((before.node_name if before else "", now.node_name if now else ""))

    def _quota(self, namespace: str, name: str, quota: Quota | None) -> None:
        self.quotas.append((namespace, name, dict(quota.used).get("pods") if quota is not None else None))

    def put(self, phase: str = "Running", labels: dict[str, str] | None = None, **spec: Any) -> None:
        body = {"containers": [{"name": "main", "resources": {"limits": CHIPS}}], **spec}
        metadata = {"name": "theirs", "labels": labels or {}}
        self.kube.put("pods", "b", {"metadata": metadata, "spec": body, "status": {"phase": phase}})


@pytest.fixture
async def told() -> AsyncIterator[Told]:
    made = Told()
    await settle()
    yield made
    for task in made.tasks:
        task.cancel()


async def test_a_pod_with_chips_occupies_its_node_until_it_ends(told: Told) -> None:
    told.put()
    await settle()
    told.put(nodeName="node-1")
    await settle()
    told.put("Succeeded", nodeName="node-1")
    await settle()
    assert told.pods[-2:] == [("", "node-1"), ("node-1", "")]


async def test_pods_of_jobs_are_none_of_the_others(told: Told) -> None:
    told.put(nodeName="node-1", labels={names.LABEL_JOB_UID: "uid-1"})
    await settle()
    assert told.pods == []


async def test_a_changed_quota_is_told_and_one_that_goes(told: Told) -> None:
    quota: dict[str, Any] = {"metadata": {"name": "q"}, "status": {"hard": {"pods": "5"}, "used": {"pods": "5"}}}
    told.kube.put("resourcequotas", "b", quota)
    await settle()
    quota["status"]["used"] = {"pods": "4"}
    told.kube.put("resourcequotas", "b", quota)
    await settle()
    await told.kube.delete("resourcequotas", "b", "q")
    await settle()
    assert told.quotas == [("b", "q", 5000), ("b", "q", 4000), ("b", "q", None)]


async def test_an_operator_that_may_not_list_them_starts_all_the_same() -> None:
    told = Told()
    told.kube.fail(*[ApiError(403, "Forbidden", "no")] * 100)
    waiting = asyncio.create_task(told.tenants.synced())
    await told.clock.advance(PATIENCE_SECONDS + 1)
    assert waiting.done()
    for task in told.tasks:
        task.cancel()


async def test_ten_thousand_pods_of_others_take_six_megabytes(told: Told) -> None:
    core = OperatorCore(cast("Ports", SimpleNamespace(capacity_watchers=())), Caches())
    told.tenants = Tenants(told.kube, told.clock, ("",), core.foreign_pod_changed, print)
    gc.collect()
    tracemalloc.start()
    for number in range(10_000):
        uid = f"0f8fad5b-d9cb-469f-a165-{number:012}"
        metadata = {"name": f"other-{number:05}", "namespace": "others", "uid": uid}
        spec = {"nodeName": f"node-{number % 1000}", "containers": [{"resources": {"limits": CHIPS}}]}
        raw = json.dumps({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})
        told.tenants.informers[0]._take(json.loads(raw))
    gc.collect()  # what other tests have left behind is none of theirs
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(told.tenants.informers[0]) == 10_000
    assert taken < 6e6
