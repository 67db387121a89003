"""Each process says which Hajob it is, and does nothing else then."""

import subprocess
import sys
from pathlib import Path

import pytest

from hajob.version import VERSION
from trainer_sidecar.install import install_below

MODULES = {
    "hajob.app.operator": "operator",
    "hajob.app.installed": "installed",
    "hajob.cli.main": "kubectl hajob",
    "trainer_sidecar.agent": "agent",
    "trainer_sidecar.coordinator": "coordinator",
    "trainer_sidecar.install": "install",
}


def said(*command: str) -> str:
    done = subprocess.run([sys.executable, *command, "--version"], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("module", MODULES)
def test_a_process_of_the_image_says_its_version(module: str) -> None:
    assert said("-m", module) == f"hajob {VERSION} ({MODULES[module]})\n"


@pytest.mark.parametrize("name", ["launcher", "controller_host"])
def test_what_runs_in_the_training_image_says_its_version(name: str, tmp_path: Path) -> None:
    install_below(tmp_path)
    assert said(str(tmp_path / f"{name}.pyz")) == f"hajob {VERSION} ({name})\n"
