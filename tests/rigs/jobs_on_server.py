"""Jobs on a real API server: the quickstart, where jobs are found, and operators that serve one namespace."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import yaml

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.control_plane import ControlPlane
from hajob.api import constants as names

Object = dict[str, Any]
QUICKSTART: dict[str, Any] = yaml.safe_load((CHECKOUT / "examples" / "quickstart.yaml").read_text(encoding="utf-8"))


class ServedNamespace:
    """A namespace with one job at most, and the operators that serve it."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace
        self.job = deepcopy(QUICKSTART)
        nowhere = {"hajob.io/nowhere": "true"}  # other tests' nodes are there as well
        self.job["spec"]["template"]["spec"]["nodeSelector"] = nowhere
        self.job["spec"]["coordinator"] = {"nodeSelector": nowhere}
        self.job["metadata"]["namespace"] = namespace
        self.operators: list[subprocess.Popen[bytes]] = []

    def start_operator(self) -> None:
        """Start another operator that serves this namespace alone."""
        environment = {
            "HAJOB_KUBECONFIG": str(self.plane.kubeconfig),
            "HAJOB_NAMESPACE": self.namespace,
            "HAJOB_WATCH_NAMESPACES": self.namespace,
            "HAJOB_FAULT_NODE_SELECTOR": "hajob.io/nowhere=true",
            "HAJOB_METRICS_PORT": "0",
        }
        name = f"operator-{self.namespace}-{len(self.operators)}"
        command = [sys.executable, "-m", "hajob.app.operator"]
        self.operators.append(self.plane.run.spawn(name, command, environment))

    def kill_operators(self) -> None:
        """Kill every operator that was started."""
        for process in self.operators:
            process.kill()
            process.wait()

    def apply(self) -> None:
        """Apply the job as kubectl does."""
        self.plane.kubectl("apply", "-f", "-", stdin=json.dumps(self.job))

    def edit(self, **spec: object) -> None:
        """Change fields of the job's spec."""
        self.plane.api.merge(f"{path_of_jobs(self.namespace)}/quickstart", {"spec": spec})

    def scheduled(self, *words: str) -> dict[str, Any]:
        """Return the condition Scheduled once its message holds one of these."""

        def told() -> dict[str, Any] | None:
            found = self.condition("Scheduled")
            return found if any(word in found.get("message", "") for word in words) else None

        found: dict[str, Any] = self.plane.wait(f"Scheduled to say one of {words}", told)
        return found

    def pods(self) -> dict[str, str]:
        """List names and UIDs of the pods that are not being deleted."""
        items = self.plane.api.items(f"/api/v1/namespaces/{self.namespace}/pods")
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in items
            if "deletionTimestamp" not in pod["metadata"]
        }

    def secrets(self) -> set[str]:
        """List the names of the namespace's Secrets."""
        items = self.plane.api.items(f"/api/v1/namespaces/{self.namespace}/secrets")
        return {secret["metadata"]["name"] for secret in items}

    def status(self) -> Object:
        """Read the job's status; empty: there is none."""
        found = self.plane.api.find(f"{path_of_jobs(self.namespace)}/quickstart")
        return (found or {}).get("status") or {}

    def condition(self, type_: str) -> Object:
        """Read a condition of the job; empty: it has none of this type."""
        conditions: list[Object] = self.status().get("conditions") or []
        return next((each for each in conditions if each["type"] == type_), {})

    def until(self, what: str, condition: Callable[[], object]) -> None:
        """Wait until a condition holds; fails naming `what`."""
        self.plane.wait(what, lambda: bool(condition()) or None)


def path_of_jobs(namespace: str) -> str:
    """Build the path of the HATrainingJobs of a namespace."""
    return f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"
