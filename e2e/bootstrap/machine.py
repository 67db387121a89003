"""What the machine gives us: its kind, processors, memory and disk, in the cgroup that we live in.

A container of 2 CPUs on a machine of 64 must not start 64 compilers, so the limits of every cgroup from ours up to
the root count, in version 1 and 2. Where nothing says otherwise the machine itself is the limit.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e.bootstrap.problems import SetupError

GIBIBYTE = 1 << 30
UNLIMITED = 1 << 60


@dataclass(frozen=True)
class Limits:
    """How much of the machine is ours: processors (at least 1) and bytes of memory."""

    processors: int
    memory: int


def require_supported(system: str = "", machine: str = "", library: str = "") -> None:
    """Say at once when this machine cannot run the local cluster, and what to do instead.

    Raises:
        SetupError: It is no glibc Linux on x86_64 or aarch64.
    """
    system = system or platform.system()
    machine = machine or platform.machine()
    library = library or platform.libc_ver()[0] or "musl or unknown"
    if system == "Linux" and machine in {"x86_64", "aarch64"} and library == "glibc":
        return
    here = f"{system} {machine}" + (f" with {library}" if system == "Linux" else "")
    raise SetupError(
        f"The local cluster runs on Linux (x86_64 or aarch64) with glibc; this is {here}.\n"
        "Use a container or a virtual machine with it, for example:\n"
        '    docker run --rm -it -v "$PWD":/hajob -w /hajob -e HAJOB_CACHE=/hajob/.cache python:3.12 make demo'
    )


def limits(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> Limits:
    """Processors and memory of this process."""
    directories = list(_cgroup_directories(root, own))
    processors: float = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for directory in directories:
        processors = min(processors, _processors(directory))
        memory = min(memory, _number(directory / "memory.max"), _number(directory / "memory.limit_in_bytes"))
    return Limits(max(1, int(processors)), memory)


def _cgroup_directories(root: Path, own: Path) -> Iterator[Path]:
    """The directories of our cgroups and all above them, for each hierarchy, as far as they can be seen."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        bases = [root, root / "unified"] if not controllers else [root / name for name in controllers.split(",")]
        for base in bases:
            here = base / path.lstrip("/")
            yield from (each for each in (here, *here.parents) if each.is_relative_to(base) and each.is_dir())


def _processors(directory: Path) -> float:
    """The CPU quota that a cgroup directory sets, in processors."""
    try:
        quota, period = (directory / "cpu.max").read_text().split()
        return UNLIMITED if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    quota_us, period_us = _number(directory / "cpu.cfs_quota_us"), _number(directory / "cpu.cfs_period_us")
    return UNLIMITED if UNLIMITED in {quota_us, period_us} else quota_us / period_us


def _number(file: Path) -> int:
    """The positive number in a file; UNLIMITED where there is none."""
    try:
        value = int(file.read_text())
    except (OSError, ValueError):
        return UNLIMITED
    return value if value > 0 else UNLIMITED


def require_disk(directory: Path, gibibytes: float, what: str) -> None:
    """Make `directory` and check that its disk has room before the work starts.

    Raises:
        SetupError: It cannot be made, or there is too little room.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(directory).free / GIBIBYTE
    except OSError as error:
        reason = error.strerror or str(error)
        raise SetupError(f"{directory} cannot be made ({reason}): set HAJOB_CACHE to a directory that can.") from error
    if not os.access(directory, os.W_OK):
        raise SetupError(f"{directory} cannot be written: set HAJOB_CACHE to a directory that can.")
    if free < gibibytes:
        raise SetupError(
            f"{what} needs {gibibytes:.1f} GiB in {directory}, and {free:.1f} GiB are free there.\n"
            "Free some, or set HAJOB_CACHE to a directory on a disk with more (most of it is given back afterwards)."
        )
