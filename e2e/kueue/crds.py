"""The kinds of kueue.x-k8s.io/v1beta2 that the stand-in serves: what product or tests touch, no schema of the rest."""

from __future__ import annotations

from typing import Final

from e2e.cluster.kinds import ANYTHING, Object, build_kind

GROUP: Final = "kueue.x-k8s.io"
VERSION: Final = "v1beta2"
API_VERSION: Final = f"{GROUP}/{VERSION}"
API: Final = f"/apis/{API_VERSION}"
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
    "items": {**ANYTHING, "required": ["name", "count", "template"], "properties": {"name": _TEXT}},
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
}
_WORKLOAD: Final[Object] = {
    "spec": {
        **ANYTHING,
        "properties": {
            "queueName": _TEXT,
            "active": {"type": "boolean", "default": True},
            "priority": {"type": "integer"},
            "priorityClassRef": {**ANYTHING, "properties": {"name": _TEXT}},
            "podSets": _POD_SETS,
        },
        "x-kubernetes-validations": [
            {
                "rule": "!has(self.priorityClassRef) || has(self.priority)",
                "message": "priority should not be nil when priorityClassRef is set",
            }
        ],
    },
    "status": {**ANYTHING, "properties": {"conditions": _CONDITIONS}},
}
_KINDS: Final = (
    ("Workload", "workloads", True, _WORKLOAD),
    ("LocalQueue", "localqueues", True, {"spec": ANYTHING, "status": ANYTHING}),
    ("ClusterQueue", "clusterqueues", False, {"spec": ANYTHING, "status": ANYTHING}),
    ("ResourceFlavor", "resourceflavors", False, {"spec": ANYTHING}),
    ("WorkloadPriorityClass", "workloadpriorityclasses", False, {"value": {"type": "integer"}, "description": _TEXT}),
    ("AdmissionCheck", "admissionchecks", False, {"spec": ANYTHING, "status": ANYTHING}),
    ("Topology", "topologies", False, {"spec": ANYTHING}),
)

PLURALS: Final = tuple(plural for _, plural, _, _ in _KINDS)
NAMESPACED: Final = frozenset(plural for _, plural, is_namespaced, _ in _KINDS if is_namespaced)


def definitions() -> list[Object]:
    """Build the CRDs."""
    return [
        build_kind(
            API_VERSION,
            kind,
            plural,
            properties,
            is_namespaced=is_namespaced,
            has_status_subresource="status" in properties,
        )
        for kind, plural, is_namespaced, properties in _KINDS
    ]
