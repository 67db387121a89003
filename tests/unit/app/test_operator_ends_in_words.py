"""An operator that cannot start says why in one sentence: whoever runs it from a shell reads no traceback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.cluster.loopback import own_address, own_port
from tests.rigs.operator import UNREACHABLE_KUBECONFIG

COMMAND = (sys.executable, "-m", "hajob.app.operator")


def start(environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(COMMAND, env=with_inherited(environment), capture_output=True, text=True, check=False)


def with_inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """What this machine sets besides; nothing of Hajob's or of a cluster."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HAJOB_", "KUBERNETES_"))}
    return {**inherited, **environment}


def test_without_a_service_account(tmp_path: Path) -> None:
    ended = start({"HAJOB_SERVICE_ACCOUNT_DIR": str(tmp_path / "none")})
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "service account in" in ended.stderr
    assert "set HAJOB_KUBECONFIG" in ended.stderr


@pytest.mark.parametrize("pod_ip", ["nowhere", "192.0.2.1"])  # no address; one that this machine does not have
def test_at_an_address_that_cannot_be_had(tmp_path: Path, pod_ip: str) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(UNREACHABLE_KUBECONFIG)
    ended = start({"HAJOB_KUBECONFIG": str(kubeconfig), "HAJOB_POD_IP": pod_ip})
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert f"cannot be served at {pod_ip}" in ended.stderr.splitlines()[-1]


def test_told_to_end_before_the_server_has_answered(tmp_path: Path) -> None:
    """Whoever ends it need not wait for a server that does not answer."""
    (tmp_path / "config").write_text(UNREACHABLE_KUBECONFIG)
    address, port = own_address(), own_port()
    environment = {"HAJOB_KUBECONFIG": str(tmp_path / "config"), "HAJOB_POD_IP": address}
    environment["HAJOB_METRICS_PORT"] = str(port)
    process = subprocess.Popen(COMMAND, env=with_inherited(environment), stderr=subprocess.DEVNULL)
    try:
        while True:
            assert process.poll() is None
            with suppress(OSError), socket.create_connection((address, port), timeout=1):
                break
            time.sleep(0.1)
        process.terminate()
        assert process.wait(timeout=120) == 0
    finally:
        process.kill()
        process.wait()
