"""What an admin applies before the device plugin, NodeD and a volume provisioner run, and their credentials.

In a real cluster these are manifests and service account tokens; here the node set applies them itself when it
starts, with an admin certificate of its own that it uses for nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from e2e.nodes.api import NodeApiClient, NodeApiError
from e2e.nodes.config import JsonObject

STORAGE_CLASS = "process-nodes"
PROVISIONER = "hajob.io/process-nodes"
_TOKEN_SECONDS = 30 * 24 * 3600
_DEVICE_PLUGIN = ("kube-system", "ascend-device-plugin-sa-910")
_PROVISIONER_ACCOUNT = ("kube-system", "process-nodes-provisioner")
_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Tokens:
    """Bearer tokens of the service accounts."""

    device_plugin: str
    provisioner: str


async def install(admin: NodeApiClient) -> Tokens:
    """Apply everything and return the tokens. Applying twice changes nothing."""
    for path, body in _objects():
        try:
            await admin.request("POST", path, body)
        except NodeApiError as error:
            if error.status != 409:
                raise
    return Tokens(await _token(admin, *_DEVICE_PLUGIN), await _token(admin, *_PROVISIONER_ACCOUNT))


async def _token(admin: NodeApiClient, namespace: str, name: str) -> str:
    spec = {"expirationSeconds": _TOKEN_SECONDS}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = await admin.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", body)
    return str(answer["status"]["token"])


def _objects() -> list[tuple[str, JsonObject]]:
    device_rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update", "delete"]},
    ]
    provisioner_rules = [
        {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["create", "delete"]},
    ]
    return [
        *(("/api/v1/namespaces", _named("v1", "Namespace", name)) for name in ("kube-system", "mindx-dl")),
        *_account(*_DEVICE_PLUGIN, device_rules),
        *_account(*_PROVISIONER_ACCOUNT, provisioner_rules),
        ("/apis/storage.k8s.io/v1/storageclasses", _storage_class()),
    ]


def _named(version: str, kind: str, name: str, namespace: str = "") -> JsonObject:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _account(namespace: str, name: str, rules: list[JsonObject]) -> list[tuple[str, JsonObject]]:
    role = _named(f"{_RBAC}/v1", "ClusterRole", name) | {"rules": rules}
    binding = _named(f"{_RBAC}/v1", "ClusterRoleBinding", name)
    binding["roleRef"] = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name}
    binding["subjects"] = [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
    account = _named("v1", "ServiceAccount", name, namespace)
    return [
        (f"/api/v1/namespaces/{namespace}/serviceaccounts", account),
        (f"/apis/{_RBAC}/v1/clusterroles", role),
        (f"/apis/{_RBAC}/v1/clusterrolebindings", binding),
    ]


def _storage_class() -> JsonObject:
    body = _named("storage.k8s.io/v1", "StorageClass", STORAGE_CLASS)
    body["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    return body | {"provisioner": PROVISIONER, "volumeBindingMode": "Immediate", "reclaimPolicy": "Delete"}
