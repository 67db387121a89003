"""ResourceQuota: what an object uses, and the refusal where that is too much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from e2e.memory_api.errors import forbidden
from e2e.memory_api.pods import FINISHED
from e2e.memory_api.quantities import milli, written
from e2e.memory_api.resources import PODS, Resource
from hajob.api.base import Json

COMPUTE = frozenset({"cpu", "memory", "ephemeral-storage"})


def used_by(resource: Resource, body: Json) -> Counter[str]:
    """What one object uses of every resource that a quota may limit, in thousandths."""
    use: Counter[str] = Counter({f"count/{resource.qualified}": 1000})
    if resource is not PODS:
        use[resource.plural] = 1000
        return use
    if (body.get("status") or {}).get("phase") in FINISHED:
        return use
    use["pods"] = 1000
    for kind in ("requests", "limits"):
        for name, amount in _asked(body["spec"], kind).items():
            use[f"{kind}.{name}"] += amount
            if kind == "requests" and name in COMPUTE:
                use[name] += amount
    return use


def _asked(spec: Json, kind: str) -> Counter[str]:
    """The containers together, or the largest of those that run before them."""
    total: Counter[str] = Counter()
    for each in spec.get("containers") or []:
        total.update(_amounts(each, kind))
    for each in spec.get("initContainers") or []:
        if each.get("restartPolicy") == "Always":
            total.update(_amounts(each, kind))
            continue
        for name, amount in _amounts(each, kind).items():
            total[name] = max(total[name], amount)
    return total


def _amounts(container: Json, kind: str) -> Counter[str]:
    found = (container.get("resources") or {}).get(kind) or {}
    return Counter({name: milli(amount) for name, amount in found.items()})


def admit(quota: Json, resource: Resource, body: Json) -> Json | None:
    """The quota with the object counted; None where it limits nothing of it.

    Raises:
        ApiError: 403, it must say what it uses, or uses too much.
    """
    hard: dict[str, str] = (quota.get("status") or {}).get("hard") or {}
    used: dict[str, str] = (quota.get("status") or {}).get("used") or {}
    name, title = body["metadata"]["name"], quota["metadata"]["name"]
    if resource is PODS and (missing := _unspecified(hard, body["spec"])):
        told = "; ".join(f"{each} for: {','.join(sorted(where))}" for each, where in sorted(missing.items()))
        raise forbidden(resource.qualified, name, f"failed quota: {title}: must specify {told}")
    asked = {key: amount for key, amount in used_by(resource, body).items() if key in hard}
    after = {key: milli(used.get(key, "0")) + amount for key, amount in asked.items()}
    over = [key for key in sorted(asked) if asked[key] > 0 and after[key] > milli(hard[key])]
    if over:
        requested = ",".join(f"{key}={_shown(key, asked[key], hard)}" for key in over)
        present = ",".join(f"{key}={used.get(key, '0')}" for key in over)
        limited = ",".join(f"{key}={hard[key]}" for key in over)
        why = f"exceeded quota: {title}, requested: {requested}, used: {present}, limited: {limited}"
        raise forbidden(resource.qualified, name, why)
    if not any(asked.values()):
        return None
    counted = {**used, **{key: _shown(key, amount, hard) for key, amount in after.items()}}
    return {**quota, "status": {**quota["status"], "used": counted}}


def _unspecified(hard: Iterable[str], spec: Json) -> dict[str, set[str]]:
    """Limited compute resources that containers do not name, and which do not."""
    missing: dict[str, set[str]] = {}
    for key in hard:
        kind, _, name = key.rpartition(".")
        if name not in COMPUTE or kind not in {"", "requests", "limits"}:
            continue
        for each in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]:
            if name not in ((each.get("resources") or {}).get(kind or "requests") or {}):
                missing.setdefault(key, set()).add(each["name"])
    return missing


def observed(quota: Json, objects: Iterable[tuple[Resource, Json]]) -> Json:
    """The quota's status as its controller computes it."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    total: Counter[str] = Counter()
    for resource, body in objects:
        total.update(used_by(resource, body))
    used = {key: _shown(key, total[key], hard) for key in sorted(hard)}
    return {**quota, "status": {"hard": dict(sorted(hard.items())), "used": used}}


def _shown(key: str, thousandths: int, hard: dict[str, str]) -> str:
    return written(thousandths, binary=hard.get(key, "").endswith("i") or key.endswith("memory"))
