"""What the package does to a process that uses it wrongly: it ends it, and no exception tells."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.harness.mismatched_images import trainer_with_tls
from e2e.mindio.conformance.world import SIMULATOR

SECOND = """
from mindio_ttp import controller_ttp as c
c.tft_init_controller(-1, 4, False)
try:
    c.tft_init_controller(-1, 4, False)
except Exception as error:
    print("refused:", error)
"""
TLS = """
from mindio_ttp import _tls
import os
print(_tls.is_usable(os.environ["INFO"]))
"""


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    own = os.environ | {"PYTHONPATH": str(SIMULATOR)} | environment
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=own, capture_output=True, text=True, timeout=30, check=False)


def test_a_second_init_aborts_unless_logs_go_to_stdout() -> None:
    done = run(SECOND)
    assert done.returncode == -signal.SIGABRT
    assert "already exists" in done.stderr
    assert "refused:" in run(SECOND, TTP_LOG_STDOUT="1").stdout


@pytest.mark.parametrize(("without", "usable"), [("", "True"), ("packagePath", "False"), ("tlsPk", "False")])
def test_tls_material_must_be_whole_with_long_keys(tmp_path: Path, without: str, usable: str) -> None:
    info = trainer_with_tls(tmp_path / "tls")["TOY_MINDIO_TLS"]
    kept = ";".join(part for part in info.split(";") if not without or not part.startswith(without))
    assert run(TLS, INFO=kept).stdout.strip() == usable
