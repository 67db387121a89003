"""What the init container leaves in the shared directory, and that old Pythons can run it."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from trainer_sidecar import install

PACKAGE = Path(install.__file__).parent
COPIED = sorted([*(PACKAGE / "launcher").glob("*.py"), *(PACKAGE / name for name in install.SHARED)])
OLDEST = (3, 7)


def test_everything_is_there_whole_and_executable(tmp_path: Path) -> None:
    written = install.install_below(tmp_path)
    names = {path.relative_to(tmp_path).as_posix() for path in written}
    shims = {f"bin/{name}" for name in ("torchrun", "msrun", "torch_npu_run", "python", "python3")}
    assert names == {"launcher.pyz", "controller_host.pyz", "entry.py", "shim.py"} | shims
    assert all(path.stat().st_mode & 0o777 == 0o755 for path in written)
    assert {path.name for path in tmp_path.iterdir()} == {name.split("/")[0] for name in names}


def test_installing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in install.install_below(tmp_path)}
    assert {path: path.read_bytes() for path in install.install_below(tmp_path)} == before


def test_a_directory_that_cannot_be_filled_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "trainer_sidecar.install", str(tmp_path / "file")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{tmp_path / 'file'} cannot be filled" in done.stderr


@pytest.mark.parametrize("name", ["launcher.pyz", "controller_host.pyz"])
def test_archives_are_standard_library_only(tmp_path: Path, name: str) -> None:
    install.install_below(tmp_path)
    allowed = set(sys.stdlib_module_names) | {"trainer_sidecar"}
    optional = {"mindio_ttp", "torch", "mindspore"}  # of the training image, looked for by the controller host
    with zipfile.ZipFile(tmp_path / name) as archive:
        for entry in archive.namelist():
            for module in imported(archive.read(entry).decode()):
                assert module in allowed | optional, f"{entry} imports {module}"


def imported(source: str) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            modules.add(node.module.split(".")[0])
    return modules


@pytest.mark.parametrize("source", COPIED, ids=lambda path: path.name)
def test_the_launcher_is_written_in_the_oldest_python(source: Path) -> None:
    ast.parse(source.read_text(), feature_version=OLDEST)


def test_a_wrong_call_says_how(tmp_path: Path) -> None:
    install.install_below(tmp_path)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "launcher.pyz"), "bash"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 64
    assert "launcher.pyz -- COMMAND" in done.stderr


def test_missing_settings_are_named(tmp_path: Path) -> None:
    install.install_below(tmp_path)
    python = shutil.which("python3") or sys.executable
    done = subprocess.run(
        [python, str(tmp_path / "launcher.pyz"), "--", "true"],
        capture_output=True,
        text=True,
        check=False,
        env={"HAJOB_DIR": str(tmp_path), "HAJOB_NODE_RANK": "0"},
    )
    assert done.returncode == 64
    assert "HAJOB_RANKS_PER_NODE must be a number" in done.stderr
