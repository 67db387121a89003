"""An API server with jobs as the operator tells of them, for commands that show one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.cli.cluster import ForbiddenError
from hajob.cli.objects import path_of_job
from tests.rigs.told_job import NAME, NAMESPACE, told_job

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
"""Status of a pod that is up."""


class ToldServer:
    """Objects by path without its query, and paths that may not be read."""

    def __init__(self, *jobs_there: Json, **more: Any) -> None:
        self.found: dict[str, Any] = {path_of_job(NAMESPACE, job["metadata"]["name"]): job for job in jobs_there}
        self.found |= {"/apis/training.hajob.io/v1alpha1/hatrainingjobs": {"items": list(jobs_there)}}
        self.found |= {
            f"/apis/training.hajob.io/v1alpha1/namespaces/{NAMESPACE}/hatrainingjobs": {"items": list(jobs_there)}
        }
        self.found |= more
        self.forbidden: set[str] = set()
        self.written: list[tuple[str, Mapping[str, Any]]] = []

    def find_object(self, path: str) -> Json | None:
        """Return what there is at a path, whatever is selected of it."""
        path = path.partition("?")[0]
        if path in self.forbidden:
            raise ForbiddenError(f"GET {path}: forbidden")
        found: Json | None = self.found.get(path)
        return found

    def patch_object(self, path: str, body: Mapping[str, Any]) -> Json:
        """Note what is written."""
        self.written.append((path, body))
        return {}

    create_object = replace_object = patch_object

    def delete_object(self, path: str) -> None:
        """Forget what there is at a path."""
        del self.found[path]


def rank_pod_object(number: int, **status_of_pod: Any) -> Json:
    """Return a rank pod of the told job as the server has it."""
    owner: dict[str, Any] = {
        "controller": True,
        "kind": names.KIND,
        "apiVersion": names.API_VERSION,
        "name": NAME,
        "uid": told_job()["metadata"]["uid"],
    }
    labels = {names.LABEL_ROLE: names.ROLE_RANK, names.LABEL_NODE_RANK: str(number), names.LABEL_INCARNATION: "1"}
    labels |= {names.LABEL_JOB_NAME: NAME, names.LABEL_JOB_UID: owner["uid"]}
    metadata = {"name": f"{NAME}-{number}-aa", "namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"nodeName": f"node-{number}"}, "status": status_of_pod}
