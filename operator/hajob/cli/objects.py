"""Objects of a cluster as commands read and change them: by path, with the rights of the person who types.

A port like `hajob.cli.cluster`, for the commands that change something. A refusal is a `ClusterError` with a sentence.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.cli.cluster import ClusterError, ForbiddenError
from hajob.clock import SystemClock

_REQUEST_SECONDS: Final = 30.0
_MERGE: Final = "application/merge-patch+json"
_JSON: Final = "application/json"

QUARANTINES: Final = f"/apis/{names.API_VERSION}/{names.QUARANTINES}"
JOBS: Final = f"/apis/{names.API_VERSION}/{names.PLURAL}"
NODES: Final = "/api/v1/nodes"


FIELD_MANAGER: Final = "kubectl-hajob"
"""Who has written a field, as the server keeps it."""


def path_of_job(namespace: str, name: str) -> str:
    """Return the path of a HATrainingJob."""
    return f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}/{name}"


def find_job(objects: Objects, namespace: str, name: str) -> Json:
    """Return a HATrainingJob.

    Raises:
        ClusterError: there is none of this name, or the cluster refuses.
    """
    found = objects.find_object(path_of_job(namespace, name))
    if found is None:
        raise ClusterError(f"there is no HATrainingJob {name} in namespace {namespace}")
    return found


def job_asked_for(arguments: argparse.Namespace) -> tuple[KubernetesObjects, str, str, int]:
    """Return the cluster, namespace and name of the job that a command is about, and the time in milliseconds."""
    objects = KubernetesObjects(context=arguments.context)
    namespace = arguments.namespace or objects.namespace
    return objects, namespace, arguments.job, SystemClock().now_milliseconds()


def listed(objects: Objects, path: str, **selectors: str) -> list[Json]:
    """Return the objects of a list; `selectors`: such as labelSelector."""
    asked = "&".join(f"{key}={quote(value)}" for key, value in selectors.items() if value)
    found = objects.find_object(f"{path}?{asked}" if asked else path)
    return list((found or {}).get("items") or [])


def path_of_config_maps(namespace: str) -> str:
    """Return the path of a namespace's ConfigMaps."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


class Objects(Protocol):
    """Requests to an API server. Every method raises `ClusterError`."""

    def find_object(self, path: str) -> Json | None:
        """Return an object or a list; None where there is none."""

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

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        from kubernetes import client, config

        self._client: Any = client
        try:
            self._api: Any = config.new_client_from_config(config_file=kubeconfig, context=context)
            contexts, active = config.list_kube_config_contexts(config_file=kubeconfig)
        except (config.ConfigException, OSError) as problem:
            raise ClusterError(f"no kubeconfig can be used: {problem}") from None

        chosen = next((each for each in contexts if each["name"] == context), active)
        self.namespace: str = chosen["context"].get("namespace") or "default"

    def find_object(self, path: str) -> Json | None:
        """Return an object or a list; None where there is none."""
        return self._send_request("GET", path, absent_is_fine=True)

    def create_object(self, path: str, body: Mapping[str, Any]) -> Json:
        """Create an object in a collection, and return it."""
        return self._send_request("POST", path, body) or {}

    def replace_object(self, path: str, body: Mapping[str, Any]) -> Json:
        """Put an object; refused where it has changed since it was read."""
        return self._send_request("PUT", path, body) or {}

    def patch_object(self, path: str, body: Mapping[str, Any]) -> Json:
        """Change an object by a merge patch."""
        return self._send_request("PATCH", path, body, content=_MERGE) or {}

    def delete_object(self, path: str) -> None:
        """Delete an object; that it is gone already is as good."""
        self._send_request("DELETE", path, absent_is_fine=True)

    def _send_request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content: str = _JSON,
        absent_is_fine: bool = False,
    ) -> Json | None:
        from urllib3.exceptions import HTTPError

        headers = {"Accept": _JSON, **({"Content-Type": content} if body is not None else {})}
        try:
            answer = self._read_answer(method, path, headers, body)
        except self._client.ApiException as refusal:
            if refusal.status == 404 and absent_is_fine:
                return None
            kind = ForbiddenError if refusal.status == 403 else ClusterError
            raise kind(f"{method} {path}: {_sentence_of_refusal(refusal)}") from None
        except (HTTPError, OSError) as problem:
            raise ClusterError(f"{method} {path}: the API server cannot be reached: {problem}") from None
        found: Json = json.loads(answer)
        return found

    def _read_answer(self, method: str, path: str, headers: dict[str, str], body: Mapping[str, Any] | None) -> bytes:
        """What the server sends back; raises the client's exception for a refusal."""
        query = [("fieldManager", FIELD_MANAGER)] if body is not None else []
        asked = self._api.param_serialize(
            method, path, query_params=query, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        response = self._api.call_api(*asked, _request_timeout=_REQUEST_SECONDS)
        content: bytes = response.read()
        if not 200 <= response.status < 300:
            raise self._client.ApiException(http_resp=response)
        return content


def _sentence_of_refusal(refusal: Any) -> str:  # noqa: ANN401  the client has no types
    """The server's own sentence, else the client's."""
    try:
        return str(json.loads(refusal.body)["message"])
    except (TypeError, ValueError, KeyError):
        return f"{refusal.status} {refusal.reason}"
