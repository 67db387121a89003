"""Evictions, and the budgets that refuse them."""

from __future__ import annotations

from e2e.memory_api.errors import budget_violated
from e2e.memory_api.history import History
from e2e.memory_api.pods import FINISHED, is_ready
from e2e.memory_api.resources import BUDGETS, PODS
from e2e.memory_api.selectors import selector_of
from hajob.api.base import Json


def evict(history: History, pod: Json, now: str, *, dry_run: bool) -> Json:
    """The pod, marked as evicted and to be deleted, if its budget allows it; nothing changes in a dry run.

    Raises:
        ApiError: 429, it does not.
    """
    metadata, status = pod["metadata"], pod.get("status") or {}
    if status.get("phase") not in {*FINISHED, "Pending"} and not metadata.get("deletionTimestamp"):
        for budget in budgets_of(history, pod):
            _spend(history, budget, pod, dry_run=dry_run)
    if dry_run:
        return pod
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }
    conditions = [*(status.get("conditions") or []), target]
    return history.put(PODS.plural, {**pod, "status": {**status, "conditions": conditions}})


def budgets_of(history: History, pod: Json) -> list[Json]:
    """The budgets that select a pod."""
    namespace = pod["metadata"]["namespace"]
    return [
        budget
        for budget in history.all(BUDGETS.plural)
        if budget["metadata"]["namespace"] == namespace and selector_of(budget["spec"].get("selector") or {})(pod)
    ]


def _spend(history: History, budget: Json, pod: Json, *, dry_run: bool) -> None:
    name, status = budget["metadata"]["name"], budget.get("status") or {}
    if status.get("observedGeneration", 0) < budget["metadata"]["generation"]:
        raise budget_violated(f"The disruption budget {name} is still being processed by the server.")
    healthy = status["currentHealthy"] >= status["desiredHealthy"] and status["desiredHealthy"] > 0
    if not is_ready(pod) and healthy:  # an unhealthy pod may go where the budget is kept without it
        return
    if status["disruptionsAllowed"] <= 0:
        needed, present = status["desiredHealthy"], status["currentHealthy"]
        if needed > 0:
            raise budget_violated(
                f"The disruption budget {name} needs {needed} healthy pods and has {present} currently"
            )
        raise budget_violated(f"The disruption budget {name} does not allow evicting pods currently")
    if not dry_run:
        left = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1}
        history.put(BUDGETS.plural, {**budget, "status": left})


def observed(budget: Json, pods: list[Json]) -> Json:
    """The budget's status as its controller computes it.

    `maxUnavailable` and shares need a controller with a scale, which no pod of a HATrainingJob has: nothing may go.
    """
    matches = selector_of(budget["spec"].get("selector") or {})
    namespace = budget["metadata"]["namespace"]
    mine = [
        pod
        for pod in pods
        if pod["metadata"]["namespace"] == namespace and matches(pod) and pod["status"].get("phase") not in FINISHED
    ]
    healthy = sum(is_ready(pod) and not pod["metadata"].get("deletionTimestamp") for pod in mine)
    least = budget["spec"].get("minAvailable")
    if isinstance(least, int):
        expected, desired = len(mine), least
        allowed = max(0, healthy - desired) if expected else 0
    else:
        expected = desired = allowed = 0
    status = {
        "observedGeneration": budget["metadata"]["generation"],
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
    }
    return {**budget, "status": status}
