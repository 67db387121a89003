"""Puts the stand-in onto a rig's cluster, with a queue for its jobs; `QUEUE=kueue` does so in every scenario."""

from __future__ import annotations

import base64
import copy
import dataclasses
import json
import os
import socket
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.kinds import install_kinds
from e2e.cluster.rest import ApiError
from e2e.cluster.run import free_port
from e2e.kueue.crds import API, API_VERSION, GROUP, PLURALS, VERSION, definitions
from e2e.kueue.world import Configuration, timestamp
from hajob.api.constants import GROUP as GROUP_OF_JOBS
from hajob.api.constants import KIND

Object = dict[str, Any]
CHIPS: Final = "huawei.com/Ascend910"
_HOOKS: Final = "/apis/admissionregistration.k8s.io/v1"
CHOICE: Final = "QUEUE"
EXTERNAL_FRAMEWORK: Final = f"{KIND}.v1alpha1.{GROUP_OF_JOBS}"
MANY: Final = 10_000
"""Chips of a queue in which no job of a scenario ever waits."""
_PORTS: Final = range(10_000, 30_000)
"""For webhooks: below those that the kernel gives to outgoing connections."""


def chips_of_choice() -> int:
    """Return the chips of the queue in which jobs of scenarios are (`QUEUE=kueue`); 0: they are in none."""
    return MANY if os.environ.get(CHOICE) == "kueue" else 0


def queued_in(job: Mapping[str, Any], queue: str) -> Object:
    """Return the job with the queue's label, unless it has one."""
    made = copy.deepcopy(dict(job))
    made["metadata"]["labels"] = {f"{GROUP}/queue-name": queue, **(made["metadata"].get("labels") or {})}
    return made


class KueueStandIn:
    """Kueue for one namespace of a control plane: its kinds, its webhooks, its process.

    Attributes:
        plane: the control plane.
        namespace: of the jobs.
        configuration: of the manager.
        address: of its webhooks.
        port: of its webhooks.
        queue: name of the LocalQueue that leads to the ClusterQueue of this namespace.
        frameworks: kinds whose jobs the manager knows; those must be served before it starts.
    """

    frameworks: tuple[str, ...] = ("batch/job", "pod")

    def __init__(self, plane: ControlPlane, namespace: str, configuration: Configuration | None = None) -> None:
        self.plane, self.namespace = plane, namespace
        self.configuration = configuration or Configuration()
        self.address = plane.run.address(0, 1)
        # Of its own for each namespace: rigs start at the same moment, and one that is stopped comes back to its port.
        self.port = free_port(self.address, _PORTS.start + zlib.crc32(namespace.encode()) % len(_PORTS))
        self._process: subprocess.Popen[bytes] | None = None
        self.queue = "user-queue"

    @property
    def directory(self) -> Path:
        """Return the directory of its files."""
        return self.plane.run.directory / f"kueue-{self.namespace}"

    @property
    def cluster_queue(self) -> str:
        """Return the name of the ClusterQueue."""
        return f"cq-{self.namespace}"

    @property
    def flavor(self) -> str:
        """Return the name of the ResourceFlavor."""
        return f"flavor-{self.namespace}"

    def install(self, chips: int, *, node_labels: Mapping[str, str] | None = None, preemption: bool = True) -> None:
        """Install the kinds and a queue with this many chips; then start."""
        with self.plane.run.alone("kueue"):
            install_kinds(self.plane, self.kinds(), API_VERSION, PLURALS)
        self.start()
        self.plane.apply_server_side(*self.webhooks())
        self.plane.apply(
            self.flavor_of(nodeLabels=dict(node_labels or {})),
            self.cluster_queue_of(chips, preemption=preemption),
            self.local_queue_of(self.queue, self.cluster_queue),
        )

    def kinds(self) -> list[Object]:
        """Build the CRDs."""
        return definitions()

    def cluster_queue_of(
        self,
        chips: int,
        *,
        preemption: bool = True,
        reclaim: str = "Never",
        stop: str = "None",
        name: str = "",
        **spec: Any,  # noqa: ANN401 - any fields
    ) -> Object:
        """Build the ClusterQueue with this many chips, or another one of the same flavor, with more fields."""
        quota = [{"name": self.flavor, "resources": [{"name": CHIPS, "nominalQuota": chips}]}]
        usual: Object = {
            "resourceGroups": [{"coveredResources": [CHIPS], "flavors": quota}],
            "preemption": {
                "withinClusterQueue": "LowerPriority" if preemption else "Never",
                "reclaimWithinCohort": reclaim,
            },
            "namespaceSelector": {},
            "stopPolicy": stop,
        }
        return _object("ClusterQueue", name or self.cluster_queue, spec={**usual, **spec})

    def local_queue_of(self, name: str, cluster_queue: str, **spec: Any) -> Object:  # noqa: ANN401 - any fields
        """Build a LocalQueue of the namespace."""
        return _object("LocalQueue", name, self.namespace, spec={"clusterQueue": cluster_queue, **spec})

    def flavor_of(self, **spec: Any) -> Object:  # noqa: ANN401 - any fields
        """Build the flavor with these fields."""
        return _object("ResourceFlavor", self.flavor, spec=spec)

    def add_check(self, name: str) -> None:
        """Make an AdmissionCheck whose controller is there: the test, which answers for every Workload."""
        self.plane.apply(_object("AdmissionCheck", name, spec={"controllerName": "hajob.io/test"}))
        active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": _now()}
        self.plane.api.merge(f"{API}/admissionchecks/{name}/status", {"status": {"conditions": [active]}})

    def answer_check(
        self,
        workload: str,
        name: str,
        state: str,
        *,
        before: str = "",
        **more: Any,  # noqa: ANN401 - any fields
    ) -> None:
        """Answer a check of a Workload, as its controller does; `before`: once it is in this state."""
        path = f"{API}/namespaces/{self.namespace}/workloads/{workload}"

        def is_answered() -> bool:
            """Kueue writes in between: then again."""
            found = self.plane.api.get(path)
            checks = found["status"].get("admissionChecks") or []
            if not any(one["name"] == name and before in {"", one["state"]} for one in checks):
                return False
            told = {"name": name, "state": state, "message": "", "lastTransitionTime": _now(), **more}
            states = [told if one["name"] == name else one for one in checks]
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            try:
                self.plane.api.merge(f"{path}/status", {"metadata": version, "status": {"admissionChecks": states}})
            except ApiError as error:
                if error.status != 409:
                    raise
                return False
            return True

        self.plane.wait(f"the check {name} of {workload} to be asked for", is_answered)

    def set_quota(self, chips: int) -> None:
        """Change the quota."""
        self.plane.apply(self.cluster_queue_of(chips))

    def add_priority(self, name: str, value: int) -> None:
        """Make a WorkloadPriorityClass."""
        self.plane.apply({**_object("WorkloadPriorityClass", name), "value": value})

    def add_topology(self, name: str) -> None:
        """Make a Topology of nodes."""
        self.plane.apply(_object("Topology", name, spec={"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}))

    def configure(self, **changes: Any) -> None:  # noqa: ANN401 - any fields
        """Change the configuration, for the next start."""
        self.configuration = dataclasses.replace(self.configuration, **changes)

    def manager_configuration(self) -> Object:
        """Build the configuration of the manager, as its file has it."""
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "integrations": {
                "frameworks": list(self.frameworks),
                "externalFrameworks": [EXTERNAL_FRAMEWORK] if self.configuration.knows_jobs else [],
            },
            "resources": {"excludeResourcePrefixes": list(self.configuration.excluded_prefixes)},
        }

    def publish_configuration(self) -> None:
        """Store the configuration where an installed manager has it; of all rigs the newest is stored."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
        place = {"name": "kueue-manager-config", "namespace": "kueue-system"}
        data = {"controller_manager_config.yaml": yaml.safe_dump(self.manager_configuration())}
        self.plane.apply(namespace, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": place, "data": data})

    def workloads(self) -> list[Object]:
        """List the Workloads of the namespace."""
        return self.plane.api.items(f"{API}/namespaces/{self.namespace}/workloads")

    def start(self) -> None:
        """Start the manager, or start it again after `stop`."""
        self.directory.mkdir(exist_ok=True)
        self._process = self.plane.run.spawn(f"kueue-{self.namespace}", self.command())
        self.plane.wait("Kueue's webhooks", self._serves)

    def command(self) -> list[str]:
        """Return the command line of the manager, and write what it reads."""
        certificate, key = self.plane.authority.server("kueue", [self.address]).write(self.directory, "kueue")
        settings = {
            "server": self.plane.server,
            "pki": str(self.plane.layout.pki),
            "namespace": self.namespace,
            "address": self.address,
            "port": self.port,
            "certificate": str(certificate),
            "key": str(key),
            "configuration": dataclasses.asdict(self.configuration),
        }
        path = self.directory / "settings.json"
        path.write_text(json.dumps(settings), encoding="utf-8")
        return [sys.executable, "-m", "e2e.kueue", str(path)]

    def _serves(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"Kueue of {self.namespace} has ended with {self._process.returncode}")
        with socket.socket() as probe:
            return probe.connect_ex((self.address, self.port)) == 0

    def stop(self) -> None:
        """End the manager; its webhooks stay, and fail closed."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            self._process = None

    def uninstall(self) -> None:
        """End the manager and take its webhooks away: the control plane goes on without it."""
        self.stop()
        for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
            self.plane.api.delete(f"{_HOOKS}/{kind}/kueue-{self.namespace}")

    def webhooks(self) -> Iterator[Object]:
        """Yield the webhook configurations, for this namespace only."""
        url = f"https://{self.address}:{self.port}"
        authority = base64.b64encode(self.plane.authority.credential().certificate).decode()
        here = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}

        def hook(name: str, path: str, group: str, version: str, resources: list[str]) -> Object:
            operations = ["CREATE", "UPDATE"]
            rule = {"apiGroups": [group], "apiVersions": [version], "resources": resources, "operations": operations}
            return {
                "name": f"{name}.kb.io",
                "clientConfig": {"url": f"{url}/{path}", "caBundle": authority},
                "rules": [rule],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 10,
                "namespaceSelector": here,
            }

        workloads = ["workloads", "workloads/status"]
        checks = [hook("vworkload", "workloads", GROUP, VERSION, workloads)]
        takes = [hook("mpod", "pods", "", "v1", ["pods"])]
        metadata = {"name": f"kueue-{self.namespace}"}
        for kind, hooks in (("ValidatingWebhookConfiguration", checks), ("MutatingWebhookConfiguration", takes)):
            yield {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": metadata,
                "webhooks": hooks,
            }


def _object(kind: str, name: str, namespace: str = "", **content: Any) -> Object:  # noqa: ANN401 - any fields
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, **content}


def _now() -> str:
    return timestamp(datetime.now(UTC))
