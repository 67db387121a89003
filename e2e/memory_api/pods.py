"""What the server does with pods beyond storing them: defaults, validation, what may change, how they are deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from e2e.memory_api.errors import Cause, duplicate, forbidden_field, invalid_value, required, unsupported
from e2e.memory_api.quantities import milli, written
from hajob.api.base import Json

RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
FINISHED: Final = frozenset({"Succeeded", "Failed"})
UNCHANGEABLE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_CHANGEABLE: Final = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
_CHANGEABLE_GATED: Final = ("nodeSelector", "affinity")
_DEFAULTS: Final[Json] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "default",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "priority": 0,
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}
_TOLERATED: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_GATED: Final = "Scheduling is blocked due to non-empty scheduling gates"


def defaulted(body: Json, now: str) -> Json:
    """A new pod as the server stores it."""
    spec = {**_DEFAULTS, **(body.get("spec") or {})}
    for part in ("containers", "initContainers"):
        if spec.get(part):
            spec[part] = [_container(each) for each in spec[part]]
    tolerations = list(spec.get("tolerations") or [])
    for key in _TOLERATED:
        if not any(each.get("key") in {key, None, ""} for each in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    spec["tolerations"] = tolerations
    status: Json = {"phase": "Pending", "qosClass": _quality(spec)}
    if spec.get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": _GATED}
        status["conditions"] = [{**gated, "lastProbeTime": None, "lastTransitionTime": now}]
    return {**body, "spec": spec, "status": status}


def _container(body: Json) -> Json:
    resources = dict(body.get("resources") or {})
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}
    return {**body, "resources": resources}


def _quality(spec: Json) -> str:
    """Burstable is not told from Guaranteed: nothing asks."""
    asked = any(each.get("resources", {}).get("requests") for each in spec.get("containers") or [])
    return "Burstable" if asked else "BestEffort"


def problems(body: Json) -> list[Cause]:
    """What validation says against a pod."""
    spec = body["spec"]
    found = [] if spec.get("containers") else [required("spec.containers")]
    seen: set[str] = set()
    for part in ("initContainers", "containers"):
        for number, each in enumerate(spec.get(part) or []):
            found += _container_problems(f"spec.{part}[{number}]", each, seen)
    if spec["restartPolicy"] not in RESTART_POLICIES:
        found.append(unsupported("spec.restartPolicy", spec["restartPolicy"], RESTART_POLICIES))
    return found


def _container_problems(path: str, body: Json, seen: set[str]) -> Iterator[Cause]:
    name = body.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif name in seen:
        yield duplicate(f"{path}.name", name)
    seen.add(name)
    if not body.get("image"):
        yield required(f"{path}.image")
    for kind in ("limits", "requests"):
        for resource, amount in sorted((body.get("resources") or {}).get(kind, {}).items()):
            if resource not in NATIVE and milli(amount) % 1000:
                field = f"{path}.resources.{kind}[{resource}]"
                yield invalid_value(field, written(milli(amount)), "must be an integer")


def forbidden_changes(old: Json, new: Json) -> list[Cause]:
    """What an update may not do."""
    gates_before = [gate["name"] for gate in old["spec"].get("schedulingGates") or []]
    gates = [gate["name"] for gate in new["spec"].get("schedulingGates") or []]
    added = [(number, gate) for number, gate in enumerate(gates) if gate not in gates_before]
    if added:
        return [
            forbidden_field(
                f"spec.schedulingGates[{number}].name",
                f"only deletion is allowed, but found new scheduling gate '{gate}'",
            )
            for number, gate in added
        ]
    if _fixed(old, gated=bool(gates_before)) != _fixed(new, gated=bool(gates_before)):
        return [forbidden_field("spec", UNCHANGEABLE)]
    return []


def _fixed(body: Json, *, gated: bool) -> Json:
    """The part of the spec that may not change; a gated pod's place may still be narrowed."""
    free = {*_CHANGEABLE, *(_CHANGEABLE_GATED if gated else ())}
    spec = {key: value for key, value in body["spec"].items() if key not in free}
    for part in ("containers", "initContainers"):
        spec[part] = [{**each, "image": ""} for each in spec.get(part) or []]
    return spec


def grace_seconds(body: Json, asked: int | None) -> int:
    """How long a pod may go on after its deletion: nothing ends one that no kubelet has, or that has ended."""
    if not body["spec"].get("nodeName") or body.get("status", {}).get("phase") in FINISHED:
        return 0
    grace = body["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return 1 if grace < 0 else int(grace)


def is_ready(body: Json) -> bool:
    """Whether the kubelet says so."""
    conditions = (body.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
