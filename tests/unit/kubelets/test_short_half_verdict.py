"""Which failures of the short half decide a build: those of a scenario, and none of the machine's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.bootstrap.paths import CHECKOUT
from e2e.kubelets import __main__ as kubelets
from e2e.kubelets.configuration import DIRECTORY
from e2e.kubelets.verdict import SCENARIO_FAILED, SET_UP_FAILED, is_decisive

NODES = """
import pytest

@pytest.fixture(scope="session")
def nodes():
    {up}
    yield
    {down}

def test_scenario(nodes):
    {scenario}
"""
PASS, FAIL, SKIP = "pass", "raise AssertionError", "pytest.skip('a node does not come up')"


@pytest.mark.parametrize(
    ("up", "scenario", "down", "code"),
    [
        (PASS, PASS, PASS, 0),
        (SKIP, PASS, PASS, 0),
        (PASS, FAIL, PASS, 1),
        (PASS, FAIL, FAIL, 1),
        (FAIL, PASS, PASS, SET_UP_FAILED),
        (PASS, PASS, FAIL, SET_UP_FAILED),
    ],
)
def test_only_a_scenario_that_fails_has_code_1(up: str, scenario: str, down: str, code: int, tmp_path: Path) -> None:
    path = tmp_path / "test_nodes.py"
    path.write_text(NODES.format(up=up, scenario=scenario, down=down))
    plain = ("-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path))
    command = [sys.executable, "-m", "pytest", *plain, "-p", "e2e.kubelets.verdict", str(path)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr


def test_codes_that_decide() -> None:
    """Killed or out of time: the machine's affair; a scenario, or tests that cannot be run at all: ours."""
    decisive = {code for code in (-9, 0, 1, 2, 3, 4, 5, SET_UP_FAILED, 124, 137) if is_decisive(code)}
    assert decisive == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("code", "told"), [(0, 0), (1, SCENARIO_FAILED), (4, SCENARIO_FAILED), (SET_UP_FAILED, 0), (-9, 0), (137, 0)]
)
def test_the_short_half_fails_by_its_scenario_alone(
    code: int, told: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(kubelets, "missing", str)
    monkeypatch.setattr(kubelets, "prepare", lambda _environment: tmp_path)
    monkeypatch.setattr(kubelets, "_apart", lambda *_words: code)
    for name in (kubelets.LENIENT, DIRECTORY):
        monkeypatch.setenv(name, "")  # so that it is taken back
    assert kubelets.main(["--short"]) == told
    left_out = "real kubelets are left out" in capsys.readouterr().err
    assert left_out == (code != 0 and told == 0)


STUB = """#!/bin/sh
case "$0 $*" in
*e2e.kubelets*) echo "kubelets said"; exit {kubelets} ;;
*e2e.torch_trainer*) exit 1 ;;
*/make*" test") echo "tests: $HAJOB_KUBELETS_OUTCOME"; exit {tests} ;;
esac
"""


@pytest.mark.parametrize(
    ("kubelets_code", "tests_code", "code", "last"),
    [
        (0, 0, 0, "tests: kubelets said"),
        (0, 2, 2, "tests: kubelets said"),
        (124, 0, 0, "tests: real kubelets are left out"),
        (1, 0, 0, "tests: real kubelets are left out: their set-up ended with 1"),
        (SCENARIO_FAILED, 0, SCENARIO_FAILED, "kubelets said"),
        (SCENARIO_FAILED, 2, 2, "tests: "),
    ],
)
def test_a_build_fails_by_tests_and_by_scenarios(
    kubelets_code: int, tests_code: int, code: int, last: str, tmp_path: Path
) -> None:
    """What it ends with is pytest's, of that which failed."""
    script = tmp_path / ".ci/run"
    script.parent.mkdir()
    shutil.copy(CHECKOUT / ".ci/run", script)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("python3", "make", "apt-get"):
        program = programs / name
        program.write_text(STUB.format(kubelets=kubelets_code, tests=tests_code))
        program.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "TMPDIR": str(tmp_path)}
    done = subprocess.run(["bash", str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(last), done.stdout
