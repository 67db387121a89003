"""What runs in the training image, really run by every Python that this machine has: images bring 3.7 to 3.14."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.rigs.trainer_container import running
from tests.unit.pythons import MINORS, interpreter
from trainer_sidecar.install import install_below

IMPORT_ALL = """
import pkgutil, sys
sys.path.insert(0, sys.argv[1])
import trainer_sidecar.{0} as package
for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
    if not found.name.endswith("__main__"):
        __import__(found.name)
"""


@pytest.fixture(params=MINORS, ids=lambda minor: f"3.{minor}")
def python(request: pytest.FixtureRequest) -> str:
    found = interpreter(request.param)
    if found is None:
        pytest.skip(f"there is no Python 3.{request.param} on this machine")
    return found


def test_launcher_and_shims_run_a_script(python: str, tmp_path: Path) -> None:
    with running(
        tmp_path,
        "torchrun --nproc_per_node 2 echo.py hello | tee log",
        python=python,
        HAJOB_CHECKPOINT_DIR=str(tmp_path),
    ) as pod:
        pod.launched()
        pod.send({"kind": "files", "number": 1, "copies": [], "writes": {"tracker": "5"}, "aside": []})
        pod.until(lambda: pod.heard("files"), "the answer")
        pod.start_ranks()
        pod.until(lambda: "rank 1 args hello" in pod.log() and "rank 0 args hello" in pod.log(), "both ranks")
    assert (tmp_path / "tracker").read_text() == "5"


@pytest.mark.parametrize("part", ["launcher", "controller_host"])
def test_every_module_is_imported(python: str, tmp_path: Path, part: str) -> None:
    install_below(tmp_path)
    archive = str(tmp_path / f"{part}.pyz")
    done = subprocess.run(
        [python, "-c", IMPORT_ALL.format(part), archive], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
