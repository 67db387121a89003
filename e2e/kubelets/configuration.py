"""What kubelet, containerd and CNI are told; each setting that is not obvious with its reason."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from e2e.kubelets.images import PAUSE

DIRECTORY: Final = "HAJOB_KUBELETS"
"""Environment variable: where images and runc were prepared; without it there are no real nodes."""
BRIDGE: Final = "10.210.0.1"
API: Final = "10.96.0.1"
"""The cluster IP of Service kubernetes, which kubelets put into every pod."""


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

    @property
    def boot(self) -> Path:
        """The file with the name of its last boot, which the kernel has for all of them."""
        return self.directory / "boot"

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
