"""Building the binaries of the local cluster that are not there yet, from their published Go modules.

Everything that Go writes goes below one directory of the cache, on a disk and never in /tmp, which may be a small
one in memory; it stays until the last binary is there, so that an interrupted build goes on, and is removed then.
Each binary is made under a temporary name. One at a time: linking the API server takes 1.9 GiB, and two links at
once do not fit into 4 GiB.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from e2e.bootstrap import other_kubernetes, progress
from e2e.bootstrap.binaries import CONTAINERD_VERSION, MODULES, Binary
from e2e.bootstrap.environment import install_into
from e2e.bootstrap.machine import GIBIBYTE, limits, require_disk
from e2e.bootstrap.paths import CHECKOUT, cache_directory, logs_directory

GO_MINIMUM = (1, 26)
GO_LOCK = CHECKOUT / "e2e/bootstrap/go.lock"
GO_SETTINGS = "GOPROXY, GOSUMDB or https_proxy (Go's settings)"
GIBIBYTES = 8.5
PER_COMPILER = 1.5 * GIBIBYTE
PROCESSOR_MINUTES: Final = {"first": 7.0, "further": 1.5, "etcd": 2.0}
PASSED_ON = ("GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOSUMCHECK", "GONOPROXY", "GOPRIVATE", "GOINSECURE", "GOAUTH")


def work_directory() -> Path:
    """Where everything lies that is only needed while building."""
    return cache_directory() / "build"


def build(missing: Sequence[Binary]) -> float:
    """Build the binaries that are missing; returns the seconds spent, downloads not counted.

    Raises:
        SetupError: One cannot be built; those before it are kept.
    """
    require_disk(cache_directory(), GIBIBYTES, "Building the local cluster")
    shutil.rmtree(work_directory() / "tmp", ignore_errors=True)
    (work_directory() / "tmp").mkdir(parents=True)
    go = _find_go() or _install_go()
    environment = _go_environment()
    for module in sorted({binary.module for binary in missing}):
        parts = [binary for binary in missing if binary.module == module]
        if parts[0].generated:
            other_kubernetes.write_module(go, parts[0].version, module_directory(parts[0]), environment)
        else:
            _download(go, module, parts, environment)
    seconds = sum(_build(go, binary, environment) for binary in missing)
    shutil.rmtree(work_directory(), ignore_errors=True)
    return seconds


def module_directory(binary: Binary) -> Path:
    """Where the go.mod is that it is built in."""
    return (work_directory() / "generated" if binary.generated else MODULES) / binary.module


def minutes(missing: Sequence[Binary]) -> int:
    """About how long building these takes on this machine, downloads not counted.

    The first program of Kubernetes compiles what the others share.
    """
    kubernetes = sum(binary.package.startswith("k8s.io/kubernetes/") for binary in missing)
    work = (PROCESSOR_MINUTES["first"] + (kubernetes - 1) * PROCESSOR_MINUTES["further"]) if kubernetes else 0.0
    work += (len(missing) - kubernetes) * PROCESSOR_MINUTES["etcd"]
    return max(1, round(work / limits().processors))


def _go_environment() -> dict[str, str]:
    """Go's environment: the user's registries, everything written below the cache, no more compilers than fit."""
    work = work_directory()
    ours = limits()
    workers = max(1, min(ours.processors, int(ours.memory / PER_COMPILER)))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GO", "CGO_"))}
    kept |= {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    own = {
        "GOPATH": str(work / "path"),
        "GOMODCACHE": str(work / "modules"),
        "GOCACHE": str(work / "objects"),
        "GOTMPDIR": str(work / "tmp"),
        "TMPDIR": str(work / "tmp"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOTELEMETRY": "off",
        "GOFLAGS": f"-modcacherw -buildvcs=false -p={workers}",  # writable, so that it can simply be removed
        "GOMAXPROCS": str(ours.processors),
        "CGO_ENABLED": "0",
    }
    return {"HOME": str(work)} | kept | own


def _find_go() -> Path | None:
    """A Go that is new enough, on the PATH or in the cache."""
    for candidate in (shutil.which("go"), str(_own_go())):
        if candidate and (version := _go_version(Path(candidate))) and version >= GO_MINIMUM:
            return Path(candidate)
    return None


def _own_go() -> Path:
    return work_directory() / "toolchain" / "go" / "bin" / "go"


def _go_version(go: Path) -> tuple[int, ...] | None:
    command = [str(go), "env", "GOVERSION"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=_go_environment(), check=True, timeout=60)
        return tuple(int(part) for part in done.stdout.strip().removeprefix("go").split(".")[:2])
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _install_go() -> Path:
    """The toolchain from its Python package; the package index is the one registry that is surely configured."""
    target, temporary = _own_go().parents[2], work_directory() / "toolchain.new"
    for old in (target, temporary):
        shutil.rmtree(old, ignore_errors=True)
    install_into(temporary, GO_LOCK, "installing Go")
    temporary.rename(target)
    for tool in (_own_go().parent, _own_go().parents[1] / "pkg" / "tool"):
        for file in tool.rglob("*"):
            if file.is_file():
                file.chmod(0o755)
    return _own_go()


def _download(go: Path, module: str, binaries: Sequence[Binary], environment: dict[str, str]) -> None:
    """Fetch the sources of what will be built, and of nothing else, apart from the build: it can be timed alone."""
    command = [str(go), "list", "-deps", "-f", "{{.ImportPath}}"]
    command += ["-tags", ",".join(binaries[0].tags)] if binaries[0].tags else []
    command += [binary.package for binary in binaries]
    progress.run(
        f"fetching the sources of {module}",
        command,
        logs_directory() / f"fetch-{module}.log",
        environment,
        GO_SETTINGS,
        directory=MODULES / module,
        detail=lambda _number, line: (
            line.removeprefix("go: downloading ") if line.startswith("go: downloading") else ""
        ),
    )


def _build(go: Path, binary: Binary, environment: dict[str, str]) -> float:
    """Build one binary under a temporary name; returns the seconds it took."""
    binary.cached.parent.mkdir(parents=True, exist_ok=True)
    temporary = binary.cached.with_name(f".{binary.cached.name}.new")
    command = [str(go), "build", "-v", "-trimpath", "-ldflags", _linker_flags(binary), "-o", str(temporary)]
    command += ["-tags", ",".join(binary.tags)] if binary.tags else []
    command += ["-mod=mod"] if binary.generated else []
    seconds = progress.run(
        f"building {binary.name} {binary.version}",
        [*command, binary.package],
        logs_directory() / f"build-{binary.name}.log",
        environment,
        GO_SETTINGS,
        directory=module_directory(binary),
        detail=lambda number, _line: f"{number} packages",
    )
    temporary.rename(binary.cached)
    return seconds


def _linker_flags(binary: Binary) -> str:
    """No debugging tables; and the version, without which Kubernetes says v0.0.0 and its clients complain."""
    flags = ["-s", "-w"]
    if binary.package.startswith("k8s.io/kubernetes/"):
        major, minor, _ = binary.version.split(".")
        values = {"gitVersion": f"v{binary.version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            flags += [f"-X={package}.{name}={value}" for name, value in values.items()]
    if binary.module == "prometheus":
        flags.append(f"-X=github.com/prometheus/common/version.Version={binary.version}")
    if binary.module == "containerd":
        flags.append(f"-X=github.com/containerd/containerd/v2/version.Version=v{CONTAINERD_VERSION}")
    return " ".join(flags)
