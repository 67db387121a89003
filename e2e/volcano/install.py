"""Volcano on the local cluster: its two kinds as far as they are used, the default queue, and the scheduler's process.

`HAJOB_VOLCANO=DIRECTORY` names a directory with Volcano's own CRDs (`*.yaml`) and the programs vc-scheduler and
vc-controller-manager; they take the stand-in's place.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.kinds import ANYTHING, build_kind, install_kinds, read_objects
from e2e.volcano.scheduler import API_VERSION

REAL_ONE: Final = "HAJOB_VOLCANO"
CHOICE: Final = "SCHEDULER"
Object = dict[str, Any]

_PLURALS: Final = ("podgroups", "queues")


def is_chosen() -> bool:
    """Whether jobs of scenarios are placed by Volcano (`SCHEDULER=volcano`)."""
    return os.environ.get(CHOICE) == "volcano"


def install_volcano(plane: ControlPlane) -> None:
    """Install Volcano in the cluster, once, whichever test or worker asks first."""
    with plane.run.alone("volcano"):
        installed = plane.run.directory / "volcano.installed"
        if installed.exists():
            return
        real = os.environ.get(REAL_ONE)
        install_kinds(plane, read_objects(Path(real)) if real else _definitions(), API_VERSION, _PLURALS)
        make_queue(plane, "default")
        if real:
            _start_real(plane, Path(real))
        else:
            _start_stand_in(plane)
        installed.touch()


def _definitions() -> list[Object]:
    """The CRDs, without a status subresource, as Volcano 1.9 has them."""
    properties = {"spec": ANYTHING, "status": ANYTHING}
    return [
        build_kind(API_VERSION, "PodGroup", "podgroups", properties, is_namespaced=True),
        build_kind(API_VERSION, "Queue", "queues", properties, is_namespaced=False),
    ]


def _start_stand_in(plane: ControlPlane) -> None:
    """Start the scheduler's process; it goes with the run."""
    pki = plane.layout.pki
    files = [str(pki / "ca.crt"), str(pki / "admin.crt"), str(pki / "admin.key")]
    plane.run.spawn("volcano", [sys.executable, "-m", "e2e.volcano", plane.server, *files])


def placed_by_volcano(job: Mapping[str, Any]) -> Object:
    """Return the job with `gangPolicy: Volcano`, unless it says something else."""
    made = copy.deepcopy(dict(job))
    made["spec"]["scheduling"] = {"gangPolicy": "Volcano", **(made["spec"].get("scheduling") or {})}
    return made


def make_queue(plane: ControlPlane, name: str, capability: Mapping[str, str] | None = None) -> None:
    """Make a queue, with a limit or without one."""
    spec: Object = {"weight": 1, "capability": dict(capability or {})}
    plane.apply({"apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": name}, "spec": spec})


def _start_real(plane: ControlPlane, directory: Path) -> None:
    """Start Volcano's own programs with the configuration that MindCluster ships."""
    kubeconfig = f"--kubeconfig={plane.kubeconfig}"
    configuration = directory / "scheduler.conf"
    plane.run.spawn(
        "volcano",
        [directory / "vc-scheduler", kubeconfig, f"--scheduler-conf={configuration}", "--leader-elect=false", "-v=3"],
    )
    plane.run.spawn("volcano-controllers", [directory / "vc-controller-manager", kubeconfig, "--leader-elect=false"])
