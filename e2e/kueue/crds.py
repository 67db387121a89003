"""The kinds of kueue.x-k8s.io/v1beta2 that the stand-in serves: what product or tests touch, no schema of the rest."""

from __future__ import annotations

from typing import Any, Final

Object = dict[str, Any]
GROUP: Final = "kueue.x-k8s.io"
VERSION: Final = "v1beta2"
API: Final = f"/apis/{GROUP}/{VERSION}"
_KEEP: Final[Object] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TEXT: Final[Object] = {"type": "string"}
_CONDITION: Final[Object] = {
    "type": "object",
    "required": ["type", "status", "reason", "message", "lastTransitionTime"],
    "properties": {
        "type": _TEXT,
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": {"type": "string", "minLength": 1},
        "message": {"type": "string", "maxLength": 32768},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "observedGeneration": {"type": "integer"},
    },
}
_CONDITIONS: Final[Object] = {
    "type": "array",
    "maxItems": 16,
    "items": _CONDITION,
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
}
_POD_SETS: Final[Object] = {
    "type": "array",
    "minItems": 1,
    "maxItems": 18,
    "items": {**_KEEP, "required": ["name", "count", "template"], "properties": {"name": _TEXT}},
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
}
_WORKLOAD: Final[Object] = {
    "spec": {
        **_KEEP,
        "properties": {
            "queueName": _TEXT,
            "active": {"type": "boolean", "default": True},
            "priority": {"type": "integer"},
            "priorityClassRef": {**_KEEP, "properties": {"name": _TEXT}},
            "podSets": _POD_SETS,
        },
        "x-kubernetes-validations": [
            {
                "rule": "!has(self.priorityClassRef) || has(self.priority)",
                "message": "priority should not be nil when priorityClassRef is set",
            }
        ],
    },
    "status": {**_KEEP, "properties": {"conditions": _CONDITIONS}},
}
_KINDS: Final = (
    ("Workload", "workloads", True, _WORKLOAD),
    ("LocalQueue", "localqueues", True, {"spec": _KEEP, "status": _KEEP}),
    ("ClusterQueue", "clusterqueues", False, {"spec": _KEEP, "status": _KEEP}),
    ("ResourceFlavor", "resourceflavors", False, {"spec": _KEEP}),
    ("WorkloadPriorityClass", "workloadpriorityclasses", False, {"value": {"type": "integer"}, "description": _TEXT}),
)


def definitions() -> list[Object]:
    """Build the CRDs."""
    return [_definition(*each) for each in _KINDS]


def _definition(kind: str, plural: str, namespaced: bool, properties: Object) -> Object:
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}} if "status" in properties else {},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in on a test's own cluster"},
        },
        "spec": {
            "group": GROUP,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": [version],
        },
    }
