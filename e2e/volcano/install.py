"""Volcano on the local cluster: its two kinds as far as they are used, the default queue, and the scheduler's process.

`HAJOB_VOLCANO=DIRECTORY` names a directory with Volcano's own CRDs (`*.yaml`) and the programs vc-scheduler and
vc-controller-manager; they take the stand-in's place.
"""

from __future__ import annotations

import copy
import fcntl
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.control_plane import ControlPlane
from e2e.volcano.scheduler import API

REAL_ONE: Final = "HAJOB_VOLCANO"
CHOICE: Final = "SCHEDULER"
Object = dict[str, Any]

_ANYTHING: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_NAMES: Final = {"podgroups": ("PodGroup", "Namespaced"), "queues": ("Queue", "Cluster")}


def is_chosen() -> bool:
    """Whether jobs of scenarios are placed by Volcano (`SCHEDULER=volcano`)."""
    return os.environ.get(CHOICE) == "volcano"


def install_volcano(plane: ControlPlane) -> None:
    """Install Volcano in the cluster, once, whichever test or worker asks first."""
    with (plane.run.directory / "volcano.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        installed = plane.run.directory / "volcano.installed"
        if installed.exists():
            return
        real = os.environ.get(REAL_ONE)
        if real:
            _install_real(plane, Path(real))
        else:
            for plural, (kind, scope) in _NAMES.items():
                plane.apply(_definition(plural, kind, scope))
        plane.wait("Volcano's kinds", lambda: plane.api.find(f"{API}/queues"))
        queue = {"apiVersion": API.removeprefix("/apis/"), "kind": "Queue", "metadata": {"name": "default"}}
        plane.apply({**queue, "spec": {"weight": 1}})
        if not real:
            start_stand_in(plane)
        installed.touch()


def start_stand_in(plane: ControlPlane) -> None:
    """Start the scheduler's process; it goes with the run."""
    pki = plane.layout.pki
    files = [str(pki / "ca.crt"), str(pki / "admin.crt"), str(pki / "admin.key")]
    plane.run.spawn(
        "volcano",
        [sys.executable, "-m", "e2e.volcano", plane.server, *files],
        {"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'operator'}", "PYTHONDONTWRITEBYTECODE": "1"},
    )


def placed_by_volcano(job: Mapping[str, Any]) -> Object:
    """Return the job with `gangPolicy: Volcano`, unless it says something else."""
    made = copy.deepcopy(dict(job))
    made["spec"]["scheduling"] = {"gangPolicy": "Volcano", **(made["spec"].get("scheduling") or {})}
    return made


def make_queue(plane: ControlPlane, name: str, capability: Mapping[str, str] | None = None) -> None:
    """Make a queue, with a limit or without one."""
    spec: Object = {"weight": 1, "capability": dict(capability or {})}
    plane.apply({"apiVersion": API.removeprefix("/apis/"), "kind": "Queue", "metadata": {"name": name}, "spec": spec})


def _install_real(plane: ControlPlane, directory: Path) -> None:
    """Volcano's own programs with the configuration that MindCluster ships."""
    for path in sorted(directory.glob("*.yaml")):
        plane.kubectl("apply", "--server-side", "-f", str(path))
    kubeconfig = f"--kubeconfig={plane.kubeconfig}"
    configuration = directory / "scheduler.conf"
    plane.run.spawn(
        "volcano",
        [directory / "vc-scheduler", kubeconfig, f"--scheduler-conf={configuration}", "--leader-elect=false", "-v=3"],
    )
    plane.run.spawn("volcano-controllers", [directory / "vc-controller-manager", kubeconfig, "--leader-elect=false"])


def _definition(plural: str, kind: str, scope: str) -> Object:
    """The CRD, without a status subresource, as Volcano 1.9 has it."""
    schema = {"type": "object", "properties": {"spec": _ANYTHING, "status": _ANYTHING}}
    group, version = API.removeprefix("/apis/").split("/")
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
