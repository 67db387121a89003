"""Thousands of nodes that are only told to be there, by KWOK: for benchmarks of the operator, never of a training.

Nodes are ready and stay it, a pod runs as soon as the real scheduler has given it a node, and is gone as soon as it is
deleted; nothing runs inside. So nobody listens at a pod's address: coordinators are never there.

    python -m e2e.cluster.kwok --nodes 1000        # a control plane with so many nodes, until Ctrl-C
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from e2e.bootstrap.binaries import KWOK
from e2e.bootstrap.paths import CHECKOUT
from e2e.bootstrap.setup import provide
from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.run import Run
from hajob.api import constants as names

STAGES: Final = CHECKOUT / "e2e/cluster/kwok_stages.yaml"
FAKE: Final = "kwok.x-k8s.io/node"
LEASE_SECONDS: Final = 40
"""As a kubelet's: KWOK renews each node's Lease four times as often; with 0 never."""
CHIPS: Final = 8
WITHOUT_CHIPS: Final = 10
"""Every so manieth node has no chips: coordinators and the cluster's own pods go there."""
_THREADS: Final = 8

Object = dict[str, Any]


def node(name: str, chips: int = CHIPS, labels: dict[str, str] | None = None) -> Object:
    """A node as its kubelet would register it."""
    room: Object = {"cpu": "192", "memory": "1536Gi", "pods": "110", "ephemeral-storage": "2Ti"}
    if chips:
        room[names.DEFAULT_RESOURCE_NAME] = str(chips)
    known = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"}
    if chips:
        known[names.LABEL_NODE_ACCELERATOR] = "huawei-Ascend910"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {FAKE: "fake"}, "labels": known | (labels or {})},
        "status": {"allocatable": room, "capacity": room},
    }


def born_ready(made: Object, address: str) -> Object:
    """The same node as it is once KWOK has told its first status, so that this need not be written."""
    told = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is ready"}]
    status = {"conditions": told, "phase": "Running", "addresses": [{"type": "InternalIP", "address": address}]}
    return {**made, "status": {**made["status"], **status}}


class KwokNodes:
    """The nodes of one control plane, and the process that plays their kubelets.

    Attributes:
        names: of all nodes.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self.names: list[str] = []
        self._plane = plane
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, plane: ControlPlane, count: int, chips: int = CHIPS, *, still: bool = False) -> KwokNodes:
        """Make so many nodes and wait until all are ready; every tenth is one without chips.

        Args:
            plane: Under which they are put.
            count: How many.
            chips: Of each one that has chips.
            still: They send no heartbeats; the control plane was started for that (`still_nodes`).

        Raises:
            SetupError: KWOK is not there and cannot be built.
            ControlPlaneError: The nodes do not become ready.
        """
        made = cls(plane)
        (program,) = provide(KWOK)
        made.spawn(program, lease_seconds=0 if still else LEASE_SECONDS)
        bare = range(0, count, WITHOUT_CHIPS) if count >= WITHOUT_CHIPS else range(1)
        nodes = (node(f"kwok-{number:05}", 0 if number in bare else chips) for number in range(count))
        made.add((born_ready(each, plane.run.address(0, 3)) for each in nodes) if still else nodes)
        wait = {"seconds": 120 + count / 10, "poll": max(1.0, count / 1000)}
        plane.wait(f"{count} nodes to be ready", lambda: made.ready() >= count, **wait)
        return made

    def add(self, nodes: Iterable[Object]) -> None:
        """Register more nodes."""
        with ThreadPoolExecutor(_THREADS) as pool:
            for made in pool.map(lambda body: self._plane.api.create("/api/v1/nodes", body), nodes):
                self.names.append(made["metadata"]["name"])

    def ready(self) -> int:
        """How many are ready, without a taint that keeps pods off."""
        return sum(_is_ready(each) for each in self._plane.api.items("/api/v1/nodes", labelSelector="type=kwok"))

    def spawn(self, program: Path, *, lease_seconds: int) -> None:
        """Start the process that plays the kubelets; with no lease seconds its nodes send no heartbeats."""
        run = self._plane.run
        command = [
            str(program),
            f"--kubeconfig={self._plane.kubeconfig}",
            f"--config={STAGES}",
            f"--manage-nodes-with-annotation-selector={FAKE}=fake",
            f"--node-lease-duration-seconds={lease_seconds}",
            f"--cidr={run.address(192, 0)}/18",
            f"--node-ip={run.address(0, 3)}",
            "--v=WARN",
            "--enable-crds=",
            "--server-address=",
        ]
        self._process = run.spawn("kwok", command)

    def stop(self) -> None:
        """End the process; the nodes stay, and are not ready soon."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)


def _is_ready(found: Object) -> bool:
    told = {one["type"]: one["status"] for one in found["status"].get("conditions") or []}
    return told.get("Ready") == "True" and not found["spec"].get("taints")


def main(arguments: Sequence[str] | None = None) -> int:
    """A control plane with nodes of KWOK, for as long as somebody looks."""
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster.kwok", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000, help="how many (1000)")
    chosen = parser.parse_args(arguments)
    with Run.start("nodes of KWOK") as run:
        plane = ControlPlane.start(run)
        began = time.monotonic()
        KwokNodes.start(plane, chosen.nodes)
        print(f"{chosen.nodes} nodes are ready after {time.monotonic() - began:.0f} s")
        print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
        try:
            while True:
                time.sleep(60)
        except KeyboardInterrupt:
            return 0


if __name__ == "__main__":
    raise SystemExit(main())
