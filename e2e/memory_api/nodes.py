"""What scheduler and kubelets do to pods, one step at a time and only when a test says so."""

from __future__ import annotations

from e2e.memory_api.requests import Request
from e2e.memory_api.server import MemoryServer
from hajob.api.base import Json
from hajob.kube.client import PatchKind, object_path


class Nodes:
    """Hands on the pods of one server."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server

    def bind(self, namespace: str, name: str, node: str) -> Json:
        """The scheduler gives a pod to a node."""
        path = object_path("pods", namespace, name, "binding")
        target = {"kind": "Node", "name": node}
        return self._ask("POST", path, {"metadata": {"name": name}, "target": target})

    def run(self, namespace: str, name: str, address: str = "", *, ready: bool = True) -> Json:
        """The kubelet has started a pod."""
        conditions = [{"type": "Ready", "status": str(ready)}]
        return self._status(namespace, name, {"phase": "Running", "podIP": address, "conditions": conditions})

    def end(self, namespace: str, name: str, exit_code: int = 0) -> Json:
        """A pod's containers have ended."""
        pod = self._ask("GET", object_path("pods", namespace, name))
        terminated = {"state": {"terminated": {"exitCode": exit_code}}}
        ended = [{"name": each["name"], **terminated} for each in pod["spec"]["containers"]]
        phase = "Failed" if exit_code else "Succeeded"
        return self._status(namespace, name, {"phase": phase, "containerStatuses": ended})

    def remove(self, namespace: str, name: str) -> Json:
        """The kubelet has ended a pod that is being deleted, and takes it from the server."""
        return self._ask("DELETE", object_path("pods", namespace, name), {"gracePeriodSeconds": 0})

    def _status(self, namespace: str, name: str, status: Json) -> Json:
        path = object_path("pods", namespace, name, "status")
        return self._ask("PATCH", path, {"status": status}, PatchKind.MERGE)

    def _ask(self, method: str, path: str, body: Json | None = None, content_type: str = "application/json") -> Json:
        return self._server.handle(Request(method, path, {}, body, content_type, "kubelet"))
