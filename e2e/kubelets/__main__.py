"""`make e2e PROVIDER=kubelets`: scenarios on real nodes, in a network namespace of their own.

python -m e2e.kubelets [PYTEST-ARGUMENT ...]
python -m e2e.kubelets --check      # 0 where this machine can, else 1 and why not
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from e2e.bootstrap.binaries import HELM, KUBELETS
from e2e.bootstrap.paths import CHECKOUT
from e2e.bootstrap.problems import SetupError
from e2e.bootstrap.setup import provide
from e2e.kubelets import images
from e2e.kubelets.configuration import CGROUPS
from release import image
from release.debian import PackagesError
from release.layout import UnfitImageError
from release.platforms import PLATFORMS
from release.tree import write_below
from release.wheels import WheelsError

DIRECTORY: Final = "HAJOB_KUBELETS"
"""Where the scenarios find images and runc; without it they are skipped."""
_CAP_SYS_ADMIN: Final = 21
_ARCHITECTURES: Final = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}
_TOOLS: Final = ("ip", "unshare", "mount", "bash")


def missing() -> str:
    """What this machine lacks for real nodes; empty: nothing."""
    capable = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            capable = int(line.split()[1], 16)
    if os.geteuid() != 0 or not capable >> _CAP_SYS_ADMIN & 1:
        return "they need root with CAP_SYS_ADMIN"
    if absent := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"{', '.join(absent)} is not there"
    if not (CGROUPS / "memory").is_dir() or not os.access(CGROUPS / "memory", os.W_OK):
        return "they were tried with cgroups of version 1 only, which this machine has not, or not to be written"
    return ""


def prepare() -> Path:
    """Images, programs and runc; returns their directory.

    Raises:
        SetupError, PackagesError, WheelsError, UnfitImageError: something cannot be had.
    """
    provide(*KUBELETS, HELM)
    here = PLATFORMS[_ARCHITECTURES[platform.machine()]]
    directory = image.cache() / "kubelets"
    shutil.rmtree(directory, ignore_errors=True)
    images.build(here, directory / "images")
    write_below(directory / "runc", images.runc(here, image.cache()))
    return directory


def main(arguments: list[str]) -> int:
    """Run pytest in a network namespace of its own; 1 where that cannot be."""
    if problem := missing():
        print(f"no real kubelets here: {problem}", file=sys.stderr)
        return 1
    if arguments == ["--check"]:
        return 0
    try:
        os.environ[DIRECTORY] = str(prepare())
    except (SetupError, PackagesError, WheelsError, UnfitImageError) as error:
        print(error, file=sys.stderr)
        return 1
    command = [sys.executable, "-m", "pytest", str(CHECKOUT / "e2e/kubelets"), *arguments]
    return subprocess.call(["unshare", "--net", "bash", "-c", 'ip link set lo up && exec "$@"', "bash", *command])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
