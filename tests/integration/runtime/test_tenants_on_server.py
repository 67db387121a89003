"""What other tenants do on a real API server: their pods, and what the quota controller writes."""

from __future__ import annotations

import asyncio
from typing import Any

from hajob.api import constants as names
from hajob.runtime.clock import SystemClock
from hajob.runtime.http_kube import HttpKube
from hajob.runtime.tenants import Tenants
from hajob.sources.pod import Stranger

Body = dict[str, Any]


async def until(what: str, found: Any) -> None:
    for _ in range(600):
        if found():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(what)


async def test_pods_of_others_and_quotas_are_told(kube: HttpKube, namespace: str) -> None:
    pods: list[Stranger | None] = []
    quotas: list[str] = []

    def pod_changed(now: Stranger | None, before: Stranger | None) -> None:
        if namespace in {one.key.partition("/")[0] for one in (now, before) if one is not None}:
            pods.append(now)

    tenants = Tenants(kube, SystemClock(), namespace, pod_changed, quotas.append)
    tasks = [asyncio.create_task(informer.run()) for informer in tenants.informers]
    try:
        await tenants.synced()
        chips = {"limits": {names.DEFAULT_RESOURCE_NAME: "8"}, "requests": {names.DEFAULT_RESOURCE_NAME: "8"}}
        container = {"name": "main", "image": "example/other:1", "resources": chips}
        spec = {"nodeName": f"node-of-{namespace}", "containers": [container], "terminationGracePeriodSeconds": 0}
        body: Body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "theirs"}, "spec": spec}
        await kube.create("pods", namespace, body)
        await until("a pod that occupies a node", lambda: [one for one in pods if one is not None])
        assert pods[-1] is not None
        assert pods[-1].requests == ((names.DEFAULT_RESOURCE_NAME, 8),)
        await kube.delete("pods", namespace, "theirs", grace_seconds=0)
        await until("the pod to be gone", lambda: pods[-1] is None)
        quota: Body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
        await kube.create("resourcequotas", namespace, quota | {"spec": {"hard": {"pods": "3"}}})
        await until("the quota, and what is used of it", lambda: quotas.count(namespace) >= 2)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
