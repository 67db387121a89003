"""The other faces of the trainer: MindFormers', which has no decorator; and where real PyTorch is looked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.trainer import framework_python as interpreter
from e2e.trainer import mindspore
from e2e.trainer.framework_python import NoPythonError, torch_python
from e2e.trainer.settings import settings_from
from tests.rigs.toy_trainer import MINDSPORE_PLACE, run_toy_trainer


@pytest.mark.parametrize(
    ("text", "state"),
    [("UCEError, error_code=507054", 2), ("HCCEError", 4), ("FORCE STOP: x", 0), ("ARF FINISH", 6), ("odd", 8)],
)
def test_mindspore_goes_by_substrings(text: str, state: int) -> None:
    assert mindspore.state_of(text) == state


def test_a_blank_switches_fault_tolerance_off() -> None:
    assert settings_from([], MINDSPORE_PLACE | {"MS_ENABLE_TFT": "{TTP:1,ARF:1}"}).enable_arf
    assert not settings_from([], MINDSPORE_PLACE | {"MS_ENABLE_TFT": "{TTP: 1,ARF: 1}"}).enable_arf


def test_every_rank_of_mindformers_prints_its_step_in_the_epoch(tmp_path: Path) -> None:
    run_toy_trainer(tmp_path / "calm", "--mindformers", "--", "--train-iters", "12", "--steps-per-epoch", "5")
    for rank in (0, 1):
        said = (tmp_path / "calm" / f"output-rank{rank}.log").read_text()
        assert "{ Epoch:[  2/  3], step:[    1/    5], loss: " in said


def test_a_killed_worker_of_mindformers_comes_back(tmp_path: Path) -> None:
    run_toy_trainer(tmp_path / "calm", "--mindformers", "--", "--train-iters", "30")
    hit = ["--mindformers", "--kill", "1@12", "--compare", str(tmp_path / "calm")]
    run_toy_trainer(tmp_path / "hit", *hit, "--", "--train-iters", "30")


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_python.cache_clear()
    monkeypatch.setenv(interpreter.TORCH_VARIABLE, "/bin/false")
    with pytest.raises(NoPythonError, match="apt-get install --no-install-recommends python3-torch"):
        torch_python()
    torch_python.cache_clear()
    command = [sys.executable, "-m", "e2e.torch_trainer"]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert (done.returncode, "HAJOB_TORCH_PYTHON" in done.stderr) == (1, True)
