"""Real nodes of one run: each a kubelet with its own containerd, in namespaces of its own, on one bridge.

The network namespace of the process that uses this holds bridge and control plane; nothing is changed in the machine's.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.bootstrap.binaries import KUBELETS, locate
from e2e.cluster import cgroups
from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.pki import kubeconfig
from e2e.kubelets.configuration import API, BRIDGE, NodeLayout
from e2e.kubelets.device_plugin import DevicePlugin
from hajob.api import constants as names

READY_SECONDS = 90.0
SCRIPT = Path(__file__).with_name("node.sh")


class KubeletsError(RuntimeError):
    """A node did not come up; the message names its logs."""


def processes() -> list[Path]:
    """The directories of all processes in /proc, the oldest first."""
    return sorted((each for each in Path("/proc").iterdir() if each.name.isdigit()), key=lambda each: int(each.name))


def _read(path: Path) -> bytes:
    """Empty where the process is gone."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def ip(*words: str) -> None:
    """Change the network. CalledProcessError: it cannot be."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def hardware_address(address: str) -> str:
    """The MAC address of a machine, the same after each boot; `address` is its IPv4 address."""
    return ":".join(f"{number:02x}" for number in (2, 0, *map(int, address.split("."))))


@dataclass
class RealNode:
    """One node."""

    layout: NodeLayout
    chips: int
    process: subprocess.Popen[bytes] | None = None
    plugin: DevicePlugin | None = None
    images: Sequence[Path] = field(default_factory=tuple)

    @property
    def name(self) -> str:
        """Of the node."""
        return self.layout.name

    def power_off(self) -> int:
        """Silently: the network is cut first, so that no peer hears of it; returns when, in nanoseconds."""
        at = self.cut()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        return at

    def cut(self) -> int:
        """Cut its network, and nothing else; returns when, in nanoseconds."""
        ip("link", "set", f"v{self.layout.number}", "down")
        return time.time_ns()

    def heal(self) -> None:
        """Its network is back."""
        ip("link", "set", f"v{self.layout.number}", "up")

    def signal_kubelet(self, number: int) -> None:
        """Send its kubelet a signal; one that ends is started again, as by systemd. LookupError: there is none."""
        directory = str(self.layout.directory)
        for process in processes():
            words = _read(process / "cmdline").split(b"\0")
            if words[0].endswith(b"kubelet") and any(word.decode().startswith(directory) for word in words):
                os.kill(int(process.name), number)
                return
        raise LookupError(f"no kubelet of {self.name}")

    def configure_kubelet(self, **settings: object) -> None:
        """Change its kubelet's configuration; it is started again with that."""
        path = self.layout.directory / "kubelet.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | settings))
        self.signal_kubelet(signal.SIGKILL)


class RealNodes:
    """All nodes of a run.

    Attributes:
        nodes: By name.
        shared: What all of them have as /var/lib/hajob-demo.
        imports: How long the first import of each archive took, in seconds.
    """

    def __init__(self, plane: ControlPlane, programs: Path) -> None:
        self._plane = plane
        self._programs = programs
        self._group = cgroups.of_run(plane.run.identity)
        self.nodes: dict[str, RealNode] = {}
        self.shared = plane.run.directory / "n" / "host"
        self.imports: dict[str, float] = {}

    def start(self, chips: Sequence[int], images: Sequence[Path]) -> None:
        """Start one node for each number of chips, and wait until all are ready and have the images.

        Raises:
            KubeletsError: one is not after READY_SECONDS.
        """
        self.shared.mkdir(parents=True)
        self._make_bridge()
        cgroups.make(self._group)
        for number, count in enumerate(chips):
            self._start(number, count)
        self.load(images)
        self.wait_ready()

    def load(self, images: Sequence[Path]) -> None:
        """Give every node images, as OCI archives. KubeletsError: one is refused."""
        for node in self.nodes.values():
            self._plane_wait(f"containerd of {node.name}", node.layout.containerd.exists)
            for path in images:
                began = time.monotonic()
                self.ctr(node, "images", "import", str(path))
                self.imports.setdefault(path.name, time.monotonic() - began)

    def wait_ready(self, *names_of_nodes: str) -> None:
        """Wait until nodes, or all, are ready since their last boot and offer their chips.

        Raises:
            ControlPlaneError: one is not after READY_SECONDS.
        """
        asked = [self.nodes[name] for name in names_of_nodes or self.nodes]
        self._plane_wait(
            f"{', '.join(names_of_nodes) or 'all nodes'} to be ready", lambda: all(map(self.is_ready, asked))
        )

    def stop(self) -> None:
        """End everything; what was mounted goes with the namespaces."""
        for node in self.nodes.values():
            if node.plugin is not None:
                node.plugin.stop()
            if node.process is not None:
                node.process.kill()
                node.process.wait()
        if left := cgroups.remove(self._group, seconds=20):
            raise KubeletsError(f"a cgroup cannot be removed: {left}")

    def keep_logs(self) -> Path:
        """Keep what kubelets, containerd and containers have said; returns where."""
        for node in self.nodes.values():
            kept = self._plane.run.logs / "nodes" / node.name
            for log in [*node.layout.directory.glob("*.log"), *node.layout.directory.glob("logs/**/*.log")]:
                target = kept / log.relative_to(node.layout.directory)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(log, target)
        return self._plane.run.keep_logs()

    def process_of(self, rank: int, job: str = "") -> int:
        """Process number of a rank, as this machine sees it; of any job where none is named."""
        for process in processes():
            words = _read(process / "environ").split(b"\0")
            is_its = not job or any(word.startswith(f"POD_NAME={job}-".encode()) for word in words)
            if is_its and f"RANK={rank}".encode() in words and self._group.encode() in _read(process / "cgroup"):
                return int(process.name)
        raise LookupError(f"no process of rank {rank}")

    def contained(self) -> Iterator[tuple[int, str, str]]:
        """Every process of a container, the oldest first: its number, its node, and the container's."""
        for process in processes():
            group = _read(process / "cgroup").decode().partition(f"/{self._group}/")[2].partition("\n")[0].split("/")
            if len(group) > 1:  # node, groups of the kubelet, container
                yield int(process.name), f"node-{group[0]}", group[-1]

    def signal_rank(self, rank: int, job: str = "", name: str = "KILL") -> tuple[int, int]:
        """Send a rank a signal; its process number, and when, in nanoseconds. LookupError: there is none."""
        pid = self.process_of(rank, job)
        at = time.time_ns()
        os.kill(pid, signal.Signals[f"SIG{name}"])
        return pid, at

    def kill(self, rank: int, job: str = "") -> int:
        """Kill a rank; returns when, in nanoseconds."""
        return self.signal_rank(rank, job)[1]

    def _make_bridge(self) -> None:
        # a bridge without an address of its own has that of one of its links: when links come and go it changes, and
        # nobody reaches it until the nodes have forgotten the old one, up to a minute later
        ip("link", "add", "hajob0", "address", hardware_address(BRIDGE), "type", "bridge")
        ip("addr", "add", f"{BRIDGE}/24", "dev", "hajob0")
        ip("link", "set", "hajob0", "up")
        ip("addr", "add", f"{API}/32", "dev", "lo")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        target = self._plane.server.removeprefix("https://")
        self._plane.run.spawn("api-relay", [sys.executable, "-m", "e2e.kubelets.api_relay", f"{API}:443", target])

    def _start(self, number: int, chips: int) -> None:
        directory = self._plane.run.directory / "n" / f"node-{number}"  # short: sockets lie below
        layout = NodeLayout(directory, f"node-{number}", number, f"/{self._group}/{number}", self._programs)
        cgroups.make(f"{self._group}/{number}")
        credential = self._plane.authority.node_client(layout.name)
        authority = self._plane.authority.credential().certificate
        labels = f"{names.LABEL_NODE_ACCELERATOR}=huawei-Ascend910" if chips else "hajob.io/chips=none"
        layout.write(kubeconfig(f"https://{API}:443", authority, credential), labels, self._plane.layout.pki)
        self._plane.authority.node_server(layout.name, [layout.address]).write(directory, "serving")
        node = RealNode(layout, chips)
        self.nodes[layout.name] = node
        self._boot(node)
        if chips:
            plugins = directory / "kubelet" / "device-plugins"
            node.plugin = DevicePlugin(plugins, chips)

    def power_on(self, name: str) -> None:
        """Start a node again that was powered off; what it had in memory is gone, its images are there."""
        node = self.nodes[name]
        for left in (node.layout.containerd, node.layout.directory / "containerd.sock.ttrpc"):
            left.unlink(missing_ok=True)
        self._boot(node)

    def _boot(self, node: RealNode) -> None:
        layout = node.layout
        layout.boot.unlink(missing_ok=True)
        words = [str(layout.directory), layout.address, BRIDGE, str(self._programs), str(self.shared)]
        apart = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
        node.process = self._plane.run.spawn(layout.name, [*apart, "bash", str(SCRIPT), *words])
        self._connect(layout, node.process)

    def _connect(self, layout: NodeLayout, process: subprocess.Popen[bytes]) -> None:
        inner = self._first_child(process)
        link = f"v{layout.number}"
        # of its last boot: the kernel may keep that network namespace for minutes after its last process
        subprocess.run(["ip", "link", "delete", link], capture_output=True, check=False)
        show = ["ip", "link", "show", link]  # not /sys, which shows the machine's network
        self._plane_wait(
            "the link of the node's last boot to be gone",
            lambda: subprocess.run(show, capture_output=True, check=False).returncode != 0,
        )
        inside = ("name", "eth0", "address", hardware_address(layout.address), "netns", str(inner))
        ip("link", "add", link, "type", "veth", "peer", *inside)
        ip("link", "set", link, "master", "hajob0", "up")
        ip("route", "replace", layout.pods, "via", layout.address)

    def _first_child(self, process: subprocess.Popen[bytes]) -> int:
        """The node's first process, which has the namespaces; unshare itself has the old one of pids."""
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        found = self._plane_wait("a node's first process", lambda: children.read_text().split())
        return int(found[0])

    def ctr(self, node: RealNode, *words: str) -> str:
        """Ask a node's containerd; returns what it prints. KubeletsError: it refuses."""
        own = [str(self._programs / "ctr"), "--address", str(node.layout.containerd), "--namespace", "k8s.io"]
        done = subprocess.run([*own, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise KubeletsError(f"{node.name}: ctr {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def is_ready(self, node: RealNode) -> bool:
        """Whether it says that it is, since its last boot, and offers its chips."""
        found = self._plane.api.find(f"/api/v1/nodes/{node.name}")
        status: dict[str, Any] = (found or {}).get("status", {})
        if (
            not node.layout.boot.exists()
            or status.get("nodeInfo", {}).get("bootID") != node.layout.boot.read_text().strip()
        ):
            return False
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", []))
        offered = int(status.get("allocatable", {}).get("huawei.com/Ascend910", "0"))
        return ready and offered == node.chips

    def _plane_wait(self, what: str, condition: Any) -> Any:  # noqa: ANN401 - as ControlPlane.wait
        return self._plane.wait(what, condition, READY_SECONDS, poll=0.1)


def gather_programs(directory: Path, runc: Path) -> Path:
    """A directory with every program of a node under its own name."""
    directory.mkdir(parents=True, exist_ok=True)
    for binary in KUBELETS:
        (directory / binary.name).symlink_to(locate(binary.name))
    (directory / "runc").symlink_to(runc)
    return directory
