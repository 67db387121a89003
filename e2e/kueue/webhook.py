"""What Kueue's webhooks refuse and add. Pure: an AdmissionReview's request in, a verdict out."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from e2e.kueue.world import Configuration, World, holds

Object = dict[str, Any]
QUEUE: Final = "kueue.x-k8s.io/queue-name"
MANAGED: Final = "kueue.x-k8s.io/managed"
GATE: Final = "kueue.x-k8s.io/admission"
HATRAININGJOB: Final = "HATrainingJob"


@dataclass(frozen=True)
class Verdict:
    """What a webhook answers.

    Attributes:
        refusal: why it is refused; empty: it is not.
        code: HTTP status of the refusal.
        patch: what is added, as a JSON patch.
    """

    refusal: str = ""
    code: int = 403
    patch: list[Object] = field(default_factory=list)

    def to_review(self, uid: str) -> Object:
        """Return the answer to the API server."""
        response: Object = {"uid": uid, "allowed": not self.refusal}
        if self.refusal:
            response["status"] = {"code": self.code, "message": self.refusal}
        if self.patch:
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(self.patch).encode()).decode()}
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def verdict_on_workload(request: Object) -> Verdict:
    """Return what is said of a Workload that is created or changed."""
    new, old = request.get("object") or {}, request.get("oldObject")
    if old is None:
        return Verdict()
    refusals = [*_spec_refusals(old, new), *_status_refusals(old, new)]
    return Verdict("; ".join(text for _, text in refusals), refusals[0][0]) if refusals else Verdict()


def _spec_refusals(old: Object, new: Object) -> Iterator[tuple[int, str]]:
    if not (holds(old, "QuotaReserved") and holds(new, "QuotaReserved")):
        return
    before, after = old["spec"], new["spec"]
    if before.get("queueName") != after.get("queueName"):
        yield 422, "spec.queueName: Invalid value: queueName is immutable while workload quota reserved"
    if before.get("priorityClassRef") and not after.get("priorityClassRef"):
        yield 422, "spec.priorityClassRef: Invalid value: priorityClassRef is immutable while workload quota reserved"
    counts = {one["name"]: one["count"] for one in before["podSets"]}
    same = [{**one, "count": 0} for one in before["podSets"]] == [{**one, "count": 0} for one in after["podSets"]]
    if not same or any(one["count"] > counts[one["name"]] for one in after["podSets"]):
        yield 403, "spec.podSets: Forbidden: field is immutable"


def _status_refusals(old: Object, new: Object) -> Iterator[tuple[int, str]]:
    before, after = old.get("status") or {}, new.get("status") or {}
    if holds(new, "QuotaReserved") and not after.get("admission"):
        yield 403, "status.admission: Forbidden: must be set while the QuotaReserved condition is true"
    elif _without_nodes(before) and _without_nodes(after) and _without_nodes(before) != _without_nodes(after):
        yield 403, "status.admission: Forbidden: field is immutable"
    if not holds(new, "QuotaReserved"):
        return
    reclaimed = {one["name"]: one["count"] for one in after.get("reclaimablePods") or []}
    for one in before.get("reclaimablePods") or []:
        if one["name"] not in reclaimed:
            yield 403, f"status.reclaimablePods[{one['name']}]: Required value: cannot be removed"
        elif reclaimed[one["name"]] < one["count"]:
            yield 403, f"status.reclaimablePods[{one['name']}]: Forbidden: cannot be less than {one['count']}"


def _without_nodes(status: Object) -> Object | None:
    """Return what may not change of an admission: Kueue itself replaces the nodes of a topology."""
    admission = status.get("admission")
    if not admission:
        return None
    given = [{**one, "topologyAssignment": None} for one in admission.get("podSetAssignments") or []]
    return {**admission, "podSetAssignments": given}


def controlling_job(pod: Object) -> str:
    """Return the name of the HATrainingJob that controls a pod; empty for none."""
    owners = (pod.get("metadata") or {}).get("ownerReferences") or []
    return next((one["name"] for one in owners if one.get("controller") and one.get("kind") == HATRAININGJOB), "")


def verdict_on_pod(request: Object, world: World, configuration: Configuration, jobs: dict[str, Object]) -> Verdict:
    """Return what is said of a pod that is created: one that Kueue takes gets its gate, and waits by itself.

    Args:
        request: of the API server.
        world: what is stored.
        configuration: of the manager.
        jobs: HATrainingJobs of the namespace, by name.
    """
    pod, old = request.get("object") or {}, request.get("oldObject")
    owner = controlling_job(pod)
    if old is None and owner and configuration.knows_jobs and owner not in jobs:
        return Verdict(f'hatrainingjobs.training.hajob.io "{owner}" not found', 404)
    if old is not None or not _is_taken(request["namespace"], pod, world, configuration, jobs):
        return Verdict()
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    labels = {QUEUE: "default", **(metadata.get("labels") or {}), MANAGED: "true"}
    gates = [*(spec.get("schedulingGates") or []), {"name": GATE}]
    return Verdict(
        patch=[
            {"op": "add", "path": "/metadata/labels", "value": labels},
            {"op": "add", "path": "/metadata/finalizers", "value": [*(metadata.get("finalizers") or []), MANAGED]},
            {"op": "add", "path": "/spec/schedulingGates", "value": gates},
        ]
    )


def _is_taken(namespace: str, pod: Object, world: World, configuration: Configuration, jobs: dict[str, Object]) -> bool:
    owner = controlling_job(pod)
    if owner and configuration.knows_jobs:
        job = jobs.get(owner) or {}
        if QUEUE in ((job.get("metadata") or {}).get("labels") or {}):
            return False
    labels = (pod.get("metadata") or {}).get("labels") or {}
    return QUEUE in labels or (namespace, "default") in world.local_queues
