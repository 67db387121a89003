"""`make e2e PROVIDER=kubelets`: scenarios on real nodes, in a network namespace of their own.

python -m e2e.kubelets [PYTEST-ARGUMENT ...]
python -m e2e.kubelets --check      # 0 where this machine can, else 1 and why not
python -m e2e.kubelets --short      # install, InPlace, Replace, uninstall; 0 where this machine cannot, and why not;
                                    # verdict.SCENARIO_FAILED where the scenario fails, and only then
"""

from __future__ import annotations

import atexit
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from e2e.bootstrap.binaries import BINARIES, HELM, KUBELETS
from e2e.bootstrap.machine import GIBIBYTE, limits
from e2e.bootstrap.paths import CHECKOUT, cache_directory
from e2e.bootstrap.problems import SetupError
from e2e.bootstrap.setup import provide
from e2e.cluster import cgroups
from e2e.kubelets import images, verdict
from e2e.kubelets.configuration import DIRECTORY
from release import bundle, image
from release.debian import PackagesError
from release.layout import UnfitImageError
from release.platforms import PLATFORMS, Platform
from release.tree import write_below
from release.wheels import WheelsError

BUNDLE: Final = "bundle.tar"
"""What `make bundle` writes, below DIRECTORY; the short half and a choice of scenarios do without."""
OUTCOME: Final = "HAJOB_KUBELETS_OUTCOME"
"""What the short half of a build server came to before these tests, which are skipped there."""
LENIENT: Final = "HAJOB_KUBELETS_LENIENT"
"""Set where nodes that do not come up are this machine's affair: the scenario is skipped and says why."""
EVERY_POINT: Final = "HAJOB_EVERY_POINT"
"""Set where scenarios of a minute and more are played, too, as `make e2e` does on process nodes."""
_CAP_SYS_ADMIN: Final = 21
_ARCHITECTURES: Final = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}
_TOOLS: Final = ("ip", "unshare", "mount", "bash")
_GIBIBYTES: Final = 6
_NOT_TO_BE_HAD: Final = (
    *(SetupError, PackagesError, WheelsError, UnfitImageError),
    *(OSError, subprocess.SubprocessError),
)
_APART: Final = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child")
_PROBE: Final = """
mount --make-rshared /
mount -t proc proc /proc
mkdir "$1/lower" "$1/upper" "$1/work" "$1/whole"
mount -t tmpfs tmpfs "$1/whole"
mount -t overlay overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" "$1/whole"
ip link add probe0 type bridge
ip link add probe1 type veth peer name probe2
echo 1 >/proc/sys/net/ipv4/ip_forward
"""
_PROBE_SECONDS: Final = 20


def why_skipped() -> str:
    """Why the scenarios are skipped without DIRECTORY; on a build server, how the short half before them went, too."""
    outcome = " ".join(os.environ.get(OUTCOME, "").split())
    return "real nodes: make e2e PROVIDER=kubelets" + (f"; the short half before: {outcome}" if outcome else "")


def missing() -> str:
    """What this machine lacks for real nodes; empty: nothing. Whatever nodes do to it is tried, in namespaces."""
    if os.geteuid() != 0 or not _capabilities() >> _CAP_SYS_ADMIN & 1:
        return "they need root with CAP_SYS_ADMIN"
    if platform.machine() not in _ARCHITECTURES:
        return f"there is no image for {platform.machine()}"
    if absent := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"{', '.join(absent)} is not there"
    if limits().memory < _GIBIBYTES * GIBIBYTE:
        return f"they need {_GIBIBYTES} GiB of memory"
    return cgroup_problem() or namespace_problem()


def _capabilities() -> int:
    """Bits of what this process may do."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)


def cgroup_problem() -> str:
    """Return why no node can have its cgroups here, tried with one; empty when it can."""
    if not (cgroups.CGROUPS / "memory").is_dir():
        return "they were tried with cgroups of version 1 only, which this machine has not"
    name = f"hajob-probe-{os.getpid()}"
    try:
        cgroups.make(name)
    except OSError as error:
        return f"no cgroup can be made: {error}"
    finally:
        left = cgroups.remove(name)
    return f"a cgroup cannot be removed: {left}" if left else ""


def namespace_problem() -> str:
    """Return why no node can have its namespaces here, tried with one; empty when it can."""
    with tempfile.TemporaryDirectory(dir=cache_directory()) as directory:
        command = [*_APART, "bash", "-euc", _PROBE, "bash", directory]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PROBE_SECONDS)
        except subprocess.TimeoutExpired:
            return f"namespaces are not made within {_PROBE_SECONDS} s"
    return f"namespaces, mounts or links are refused: {done.stderr.strip()[-300:]}" if done.returncode else ""


def this_platform() -> Platform:
    """Of this machine's images. KeyError: there are none for it."""
    return PLATFORMS[_ARCHITECTURES[platform.machine()]]


def prepare(trainer_environment: Mapping[str, str]) -> Path:
    """Images, programs and runc; returns their directory.

    Args:
        trainer_environment: More variables of the training image.

    Raises:
        SetupError, PackagesError, WheelsError, UnfitImageError: something cannot be had.
    """
    began = time.monotonic()
    provide(*BINARIES, *KUBELETS, HELM)  # at once: they share most of what is compiled
    built = time.monotonic()
    here = this_platform()
    directory = own_directory()
    images.build(here, directory / "images", trainer_environment)
    write_below(directory / "runc", images.runc(here, image.cache()))
    done = time.monotonic()
    print(f"real kubelets: programs in {built - began:.0f} s, images in {done - built:.0f} s", flush=True)
    return directory


def own_directory() -> Path:
    """Of this process alone, since others may have nodes, too; what dead ones left is removed."""
    for left in image.cache().glob("kubelets-*"):
        if not Path("/proc", left.name.rpartition("-")[2]).exists():
            shutil.rmtree(left, ignore_errors=True)
    made = image.cache() / f"kubelets-{os.getpid()}"
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def main(arguments: list[str]) -> int:
    """Run pytest in a network namespace of its own; 1 where that cannot be."""
    short = arguments[:1] == ["--short"]
    if problem := missing():
        return _left_out(problem, short)
    if arguments == ["--check"]:
        return 0
    try:
        directory = prepare({})
        if not short and _asks_for_bundle(arguments):
            (directory / BUNDLE).write_bytes(bundle.archive(bundle.contents(image.cache() / "released")))
    except _NOT_TO_BE_HAD as error:
        return _left_out(str(error), short)
    os.environ[DIRECTORY] = str(directory)
    if not short:
        os.environ[EVERY_POINT] = "1"
        return _apart("-m", "pytest", str(CHECKOUT / "e2e/kubelets"), str(CHECKOUT / "e2e/scenarios"), *arguments)
    os.environ[LENIENT] = "1"
    return _short(*arguments[1:])


def _short(*arguments: str) -> int:
    """Play the short half; SCENARIO_FAILED or 0, also where this machine kept it from being played."""
    scenario = str(CHECKOUT / "e2e/kubelets/test_real_nodes.py")
    code = _apart("-m", "pytest", "-p", verdict.__name__, scenario, "-rsP", *arguments)
    if verdict.is_decisive(code):
        return verdict.SCENARIO_FAILED
    if code:
        _left_out(f"what stands around the scenario failed, or it was killed (exit code {code}); see above", short=True)
    return 0


def on_real_nodes(module: str, arguments: Sequence[str], trainer_environment: Mapping[str, str]) -> int:
    """Run a program that takes the nodes of DIRECTORY; its exit code, 1 where this machine cannot have such nodes."""
    if problem := missing():
        return _left_out(problem, short=False)
    try:
        os.environ[DIRECTORY] = str(prepare(trainer_environment))
    except _NOT_TO_BE_HAD as error:
        return _left_out(str(error), short=False)
    return _apart("-m", module, *arguments)


def _asks_for_bundle(arguments: list[str]) -> bool:
    """Both platforms' images take a minute: a choice of scenarios has them made only where it names the bundle."""
    return "-k" not in arguments or any("bundle" in word for word in arguments)


def _left_out(problem: str, short: bool) -> int:
    print(f"real kubelets are left out: {problem}", file=sys.stderr)
    return 0 if short else 1


def _apart(*words: str) -> int:
    """Run Python in a network namespace of its own; Ctrl-C is the program's affair."""
    command = [sys.executable, *words]
    process = subprocess.Popen(["unshare", "--net", "bash", "-c", 'ip link set lo up && exec "$@"', "bash", *command])
    try:
        return process.wait()
    except KeyboardInterrupt:
        return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
