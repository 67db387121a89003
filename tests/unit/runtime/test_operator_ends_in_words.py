"""An operator that cannot start says why in one sentence: whoever runs it from a shell reads no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: me, user: {token: secret}}]
"""


def start(environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HAJOB_", "KUBERNETES_"))}
    command = [sys.executable, "-m", "hajob.runtime.app"]
    return subprocess.run(command, env={**inherited, **environment}, capture_output=True, text=True, check=False)


def test_without_a_service_account(tmp_path: Path) -> None:
    ended = start({"HAJOB_SERVICE_ACCOUNT_DIR": str(tmp_path / "none")})
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "service account in" in ended.stderr
    assert "set HAJOB_KUBECONFIG" in ended.stderr


@pytest.mark.parametrize("pod_ip", ["nowhere", "192.0.2.1"])  # no address; one that this machine does not have
def test_at_an_address_that_cannot_be_had(tmp_path: Path, pod_ip: str) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(KUBECONFIG)
    ended = start({"HAJOB_KUBECONFIG": str(kubeconfig), "HAJOB_POD_IP": pod_ip})
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert f"cannot be served at {pod_ip}" in ended.stderr.splitlines()[-1]
