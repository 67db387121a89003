"""Objects of a cluster as commands read and change them: by path, with the rights of the person who types.

For the commands that change something; tests stand a fake behind it. A refusal is a `ClusterError` with a sentence.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from hajob.api import constants as names
from hajob.cli.cluster import ClusterError, ForbiddenError, sentence_of_refusal
from hajob.cli.connection import REQUEST_SECONDS, Reply, open_connection
from hajob.clock import SystemClock
from hajob.sources.reading import items

if TYPE_CHECKING:
    from hajob.api.base import Json

_MERGE: Final = "application/merge-patch+json"
_JSON: Final = "application/json"

QUARANTINES: Final = f"/apis/{names.API_VERSION}/{names.QUARANTINES}"
JOBS: Final = f"/apis/{names.API_VERSION}/{names.PLURAL}"
NODES: Final = "/api/v1/nodes"


FIELD_MANAGER: Final = "kubectl-hajob"
"""Who has written a field, as the server keeps it."""


def path_of_job(namespace: str, name: str) -> str:
    """Return the path of a HATrainingJob."""
    # Names come from command lines and addresses of the page: one with a slash must not lead to another object.
    where, which = quote(namespace, safe=""), quote(name, safe="")
    return f"/apis/{names.API_VERSION}/namespaces/{where}/{names.PLURAL}/{which}"


def find_job(objects: ReadObjects, namespace: str, name: str) -> Json:
    """Return a HATrainingJob.

    Raises:
        ClusterError: there is none of this name, or the cluster refuses.
    """
    found = objects.find_object(path_of_job(namespace, name))
    if found is None:
        raise ClusterError(f"there is no HATrainingJob {name} in namespace {namespace}")
    return found


def find_node(objects: ReadObjects, name: str) -> Json:
    """Return a node.

    Raises:
        ClusterError: there is none of this name, or the cluster refuses.
    """
    found = objects.find_object(f"{NODES}/{quote(name, safe='')}")
    if found is None:
        raise ClusterError(f"there is no node {name}: kubectl get nodes names them")
    return found


def job_asked_for(arguments: argparse.Namespace) -> tuple[KubernetesObjects, str, str, int]:
    """Return the cluster, namespace and name of the job that a command is about, and the time in milliseconds."""
    objects = KubernetesObjects(context=arguments.context)
    namespace = arguments.namespace or objects.namespace
    return objects, namespace, arguments.job, SystemClock().now_milliseconds()


def listed(objects: ReadObjects, path: str, **selectors: str) -> list[Json]:
    """Return the objects of a list; `selectors`: such as labelSelector."""
    asked = "&".join(f"{key}={quote(value)}" for key, value in selectors.items() if value)
    found = objects.find_object(f"{path}?{asked}" if asked else path)
    return _objects_of_list(found or {})


def _objects_of_list(found: Json) -> list[Json]:
    return [one for one in items(found.get("items")) if isinstance(one, dict)]


def path_of_config_maps(namespace: str) -> str:
    """Return the path of a namespace's ConfigMaps."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


class ReadObjects(Protocol):
    """What there is on an API server."""

    def find_object(self, path: str) -> Json | None:
        """Return an object or a list; None where there is none. `ClusterError`: it cannot be read."""


class Objects(ReadObjects, Protocol):
    """Requests to an API server. Every method raises `ClusterError`."""

    def create_object(self, path: str, body: Mapping[str, Any]) -> Json:
        """Create an object in a collection, and return it."""

    def replace_object(self, path: str, body: Mapping[str, Any]) -> Json:
        """Put an object; refused where it has changed since it was read."""

    def patch_object(self, path: str, body: Mapping[str, Any]) -> Json:
        """Change an object by a merge patch."""

    def delete_object(self, path: str) -> None:
        """Delete an object; that it is gone already is as good."""


class KubernetesObjects:
    """Requests to the cluster of a kubeconfig: the one given, `$KUBECONFIG` or ~/.kube/config, as kubectl takes it."""

    def __init__(
        self, kubeconfig: str | None = None, context: str | None = None, seconds: float = REQUEST_SECONDS
    ) -> None:
        self._connection = open_connection(kubeconfig, context, seconds)
        self.namespace: str = self._connection.default_namespace

    def find_object(self, path: str) -> Json | None:
        """Return an object or a list; None where there is none."""
        try:
            return self._change_object("GET", path)
        except AbsentError:
            return None

    def read_text(self, path: str) -> str:
        """Return what is at a path that holds no JSON, such as a log."""
        return self._send_request("GET", path, {"Accept": "*/*"}).content.decode(errors="replace")

    def create_object(self, path: str, body: Mapping[str, Any]) -> Json:
        """Create an object in a collection, and return it."""
        return self._change_object("POST", path, body)

    def replace_object(self, path: str, body: Mapping[str, Any]) -> Json:
        """Put an object; refused where it has changed since it was read."""
        return self._change_object("PUT", path, body)

    def patch_object(self, path: str, body: Mapping[str, Any]) -> Json:
        """Change an object by a merge patch."""
        return self._change_object("PATCH", path, body, _MERGE)

    def delete_object(self, path: str) -> None:
        """Delete an object; that it is gone already is as good."""
        with suppress(AbsentError):
            self._change_object("DELETE", path)

    def _change_object(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, content: str = _JSON
    ) -> Json:
        """Send a request whose answer is JSON."""
        headers = {"Accept": _JSON, **({"Content-Type": content} if body is not None else {})}
        reply = self._send_request(method, path, headers, body)
        try:
            found = json.loads(reply.content)
        except ValueError:
            raise ClusterError(f"{method} {path}: the answer is no JSON") from None
        # What stands before the server, such as a gateway, may answer in a way of its own.
        if not isinstance(found, dict):
            raise ClusterError(f"{method} {path}: the answer is no object of Kubernetes")
        # Whoever reads a list takes its objects for what they are.
        return found if "items" not in found else {**found, "items": _objects_of_list(found)}

    def _send_request(
        self, method: str, path: str, headers: Mapping[str, str], body: Mapping[str, Any] | None = None
    ) -> Reply:
        # The server keeps who has written each field, by this name.
        owned = path if body is None else f"{path}{'&' if '?' in path else '?'}fieldManager={FIELD_MANAGER}"
        try:
            reply = self._connection.send_request(method, owned, headers, None if body is None else dict(body))
        except OSError as problem:
            raise ClusterError(f"{method} {path}: the API server cannot be reached: {problem}") from None
        if not 200 <= reply.status < 300:
            kind = {403: ForbiddenError, 404: AbsentError}.get(reply.status, ClusterError)
            usual = f"{reply.status} {reply.reason}"
            raise kind(f"{method} {path}: {sentence_of_refusal(reply.content, usual)}")
        return reply


class AbsentError(ClusterError):
    """There is nothing at the path."""
