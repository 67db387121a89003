"""Which binaries the local cluster needs, in which version, and where each one is.

Each is looked up singly: an envtest directory, for example, has an API server but no scheduler. A binary found
outside of the cache counts only if it says the version that is wanted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from e2e.bootstrap.paths import CHECKOUT, binaries_directory, platform_name

KUBERNETES_VERSION = "1.36.3"
VERSION_VARIABLE = "HAJOB_KUBERNETES"
"""Another version of API server, scheduler and controller manager, one of these."""
_SERVERS = ("kube-apiserver", "kube-scheduler", "kube-controller-manager")
OTHER_KUBERNETES: dict[str, tuple[str, ...]] = {"1.29.6": _SERVERS[:2], "1.32.13": _SERVERS, "1.34.4": _SERVERS}
"""The oldest that Hajob runs on, and others; which parts of each the module proxy has the sources of."""
ETCD_VERSION = "3.7.3"
KWOK_VERSION = "0.8.0"
HELM_VERSION = "4.3.1"
CONTAINERD_VERSION = "2.4.2"
CNI_VERSION = "1.9.0"
PROMETHEUS_VERSION = "3.16.0"
_LAST_WITH_PROVIDERS = 30
"""Up to this minor version Kubernetes has cloud providers of its own, which nothing here needs."""
MODULES = CHECKOUT / "e2e/cluster/go"


@dataclass(frozen=True)
class Binary:
    """A program of the local cluster.

    Attributes:
        name: Its file name without the version.
        version: The version wanted, as the program itself says it, without a leading v.
        module: Directory below e2e/cluster/go that holds its go.mod.
        package: What `go build` is given there.
        version_command: Arguments that make it print its version.
        build_gigabytes: Memory that building it takes at most.
        tags: Go's build tags.
        generated: Whether that go.mod is written when it is built (e2e/bootstrap/other_kubernetes.py).
    """

    name: str
    version: str
    module: str
    package: str
    version_command: tuple[str, ...]
    build_gigabytes: float = 1.2
    tags: tuple[str, ...] = ()
    generated: bool = False

    @property
    def cached(self) -> Path:
        """Where the cache keeps it."""
        return binaries_directory() / f"{self.name}-{self.version}-{platform_name()}"


def _kubernetes(name: str, *version_command: str, build_gigabytes: float = 1.5) -> Binary:
    package = f"k8s.io/kubernetes/cmd/{name}"
    return Binary(name, KUBERNETES_VERSION, "kubernetes", package, version_command, build_gigabytes)


def kubernetes_parts(version: str) -> tuple[Binary, ...]:
    """The parts of another version's control plane. KeyError: that version is not one of OTHER_KUBERNETES."""
    old = int(version.split(".")[1]) <= _LAST_WITH_PROVIDERS
    return tuple(
        Binary(
            name,
            version,
            f"kubernetes-{version}",
            f"k8s.io/kubernetes/cmd/{name}",
            ("--version",),
            build_gigabytes=2.0,
            tags=("providerless",) if old else (),
            generated=True,
        )
        for name in OTHER_KUBERNETES[version]
    )


def _of_the_chosen_version(binaries: tuple[Binary, ...]) -> tuple[Binary, ...]:
    version = os.environ.get(VERSION_VARIABLE, "")
    others = {each.name: each for each in kubernetes_parts(version)} if version in OTHER_KUBERNETES else {}
    return tuple(others.get(each.name, each) for each in binaries)


BINARIES = _of_the_chosen_version(
    (
        Binary("etcd", ETCD_VERSION, "etcd", ".", ("--version",)),
        _kubernetes("kube-apiserver", "--version", build_gigabytes=2.0),
        _kubernetes("kubectl", "version", "--client"),
        _kubernetes("kube-controller-manager", "--version", build_gigabytes=2.0),
        _kubernetes("kube-scheduler", "--version"),
    )
)
KWOK = Binary("kwok", KWOK_VERSION, "kwok", "sigs.k8s.io/kwok/cmd/kwok", ("--version",))
"""Thousands of nodes that are only told to be there: for `make bench` alone, and built when that asks for it."""

HELM = Binary("helm", HELM_VERSION, "helm", "helm.sh/helm/v4/cmd/helm", ("version", "--short"))
"""For the tests of the chart, and built when these ask for it (`make chart`)."""


def _prometheus(name: str) -> Binary:
    package = f"github.com/prometheus/prometheus/cmd/{name}"
    # Without what finds targets in clouds, which is most of it.
    return Binary(name, PROMETHEUS_VERSION, "prometheus", package, ("--version",), 2.0, ("remove_all_sd",))


PROMETHEUS, PROMTOOL = _prometheus("prometheus"), _prometheus("promtool")
"""For the tests of metrics, alerts and boards, and built when these ask for it (`make metrics`)."""


def _containerd(name: str) -> Binary:
    package = f"github.com/containerd/containerd/v2/cmd/{name}"
    tags = ("no_btrfs", "no_devmapper", "no_zfs")
    return Binary(name, CONTAINERD_VERSION, "containerd", package, ("--version",), tags=tags)


def _cni(kind: str, name: str) -> Binary:
    package = f"github.com/containernetworking/plugins/plugins/{kind}/{name}"
    return Binary(name, CNI_VERSION, "cni", package, ("--version",))


KUBELETS = (
    _kubernetes("kubelet", "--version"),
    *map(_containerd, ("containerd", "containerd-shim-runc-v2", "ctr")),
    _cni("main", "bridge"),
    _cni("main", "loopback"),
    _cni("ipam", "host-local"),
)
"""What a node of real kubelets runs, besides runc, which the distribution has (docs/internals/local-cluster.md)."""


class MissingBinaryError(RuntimeError):
    """A program of the local cluster is not there; the message says how to get it."""


def find(binary: Binary) -> Path | None:
    """Where `binary` is: in the cache, in $KUBEBUILDER_ASSETS or on the PATH, or None."""
    if binary.cached.is_file():
        return binary.cached
    candidates = []
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        candidates.append(Path(assets) / binary.name)
    if on_path := shutil.which(binary.name):
        candidates.append(Path(on_path))
    return next((path for path in candidates if path.is_file() and _says_version(path, binary)), None)


def _says_version(path: Path, binary: Binary) -> bool:
    try:
        done = subprocess.run([path, *binary.version_command], capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    words = done.stdout.decode(errors="replace").replace("v", " ").split()
    return done.returncode == 0 and binary.version in words


def named(name: str) -> Binary:
    """The binary of that name, of all that can be built here."""
    return next(each for each in (*BINARIES, KWOK, HELM, PROMETHEUS, PROMTOOL, *KUBELETS) if each.name == name)


def locate(name: str) -> Path:
    """Where the program `name` is.

    Raises:
        MissingBinaryError: It is not there yet.
    """
    binary = named(name)
    if path := find(binary):
        return path
    raise MissingBinaryError(f"{name} {binary.version} is not built yet: run `make setup` in {CHECKOUT}")
