"""JobSet's controller on a rig of KWOK, where `HAJOB_JOBSET` names a directory with it: a peer that is measured, too.

The directory has the program `jobset`, its CRDs as `crds/*.yaml`, and its webhooks as `webhooks.yaml`, as JobSet's
source has them in `config/components`.
"""

from __future__ import annotations

import base64
import os
import socket
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.kinds import install_kinds, read_objects
from e2e.cluster.kwok import CHIPS
from e2e.cluster.run import free_port
from hajob.api import constants as names

DIRECTORY: Final = "HAJOB_JOBSET"
API_VERSION: Final = "jobset.x-k8s.io/v1alpha2"
LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
_HOOKS: Final = frozenset({"mjobset.kb.io", "vjobset.kb.io"})
"""Those for pods are about exclusive placement, which is not asked for."""

Object = dict[str, Any]


def directory_of_choice() -> Path | None:
    """Return the directory that is named; None: none is."""
    named = os.environ.get(DIRECTORY, "")
    return Path(named) if named else None


def install_kinds_of_jobset(plane: ControlPlane, directory: Path) -> None:
    """Install its CRD, which Kueue's manager wants to find."""
    install_kinds(plane, read_objects(directory / "crds"), API_VERSION, ["jobsets"])


def start_jobset(plane: ControlPlane, directory: Path) -> None:
    """Start its controller with its webhooks; it goes with the run."""
    address = plane.run.address(0, 5)
    port, files = free_port(address, 9443), plane.run.directory / "jobset"
    files.mkdir()
    plane.authority.server("jobset", [address]).write(files, "tls")
    configuration = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{address}:{free_port(address, 8081)}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": address, "port": port, "certDir": str(files)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }
    path = files / "configuration.yaml"
    path.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    plane.run.spawn("jobset", [str(directory / "jobset"), f"--config={path}", f"--kubeconfig={plane.kubeconfig}"])

    def serves() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((address, port)) == 0

    plane.wait("JobSet's webhooks", serves)
    authority = base64.b64encode(plane.authority.credential().certificate).decode()
    for whole in read_objects(directory, "webhooks.yaml"):
        kept = []
        for hook in whole["webhooks"]:
            if hook["name"] in _HOOKS:
                url = f"https://{address}:{port}{hook['clientConfig']['service']['path']}"
                kept.append({**hook, "clientConfig": {"url": url, "caBundle": authority}})
        plane.apply_server_side({**whole, "metadata": {"name": "jobset"}, "webhooks": kept})


def jobset(name: str, namespace: str, pods: int, queue: str) -> Object:
    """Return a JobSet of one Job with so many pods, each with all chips of a node, in a queue of Kueue."""
    chips = {names.DEFAULT_RESOURCE_NAME: CHIPS}
    container = {"name": "main", "image": "train", "resources": {"requests": chips, "limits": chips}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template}
    return {
        "apiVersion": API_VERSION,
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": namespace, "labels": {names.LABEL_QUEUE: queue}},
        "spec": {"replicatedJobs": [{"name": "ranks", "replicas": 1, "template": {"spec": job}}]},
    }
