"""What other tenants do on a real API server: their pods, and what the quota controller writes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from hajob.api import constants as names
from hajob.app.core import OperatorCore
from hajob.app.tenants import Tenants
from hajob.clock import SystemClock
from hajob.kube.http import HttpKube
from hajob.sources.pod import ForeignPod
from hajob.sources.quota import Quota, quota_view_of, use_of_pod

Body = dict[str, Any]


async def until(what: str, found: Any) -> None:
    for _ in range(600):
        if found():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(what)


async def test_pods_of_others_and_quotas_are_told(kube: HttpKube, namespace: str) -> None:
    pods: list[ForeignPod | None] = []
    quotas: list[Quota | None] = []

    def pod_changed(now: ForeignPod | None, before: ForeignPod | None) -> None:
        if namespace in {one.key.partition("/")[0] for one in (now, before) if one is not None}:
            pods.append(now)

    def quota_changed(_: str, __: str, quota: Quota | None) -> None:
        quotas.append(quota)

    core = SimpleNamespace(handle_changed_foreign_pod=pod_changed, handle_changed_quota=quota_changed)
    tenants = Tenants(kube, SystemClock(), (namespace,), cast("OperatorCore", core))
    tasks = [asyncio.create_task(informer.list_and_watch()) for informer in tenants.informers]
    try:
        await tenants.wait_until_synced()
        chips = {"limits": {names.DEFAULT_RESOURCE_NAME: "8"}, "requests": {names.DEFAULT_RESOURCE_NAME: "8"}}
        container = {"name": "main", "image": "example/other:1", "resources": chips}
        spec = {"nodeName": f"node-of-{namespace}", "containers": [container], "terminationGracePeriodSeconds": 0}
        body: Body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "theirs"}, "spec": spec}
        await kube.create_object("pods", namespace, body)
        await until("a pod that occupies a node", lambda: [one for one in pods if one is not None])
        assert pods[-1] is not None
        assert pods[-1].requests == ((names.DEFAULT_RESOURCE_NAME, 8),)
        await kube.delete_object("pods", namespace, "theirs", grace_seconds=0)
        await until("the pod to be gone", lambda: pods[-1] is None)
        quota: Body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
        await kube.create_object("resourcequotas", namespace, quota | {"spec": {"hard": {"pods": "3"}}})
        await until("the quota, and what is used of it", lambda: quotas and quotas[-1] and quotas[-1].used)
        assert quotas[-1] == Quota(namespace, "q", (("pods", 3000),), (("pods", 0),))
        await kube.delete_object("resourcequotas", namespace, "q")
        await until("the quota to be gone", lambda: quotas[-1] is None)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_pod_uses_of_a_quota_what_the_server_counts(kube: HttpKube, namespace: str) -> None:
    """Sidecars, init containers, chips that are only limited: the server fills in and adds up."""
    hard = dict.fromkeys(("pods", "cpu", "limits.cpu", f"requests.{names.DEFAULT_RESOURCE_NAME}"), "1000")
    hard |= {"requests.memory": "100Gi", "limits.memory": "100Gi", "count/pods": "9"}
    await kube.create_object("resourcequotas", namespace, {"metadata": {"name": "q"}, "spec": {"hard": hard}})

    def container(name: str, cpu: str, memory: str, **more: Any) -> Body:
        asked = {"cpu": cpu, "memory": memory}
        limits = {**asked, names.DEFAULT_RESOURCE_NAME: "2"} if name == "main" else asked
        return {"name": name, "image": "example/other:1", "resources": {"requests": asked, "limits": limits}, **more}

    before = [container("copy", "3", "1Mi"), container("beside", "250m", "1Gi", restartPolicy="Always")]
    spec = {
        "containers": [container("main", "1500m", "3Gi")],
        "initContainers": [*before, container("last", "2", "1k")],
    }

    async def told() -> Quota:
        return quota_view_of(await kube.get_object("resourcequotas", namespace, "q"))

    for _ in range(600):
        if (await told()).used:
            break
        await asyncio.sleep(0.1)
    made = await kube.create_object("pods", namespace, {"metadata": {"name": "ours"}, "spec": spec})
    use = dict(use_of_pod(made["spec"]))
    assert dict((await told()).used) == {name: use[name] for name in hard}
