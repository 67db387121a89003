"""What kind and Docker are told, as data: a cluster's configuration and every command, and nothing is run here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hajob.api import constants as names

AUDIT_DIRECTORY: Final = "/var/log/hajob"
POLICY: Final = "/etc/kubernetes/hajob/audit-policy.json"
HOST_PATH: Final = "/var/lib/hajob-demo"
PLUGINS: Final = "/var/lib/kubelet/device-plugins"
CREATE_SECONDS: Final = 600
SIGNAL: Final = """
for process in $(ls /proc | grep -E '^[0-9]+$' | sort -n); do
    words=$(tr '\\0' '\\n' <"/proc/$process/environ") || continue
    grep -qx "RANK=$1" <<<"$words" && grep -q "^POD_NAME=$2" <<<"$words" || continue
    at=$(date +%s%N)
    kill -s "$3" "$process" && echo "$process $at" && exit
done 2>/dev/null
exit 1
"""
"""Of bash in a node, which sees the processes of its pods: RANK, the begin of POD_NAME, the signal; the oldest."""
_SILENCE: Final = ("raw PREROUTING -i", "mangle POSTROUTING -o")


@dataclass(frozen=True)
class KindLayout:
    """Where the parts of one cluster are.

    Attributes:
        name: Of the cluster; its nodes are `NAME-control-plane`, `NAME-worker`, `NAME-worker2` and so on.
        directory: Of the run.
        chips: Of each worker.
        address: Where the API server listens on this machine.
        port: Its port there.
    """

    name: str
    directory: Path
    chips: Sequence[int]
    address: str
    port: int

    @property
    def workers(self) -> list[str]:
        """Names of the nodes, as kind gives them."""
        return [f"{self.name}-worker{number if number > 1 else ''}" for number in range(1, len(self.chips) + 1)]

    @property
    def shared(self) -> Path:
        """What all workers have as HOST_PATH."""
        return self.directory / "n" / "host"

    @property
    def volumes(self) -> Path:
        """Where jobs have their checkpoints, under the same path in every worker."""
        return self.directory / "volumes"

    def plugins(self, number: int) -> Path:
        """Where the kubelet of a worker has its sockets, seen from this machine; short, since it holds sockets."""
        return self.directory / "n" / str(number) / "device-plugins"

    @property
    def configuration(self) -> Path:
        """The file of the cluster's configuration."""
        return self.directory / "kind.json"

    @property
    def policy(self) -> Path:
        """The file of the audit policy."""
        return self.directory / "audit-policy.json"


def cluster(layout: KindLayout) -> dict[str, Any]:
    """The cluster's configuration: an API server that writes an audit log, and a worker for each number of chips."""
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"apiServerAddress": layout.address, "apiServerPort": layout.port},
        "nodes": [_control_plane(layout), *(_worker(layout, number) for number in range(len(layout.chips)))],
    }


def _control_plane(layout: KindLayout) -> dict[str, Any]:
    audit = {
        "audit-policy-file": POLICY,
        "audit-log-path": f"{AUDIT_DIRECTORY}/audit.jsonl",
        "audit-log-mode": "blocking",  # written before the answer is: a count after an answer is complete
        "audit-log-maxsize": "100000",
    }
    directories = {"audit-policy": str(Path(POLICY).parent), "audit-log": AUDIT_DIRECTORY}
    volumes = [{"name": name, "hostPath": path, "mountPath": path} for name, path in directories.items()]
    patch = {"kind": "ClusterConfiguration", "apiServer": {"extraArgs": audit, "extraVolumes": volumes}}
    mounts = [_mount(layout.policy, POLICY), _mount(layout.directory / "logs", AUDIT_DIRECTORY)]
    return {"role": "control-plane", "kubeadmConfigPatches": [json.dumps(patch)], "extraMounts": mounts}


def _worker(layout: KindLayout, number: int) -> dict[str, Any]:
    chips = layout.chips[number]
    mounts = [_mount(layout.shared, HOST_PATH), _mount(layout.volumes, str(layout.volumes))]
    if chips:
        mounts.append(_mount(layout.plugins(number), PLUGINS))
    labels = {names.LABEL_NODE_ACCELERATOR: "huawei-Ascend910"} if chips else {"hajob.io/chips": "none"}
    return {"role": "worker", "labels": labels, "extraMounts": mounts}


def _mount(host: Path, container: str) -> dict[str, str]:
    return {"hostPath": str(host), "containerPath": container}


def create(layout: KindLayout, kubeconfig: Path) -> list[str]:
    """Make the cluster and wait for its control plane."""
    configuration = ("--config", str(layout.configuration), "--kubeconfig", str(kubeconfig))
    return ["kind", "create", "cluster", "--name", layout.name, *configuration, "--wait", f"{CREATE_SECONDS}s"]


def load(layout: KindLayout, archive: Path) -> list[str]:
    """Give every node the images of an archive."""
    return ["kind", "load", "image-archive", str(archive), "--name", layout.name]


def export_logs(layout: KindLayout, directory: Path) -> list[str]:
    """Write what the nodes have said below a directory."""
    return ["kind", "export", "logs", str(directory), "--name", layout.name]


def delete(layout: KindLayout) -> list[str]:
    """Remove the cluster; without complaint where there is none."""
    return ["kind", "delete", "cluster", "--name", layout.name]


def guard(layout: KindLayout, owner: int) -> list[str]:
    """Remove the cluster when a process has ended, however it did: neither kind nor Docker knows of runs."""
    return ["bash", "-c", 'tail --pid="$0" -f /dev/null && exec "$@"', str(owner), *delete(layout)]


def cut(node: str) -> list[list[str]]:
    """Drop all that a node hears and says; packets are dropped silently, and addresses stay."""
    return [_rule(node, "-I", each) for each in _SILENCE]


def heal(node: str) -> list[list[str]]:
    """Undo `cut`."""
    return [_rule(node, "-D", each) for each in _SILENCE]


def _rule(node: str, change: str, place: str) -> list[str]:
    table, *rest = place.split()
    return ["docker", "exec", node, "iptables", "-w", "-t", table, change, *rest, "eth0", "-j", "DROP"]


def power_off(node: str) -> list[str]:
    """End all of a node at once; `cut` before it, so that nobody hears of it."""
    return ["docker", "kill", node]


def power_on(node: str) -> list[str]:
    """Boot it again; its file system is as it was."""
    return ["docker", "start", node]


def signal(node: str, rank: int, job: str, name: str) -> list[str]:
    """Send the oldest process of a rank on a node a signal; of any job where none is named."""
    return ["docker", "exec", node, "bash", "-c", SIGNAL, "bash", str(rank), f"{job}-" if job else "", name]
