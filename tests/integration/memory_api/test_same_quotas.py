"""The server in memory answers as a real one: quotas and disruption budgets."""

from __future__ import annotations

import itertools
from typing import Any

from hajob.api.base import Json
from hajob.kube.client import ApiError, PatchKind
from tests.integration.memory_api.conftest import NO_SCHEDULER, Api

MERGE = {"content_type": str(PatchKind.MERGE)}
CHIPS = "huawei.com/Ascend910"


def pod(name: str, *, cpu: str = "", memory: str = "", chips: str = "", **spec: Any) -> Json:
    resources: Json = {"requests": {"cpu": cpu} if cpu else {}, "limits": {"memory": memory} if memory else {}}
    if chips:
        resources["limits"][CHIPS] = chips
    container = {"name": "c", "image": "i", "resources": resources}
    return {
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"containers": [container], **NO_SCHEDULER, **spec},
    }


async def limit(api: Api, **hard: str) -> None:
    """A quota that its controller has seen."""
    names = {key.replace("__", "/").replace("_", "."): value for key, value in hard.items()}
    await api.ask("POST", f"{api.core}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": names}})
    await api.until(lambda: used(api))


async def used(api: Api) -> dict[str, str]:
    status = (await api.ask("GET", f"{api.core}/resourcequotas/q")).get("status") or {}
    found: dict[str, str] = status.get("used") or {}
    return found


async def over_quota(api: Api, kind: str, body: Json) -> str:
    """Why it is refused.

    A real controller may have counted before it saw the last object, and counts again after five minutes or when the
    quota's spec changes.
    """
    limits = itertools.count(100)

    async def why() -> str:
        try:
            await api.kube.create_object(kind, api.namespace, body, dry_run=True)
        except ApiError as error:
            return f"{error.status} {error.message}"
        changed = {"spec": {"hard": {"count/services": str(next(limits))}}}
        await api.ask("PATCH", f"{api.core}/resourcequotas/q", changed, **MERGE)
        return ""

    return str(await api.until(why))


async def test_a_pod_must_say_what_it_uses(api: Api) -> None:
    await limit(api, requests_cpu="4", limits_memory="1Gi", pods="9")
    refused = await api.refusal("POST", f"{api.core}/pods", pod("a"))
    why = "failed quota: q: must specify limits.memory for: c; requests.cpu for: c"
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert refused.message == f'pods "a" is forbidden: {why}'
    assert refused.details == {"name": "a", "kind": "pods"}


async def test_what_exceeds_a_quota_is_told_in_full(api: Api) -> None:
    await limit(api, requests_cpu="4", limits_memory="1Gi", pods="9", **{f"requests_{CHIPS.replace('.', '_')}": "8"})
    body = pod("a", cpu="8", memory="2Gi", chips="16")
    why = (
        f"exceeded quota: q, requested: limits.memory=2Gi,requests.cpu=8,requests.{CHIPS}=16, "
        f"used: limits.memory=0,requests.cpu=0,requests.{CHIPS}=0, "
        f"limited: limits.memory=1Gi,requests.cpu=4,requests.{CHIPS}=8"
    )
    for query in ({}, {"dryRun": "All"}):
        refused = await api.refusal("POST", f"{api.core}/pods", body, **query)
        assert (refused.status, refused.message) == (403, f'pods "a" is forbidden: {why}')


async def test_a_full_quota_refuses_also_what_is_there(api: Api) -> None:
    await limit(api, pods="1")
    await api.kube.create_object("pods", api.namespace, pod("a", nodeName="nowhere"))
    why = "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"
    for name in ("a", "b"):
        assert await over_quota(api, "pods", pod(name)) == f'403 pods "{name}" is forbidden: {why}'


async def test_a_dry_run_is_checked_and_not_counted(api: Api) -> None:
    await limit(api, pods="1", requests_cpu="500m")
    for _ in range(2):
        await api.kube.create_object("pods", api.namespace, pod("a", cpu="0.25"), dry_run=True)
    await api.kube.create_object("pods", api.namespace, pod("a", cpu="0.25"))

    async def counted_once() -> bool:
        return await used(api) == {"pods": "1", "requests.cpu": "250m"}

    await api.until(counted_once)


async def test_an_ended_or_deleted_pod_gives_its_share_back(api: Api) -> None:
    await limit(api, pods="2")
    for name in ("a", "b"):
        await api.kube.create_object("pods", api.namespace, pod(name, nodeName="nowhere"))
    await api.kube.patch_object("pods", api.namespace, "a", {"status": {"phase": "Succeeded"}}, subresource="status")
    await api.kube.delete_object("pods", api.namespace, "b", grace_seconds=0)

    async def free() -> bool:
        return await used(api) == {"pods": "0"}

    await api.until(free)


async def test_a_quota_counts_objects(api: Api) -> None:
    await limit(api, count__secrets="1")
    await api.kube.create_object("secrets", api.namespace, {"metadata": {"name": "a"}})
    why = "exceeded quota: q, requested: count/secrets=1, used: count/secrets=1, limited: count/secrets=1"
    assert await over_quota(api, "secrets", {"metadata": {"name": "b"}}) == f'403 secrets "b" is forbidden: {why}'


async def running(api: Api, name: str) -> None:
    await api.kube.create_object("pods", api.namespace, pod(name, nodeName="nowhere"))
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await api.kube.patch_object("pods", api.namespace, name, {"status": status}, subresource="status")


def evict(api: Api, name: str) -> tuple[str, str, Json]:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return "POST", f"{api.core}/pods/{name}/eviction", body


async def budget(api: Api, healthy: int, **spec: Any) -> None:
    """A disruption budget that its controller has seen."""
    path = f"/apis/policy/v1/namespaces/{api.namespace}/poddisruptionbudgets"
    selector = {"matchLabels": {"app": "x"}}
    await api.ask("POST", path, {"metadata": {"name": "b"}, "spec": {"selector": selector, **spec}})

    async def seen() -> bool:
        status = (await api.ask("GET", f"{path}/b")).get("status") or {}
        return status.get("observedGeneration") == 1 and status["currentHealthy"] == healthy

    await api.until(seen)


async def test_an_eviction_asks_the_budget(api: Api) -> None:
    await running(api, "a")
    await running(api, "b")
    await budget(api, 2, minAvailable=1)
    await api.ask(*evict(api, "a"))
    gone = await api.kube.get_object("pods", api.namespace, "a")
    assert gone["metadata"]["deletionGracePeriodSeconds"] == 30
    assert gone["status"]["conditions"][-1]["reason"] == "EvictionByEvictionAPI"
    refused = await api.refusal(*evict(api, "b"))
    assert (refused.status, refused.reason) == (429, "TooManyRequests")
    assert refused.message == "Cannot evict pod as it would violate the pod's disruption budget."
    cause = refused.details["causes"][0]
    assert (cause["reason"], "The disruption budget b" in cause["message"]) == ("DisruptionBudget", True)
    assert "deletionTimestamp" not in (await api.kube.get_object("pods", api.namespace, "b"))["metadata"]


async def test_a_budget_says_how_many_it_needs(api: Api) -> None:
    await running(api, "a")
    await budget(api, 1, minAvailable=1)
    refused = await api.refusal(*evict(api, "a"))
    assert refused.details["causes"][0]["message"] == "The disruption budget b needs 1 healthy pods and has 1 currently"


async def test_no_share_of_pods_without_a_scale_may_go(api: Api) -> None:
    """`maxUnavailable` needs a controller with a scale subresource: pods of a job of ours could never be evicted."""
    await running(api, "a")
    await budget(api, 1, maxUnavailable=1)
    refused = await api.refusal(*evict(api, "a"))
    assert refused.details["causes"][0]["message"] == "The disruption budget b does not allow evicting pods currently"


async def test_a_pending_pod_is_evicted_whatever_the_budget(api: Api) -> None:
    await running(api, "a")
    await budget(api, 1, minAvailable=1)
    await api.kube.create_object("pods", api.namespace, pod("p", nodeName="nowhere"))
    await api.ask(*evict(api, "p"))
    assert "deletionTimestamp" in (await api.kube.get_object("pods", api.namespace, "p"))["metadata"]
