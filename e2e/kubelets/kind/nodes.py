"""A cluster of kind's for one run, with chips offered on its kubelets' sockets.

kind and Docker know nothing of runs, and a run's reaper knows nothing of containers: a guard beside them removes the
cluster when its owner has ended.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.cluster.components import AUDIT_POLICY, RunLayout
from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.pki import Authority
from e2e.cluster.run import Run, free_port
from e2e.kubelets.device_plugin import DevicePlugin
from e2e.kubelets.kind import commands
from e2e.kubelets.kind.commands import KindLayout
from hajob.api import constants as names

READY_SECONDS: Final = 300.0
COMMAND_SECONDS: Final = 900.0
DOCKER_SECONDS: Final = 60.0


class KindError(RuntimeError):
    """kind or Docker refused a command; the message has the command and its words."""


def refusal() -> str:
    """What this machine lacks for kind; empty: nothing."""
    if os.geteuid() != 0:
        return "PROVIDER=kind needs root: containers write as root what is read and removed here"
    if absent := [name for name in ("docker", "kind") if shutil.which(name) is None]:
        hint = "; kind comes by `go install sigs.k8s.io/kind@latest`" if absent == ["kind"] else ""
        return f"PROVIDER=kind needs {' and '.join(absent)} on the PATH{hint}"
    try:
        asked = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False, timeout=DOCKER_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"PROVIDER=kind needs Docker, which does not answer: {error}"
    if asked.returncode:
        return f"PROVIDER=kind needs Docker, which refuses: {(asked.stderr or asked.stdout).strip()[-300:]}"
    return ""


def run_command(command: Sequence[str], seconds: float = COMMAND_SECONDS) -> str:
    """Run a command of kind's or Docker's; returns what it prints. KindError: it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise KindError(f"{' '.join(command[:3])}: not done within {seconds:.0f} s") from error
    if done.returncode:
        raise KindError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


@dataclass
class KindNode:
    """One worker."""

    name: str
    chips: int
    plugin: DevicePlugin | None = None
    is_on: bool = True

    def power_off(self) -> int:
        """Silently: its packets are dropped before it ends; returns when, in nanoseconds."""
        at = self.cut()
        self.is_on = False
        run_command(commands.power_off(self.name))
        return at

    def cut(self) -> int:
        """Cut its network, and nothing else; returns when, in nanoseconds."""
        for command in commands.cut(self.name):
            run_command(command)
        return time.time_ns()

    def heal(self) -> None:
        """Its network is back."""
        for command in commands.heal(self.name):
            run_command(command)


class KindNodes:
    """All workers of a run's cluster.

    Attributes:
        nodes: By name.
        shared: What all of them have as /var/lib/hajob-demo.
        imports: How long the import of each archive took on all nodes, in seconds.
    """

    def __init__(self, plane: ControlPlane, layout: KindLayout) -> None:
        self._plane, self._layout = plane, layout
        self.nodes = {name: KindNode(name, chips) for name, chips in zip(layout.workers, layout.chips, strict=True)}
        self.shared = layout.shared
        self.imports: dict[str, float] = {}

    def start(self, archives: Sequence[Path]) -> None:
        """Offer chips, load images, wait until all nodes are ready. KindError, ControlPlaneError: they are not."""
        for number, node in enumerate(self.nodes.values()):
            if node.chips:
                node.plugin = DevicePlugin(self._layout.plugins(number), node.chips)
        self.load(archives)
        self.wait_ready()

    def load(self, archives: Sequence[Path]) -> None:
        """Give every node images, as OCI archives. KindError: one is refused."""
        for path in archives:
            began = time.monotonic()
            run_command(commands.load(self._layout, path))
            self.imports.setdefault(path.name, time.monotonic() - began)

    def wait_ready(self, *names_of_nodes: str) -> None:
        """Wait until nodes, or all, say that they are ready and offer their chips; a boot is not told from another.

        Raises:
            ControlPlaneError: one does not after READY_SECONDS.
        """
        asked = [self.nodes[name] for name in names_of_nodes or self.nodes]
        what = f"{', '.join(names_of_nodes) or 'all nodes'} to be ready"
        self._plane.wait(what, lambda: all(map(self._is_ready, asked)), READY_SECONDS, poll=0.5)

    def _is_ready(self, node: KindNode) -> bool:
        status: dict[str, Any] = (self._plane.api.find(f"/api/v1/nodes/{node.name}") or {}).get("status", {})
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", []))
        return ready and int(status.get("allocatable", {}).get(names.DEFAULT_RESOURCE_NAME, "0")) == node.chips

    def signal_rank(self, rank: int, job: str = "", name: str = "KILL") -> tuple[int, int]:
        """Send a rank a signal; its process number, and when, in nanoseconds. LookupError: there is none."""
        for node in self.nodes.values():
            if not node.is_on:
                continue
            command = commands.signal(node.name, rank, job, name)
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DOCKER_SECONDS)
            if done.returncode == 0:
                pid, at = done.stdout.split()
                return int(pid), int(at)
        raise LookupError(f"no process of rank {rank}")

    def kill(self, rank: int, job: str = "") -> int:
        """Kill a rank; returns when, in nanoseconds."""
        return self.signal_rank(rank, job)[1]

    def power_on(self, name: str) -> None:
        """Start a node again that was powered off; its images are there, and its boot has the same name as before."""
        run_command(commands.power_on(name))
        self.nodes[name].is_on = True

    def keep_logs(self) -> Path:
        """Keep what the nodes have said; returns where."""
        kept = self._plane.run.keep_logs()
        run_command(commands.export_logs(self._layout, kept / "nodes"))
        return kept

    def stop(self) -> None:
        """Remove the cluster. KindError: it cannot be."""
        for node in self.nodes.values():
            if node.plugin is not None:
                node.plugin.stop()
        run_command(commands.delete(self._layout))


def start(run: Run, chips: Sequence[int]) -> tuple[ControlPlane, KindNodes]:
    """A cluster with a worker for each number of chips; nodes without images yet.

    Raises:
        KindError: kind refused it; what it made is removed.
    """
    address = run.address(0, 1)
    port = free_port(address, 6443)
    layout = KindLayout(f"hajob-{run.identity}", run.directory, chips, address, port)
    own = RunLayout(run.directory, address, {"apiserver": port})
    _write(layout)
    guard = commands.guard(layout, os.getpid())
    subprocess.Popen(guard, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        run_command(commands.create(layout, own.kubeconfig("admin")))
        write_credentials(own)
    except BaseException:
        run_command(commands.delete(layout))
        raise
    # kind's own authority signs; ours is here because a control plane of our own has one
    plane = ControlPlane(run, own, Authority.create("hajob-unused"))
    return plane, KindNodes(plane, layout)


def _write(layout: KindLayout) -> None:
    """Write what the cluster's configuration names."""
    numbers = range(len(layout.chips))
    for directory in (layout.shared, layout.volumes, *map(layout.plugins, numbers), layout.directory / "logs"):
        directory.mkdir(parents=True, exist_ok=True)
    layout.policy.write_text(json.dumps(AUDIT_POLICY))
    layout.configuration.write_text(json.dumps(commands.cluster(layout), indent=1))


def write_credentials(layout: RunLayout) -> None:
    """Take the admin's certificate out of kind's kubeconfig, for clients of our own."""
    found = yaml.safe_load(layout.kubeconfig("admin").read_text())
    authority = found["clusters"][0]["cluster"]["certificate-authority-data"]
    user = found["users"][0]["user"]
    layout.pki.mkdir(mode=0o700)
    for name, content in (
        ("ca.crt", authority),
        ("admin.crt", user["client-certificate-data"]),
        ("admin.key", user["client-key-data"]),
    ):
        (layout.pki / name).write_bytes(base64.b64decode(content))
