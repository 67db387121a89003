"""A pod that is deleted while its processes still start: each entry ends as it does later, by its own decision."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs.certificates import Authority
from tests.rigs.rank_pod import JOB, Pod
from trainer_sidecar.install import install_below

# SIGTERM in the middle of the imports, exactly there and every time
SITECUSTOMIZE = """
import os, signal, sys
class Deleted:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["DELETED_AT"]:
            os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, Deleted())
"""


@pytest.mark.parametrize(
    ("words", "deleted_at", "code"),
    [
        (["{0}/launcher.pyz", "--", "sleep", "1000"], "trainer_sidecar.launcher.supervisor", 128 + signal.SIGTERM),
        (["{0}/controller_host.pyz"], "trainer_sidecar.controller_host.host", 0),
        (["-m", "trainer_sidecar.agent"], "trainer_sidecar.agent.node", 0),
        (["-m", "trainer_sidecar.coordinator"], "trainer_sidecar.coordinator.shell.hub", 0),
        (["-m", "trainer_sidecar.install", "{0}/empty"], "zipfile", 128 + signal.SIGTERM),
    ],
    ids=["launcher", "controller host", "agent", "coordinator", "install"],
)
def test_a_signal_among_the_imports_is_honoured(
    words: list[str], deleted_at: str, code: int, tmp_path: Path, authority: Authority
) -> None:
    install_below(tmp_path)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITECUSTOMIZE)
    authority.write(tmp_path / "tls", f"coordinator.{JOB}")
    pod = Pod(tmp_path, authority)
    environment = {**pod.environment(), "DELETED_AT": deleted_at, "HAJOB_COORDINATOR_PORT": str(pod.agent_port)}
    environment["MINDIO_WAIT_MINDX_TIME"] = "120"
    environment["PYTHONPATH"] = f"{tmp_path / 'site'}:{environment['PYTHONPATH']}"
    done = subprocess.run(
        [sys.executable, *(word.format(tmp_path) for word in words)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert not (tmp_path / "empty").exists()
