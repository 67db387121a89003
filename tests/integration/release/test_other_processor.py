"""The arm64 image, which most Atlas hosts run, by an emulator of its processor: `make nightly`, with qemu-user-static.

Nothing is downloaded: without the packages (`make image-archive`) or the emulator these tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from e2e.bootstrap.paths import CHECKOUT
from release import debian, image, layout
from release.platforms import PLATFORMS
from release.tree import without_links, write_below
from tests.rigs.certificates import Authority
from tests.rigs.operator import UNREACHABLE_KUBECONFIG
from tests.rigs.rank_pod import ADDRESS, JOB, Pod
from trainer_sidecar.install import install_below

QUICKSTART: Final = CHECKOUT / "examples" / "quickstart.yaml"
ARM: Final = PLATFORMS["linux/arm64"]
EMULATOR: Final = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
PATIENCE: Final = 300.0
"""An emulated start takes a minute on a machine that does nothing else."""
IMPORT_ALL: Final = """
import importlib, pkgutil, hajob, trainer_sidecar
names = [
    found.name
    for package in (hajob, trainer_sidecar)
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    if not found.name.endswith("__main__")
]
for name in names:
    importlib.import_module(name)
import platform
print(platform.machine(), len(names))
"""

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif("HAJOB_LONG_TESTS" not in os.environ, reason="some minutes: make nightly"),
    pytest.mark.skipif(EMULATOR is None, reason="no qemu-aarch64-static: apt-get install qemu-user-static"),
]


class Machine:
    """An arm64 machine that holds the image's files and nothing else."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def command(self, *words: str) -> list[str]:
        """The command line of the image's Python with these words."""
        assert EMULATOR is not None
        return [EMULATOR, *ARM.python(str(self.root)), *words]

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """What a container of the image has, and a place for Python's own files."""
        return {**layout.ENVIRONMENT, "HOME": "/nonexistent", **(more or {}), "PYTHONHOME": f"{self.root}/usr"}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*words), env=self.environment(), capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    store = image.cache() / "debian"
    if any(not (store / each.file).is_file() for each in debian.locked(ARM)):
        pytest.skip("the packages of the arm64 image are not in the cache: make image-archive")
    root = tmp_path_factory.mktemp("arm64")
    tree = {path: entry for layer in layout.layers(ARM, image.cache()) for path, entry in layer.tree.items()}
    write_below(root, without_links(tree))
    return Machine(root)


def test_every_module_imports(machine: Machine) -> None:
    ended = machine.run("-c", IMPORT_ALL)
    assert ended.returncode == 0, ended.stderr
    processor, modules = ended.stdout.split()
    files = [
        path
        for package in ("operator/hajob", "trainer_sidecar")
        for path in (CHECKOUT / package).rglob("*.py")
        if path.name != "__main__.py" and path.parent != CHECKOUT / package
    ]
    assert processor == "aarch64"
    assert int(modules) >= len(files)


def test_a_manifest_is_simulated(machine: Machine) -> None:
    ended = machine.run("-m", "hajob.cli.main", "simulate", "--lose", "node=1", "-f", str(QUICKSTART))
    assert ended.returncode == 0, ended.stderr
    assert "Replace" in ended.stdout


def listening(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until somebody listens at this port of the tests' address."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection((ADDRESS, port), timeout=1).close()
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.5)
        else:
            return


@pytest.mark.parametrize("part", ["agent", "coordinator", "operator"])
def test_each_part_serves_and_ends_when_told(machine: Machine, part: str, tmp_path: Path) -> None:
    authority = Authority()
    pod = Pod(tmp_path, authority)
    pod.prepare()
    own = pod.environment()
    del own["PATH"], own["PYTHONPATH"]
    port, module = pod.agent_port, f"trainer_sidecar.{part}"
    if part == "coordinator":
        authority.write(tmp_path / "tls", f"coordinator.{JOB}")
        own |= {"HAJOB_COORDINATOR_PORT": str(port), "MINDIO_WAIT_MINDX_TIME": "120"}
        install_below(tmp_path)
    if part == "operator":
        (tmp_path / "config").write_text(UNREACHABLE_KUBECONFIG)
        own = {"HAJOB_KUBECONFIG": str(tmp_path / "config"), "HAJOB_POD_IP": ADDRESS, "HAJOB_METRICS_PORT": str(port)}
        module = "hajob.app.operator"
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            machine.command("-m", module), env=machine.environment(own), stdout=output, stderr=subprocess.STDOUT
        )
    try:
        listening(port, process, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
