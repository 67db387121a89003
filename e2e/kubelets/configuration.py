"""What kubelet, containerd and CNI are told; each setting that is not obvious with its reason."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from e2e.kubelets.images import PAUSE

BRIDGE: Final = "10.210.0.1"
API: Final = "10.96.0.1"
"""The cluster IP of Service kubernetes, which kubelets put into every pod."""
CGROUPS: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class NodeLayout:
    """Where the parts of one node are.

    Attributes:
        directory: Everything it writes.
        name: Of the node.
        number: Tells its addresses.
        library: Directory of runc's libraries.
    """

    directory: Path
    name: str
    number: int
    cgroup: str
    programs: Path

    @property
    def address(self) -> str:
        """Of the node."""
        return f"10.210.0.{10 + self.number}"

    @property
    def pods(self) -> str:
        """Addresses of its pods."""
        return f"10.211.{self.number}.0/24"

    @property
    def containerd(self) -> Path:
        """Containerd's socket; absolute, as ctr wants it."""
        return self.directory / "containerd.sock"

    def write(self, kubeconfig: str, labels: str, pki: Path) -> None:
        """Write every file that its programs read."""
        network = self.directory / "cni"
        network.mkdir(parents=True)
        (network / "10-pods.conflist").write_text(json.dumps(self._network()))
        (self.directory / "containerd.toml").write_text(self._containerd())
        (self.directory / "kubelet.json").write_text(json.dumps(self._kubelet(pki)))
        (self.directory / "kubeconfig").write_text(kubeconfig)
        (self.directory / "labels").write_text(labels)

    def _network(self) -> dict[str, object]:
        ipam = {
            "type": "host-local",
            "ranges": [[{"subnet": self.pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(self.directory / "addresses"),
        }
        # no masquerading, so no iptables: every node has a route to the pods of every other one
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "ipam": ipam}
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}

    def _containerd(self) -> str:
        return f"""
version = 3
root = "{self.directory}/images"
state = "/run/containerd"
[grpc]
address = "{self.containerd}"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{self.programs}"]
conf_dir = "{self.directory}/cni"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{self.programs}/runc"
SystemdCgroup = false
"""

    def _kubelet(self, pki: Path) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{self.containerd}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.cgroup,
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "100Mi"},  # the default looks at the disk of this machine, too
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "podLogsDir": str(self.directory / "logs"),
            "serializeImagePulls": False,
            "nodeStatusUpdateFrequency": "5s",
            "tlsCertFile": str(self.directory / "serving.crt"),
            "tlsPrivateKeyFile": str(self.directory / "serving.key"),
            "authentication": {"x509": {"clientCAFile": str(pki / "ca.crt")}, "webhook": {"enabled": True}},
            "authorization": {"mode": "Webhook"},
        }


def make_cgroup(name: str) -> str:
    """A cgroup of version 1 for one node, in every hierarchy; returns its path for the kubelet."""
    for hierarchy in _hierarchies():
        made = hierarchy / name
        made.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):  # empty in a new group, and then nothing may run there
            if (made / file).exists():
                (made / file).write_text((hierarchy / file).read_text())
    return f"/{name}"


def remove_cgroups(name: str) -> str:
    """Remove everything below the nodes' groups, innermost first; why that is not yet possible, or nothing."""
    try:
        for hierarchy in _hierarchies():
            below = [path for path in (hierarchy / name).rglob("*") if path.is_dir()]
            for path in (*sorted(below, reverse=True), hierarchy / name):
                if path.is_dir():
                    path.rmdir()
    except OSError as error:
        return str(error)
    return ""


def _hierarchies() -> list[Path]:
    """All of them, the unified one beside them, too."""
    return [path for path in sorted(CGROUPS.iterdir()) if path.is_dir() and not path.is_symlink()]
