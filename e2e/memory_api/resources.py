"""The resources that the server in memory serves, and how a request's path names one of their objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from e2e.memory_api.errors import no_such_path
from hajob.api import constants as names
from hajob.kube.client import ApiError


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object.

    Attributes:
        plural: its name in paths.
        kind: its name in objects.
        group: its API group; empty for the core.
        version: of the group.
        namespaced: whether its objects live in namespaces.
        status: whether it has a status subresource.
        generation: whether its generation counts changes of the spec.
        fields: what a field selector may name, beyond name and namespace.
    """

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    status: bool = False
    generation: bool = False
    fields: Sequence[str] = ()

    @property
    def api_version(self) -> str:
        """As objects name it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """Where it is served."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    @property
    def qualified(self) -> str:
        """Plural and group, as refusals name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """Kind and group, as refusals name it; Events are still those of the core group inside the server."""
        return f"{self.kind}.{self.group}" if self.group and self.kind != "Event" else self.kind

    @property
    def foreign(self) -> bool:
        """Whether somebody else's CRD defines it: its schema takes anything here."""
        return self.group in {names.VOLCANO_GROUP, names.KUEUE_GROUP}

    @property
    def custom(self) -> bool:
        """Whether a CRD defines it."""
        return self.group == names.GROUP


POD_FIELDS: Final = ("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "status.phase", "status.podIP")
NAMESPACES: Final = Resource("namespaces", "Namespace", namespaced=False, status=True, fields=("status.phase",))
PODS: Final = Resource("pods", "Pod", status=True, generation=True, fields=POD_FIELDS)
QUOTAS: Final = Resource("resourcequotas", "ResourceQuota", status=True)
BUDGETS: Final = Resource("poddisruptionbudgets", "PodDisruptionBudget", "policy", status=True, generation=True)
JOBS: Final = Resource(names.PLURAL, names.KIND, names.GROUP, names.VERSION, status=True, generation=True)
RESOURCES: Final = (
    NAMESPACES,
    PODS,
    QUOTAS,
    BUDGETS,
    JOBS,
    Resource(names.QUARANTINES, names.QUARANTINE_KIND, names.GROUP, names.VERSION, namespaced=False, generation=True),
    Resource(names.POD_GROUPS, "PodGroup", names.VOLCANO_GROUP, "v1beta1"),
    Resource(names.VOLCANO_QUEUES, "Queue", names.VOLCANO_GROUP, "v1beta1", namespaced=False),
    Resource("configmaps", "ConfigMap"),
    Resource("secrets", "Secret", fields=("type",)),
    Resource("serviceaccounts", "ServiceAccount"),
    Resource("nodes", "Node", namespaced=False, status=True, fields=("spec.unschedulable",)),
    Resource("events", "Event", fields=("involvedObject.uid", "reason", "type")),
    Resource("persistentvolumeclaims", "PersistentVolumeClaim", status=True),
    Resource("leases", "Lease", "coordination.k8s.io"),
    Resource("customresourcedefinitions", "CustomResourceDefinition", "apiextensions.k8s.io", namespaced=False),
    Resource("priorityclasses", "PriorityClass", "scheduling.k8s.io", namespaced=False),
    Resource("workloads", "Workload", names.KUEUE_GROUP, "v1beta2", status=True, generation=True),
    Resource("resourceflavors", "ResourceFlavor", names.KUEUE_GROUP, "v1beta2", namespaced=False),
    Resource("workloadpriorityclasses", "WorkloadPriorityClass", names.KUEUE_GROUP, "v1beta2", namespaced=False),
    Resource("tokenreviews", "TokenReview", "authentication.k8s.io", namespaced=False),
)
SUBRESOURCES: Final = ("status", "eviction", "binding", "token")
BY_PLURAL: Final = {each.plural: each for each in RESOURCES}
BY_KIND: Final = {(each.api_version, each.kind): each for each in RESOURCES}


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: a collection, an object, or a part of it."""

    resource: Resource
    namespace: str
    name: str
    subresource: str


def target(path: str) -> Target:
    """Read a path.

    Raises:
        ApiError: nothing is served there.
    """
    for resource in RESOURCES:
        if path.startswith(resource.path + "/"):
            found = _within(resource, path.removeprefix(resource.path).strip("/").split("/"))
            if found is not None:
                return found
    if path.startswith(("/api/", *(f"{each.path}/" for each in RESOURCES))):
        raise ApiError(404, "NotFound", "the server could not find the requested resource")
    raise no_such_path()


def _within(resource: Resource, parts: list[str]) -> Target | None:
    namespace = ""
    if parts[0] == "namespaces" and resource.namespaced and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    if parts[0] != resource.plural or len(parts) > 3 or parts[2:] not in ([], *([each] for each in SUBRESOURCES)):
        return None
    return Target(resource, namespace, *([*parts[1:], "", ""][:2]))
