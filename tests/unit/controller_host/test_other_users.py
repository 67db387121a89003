"""Containers of one pod run as different users: sockets between them, and what is said where one may not."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainer_sidecar import controller_protocol
from trainer_sidecar.access import describe_refusal
from trainer_sidecar.controller_protocol import SOCKET_NAME
from trainer_sidecar.coordinator.shell.controller import ControllerLink
from trainer_sidecar.install import install_below

ROOT = Path(__file__).resolve().parents[3]
IMAGE_USER, SIDECAR_USER = 1000, 65532
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="two other users: root only")

CONNECT = """
import os, socket, sys
os.chdir(sys.argv[1])
s = socket.socket(socket.AF_UNIX)
s.connect("controller.sock")
print(s.recv(5))
"""


def test_the_hosts_socket_is_open_to_all_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        listener = controller_protocol.listen_on_socket(str(tmp_path), SOCKET_NAME)
    finally:
        os.umask(before)
    assert (tmp_path / SOCKET_NAME).stat().st_mode & 0o777 == 0o666
    listener.close()


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """As an emptyDir: open to all, below directories that all may pass."""
    for above in (tmp_path, *tmp_path.parents):
        if above.stat().st_uid == os.geteuid() and above != Path("/"):
            above.chmod(above.stat().st_mode | 0o011)
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o777)
    return directory


@as_root
def test_the_sidecars_user_reaches_the_host_of_the_images_user(shared: Path) -> None:
    install_below(shared)
    host = subprocess.Popen(
        ["/usr/bin/env", "python3", str(shared / "controller_host.pyz")],
        env={"HAJOB_DIR": str(shared), "PATH": "/usr/bin:/bin"},
        user=IMAGE_USER,
        umask=0o027,
    )
    try:
        deadline = time.monotonic() + 60
        while not (shared / SOCKET_NAME).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        said = subprocess.run(
            ["/usr/bin/env", "python3", "-c", CONNECT, str(shared)],
            env={"PATH": "/usr/bin:/bin"},
            user=SIDECAR_USER,
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert said.stdout == b"b'{\"eve'\n", said.stderr.decode()
    finally:
        host.kill()
        host.wait()


class Core:
    """What the coordinator hears of its link."""

    def __init__(self) -> None:
        self.refusals: list[str] = []

    def note_refused_controller_host(self, text: str) -> None:
        self.refusals.append(text)

    def note_lost_controller_host(self, _now: float) -> None:
        pass

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} was not expected")


REFUSED = """
import asyncio, os, sys
from pathlib import Path
from tests.unit.controller_host.test_other_users import listen_for_refusals
print(asyncio.run(listen_for_refusals(Path(sys.argv[1]))))
"""


async def listen_for_refusals(directory: Path) -> list[str]:
    """As the coordinator's user: until it was told why."""
    os.setgid(SIDECAR_USER)
    os.setuid(SIDECAR_USER)
    core = Core()
    link = ControllerLink(directory, core, lambda: None)  # type: ignore[arg-type]
    for _ in range(100):
        await asyncio.sleep(0.02)
        if core.refusals:
            break
    await link.close_connection()
    return core.refusals


@as_root
def test_a_refused_socket_is_told_with_path_and_user(shared: Path) -> None:
    listener = controller_protocol.listen_on_socket(str(shared), SOCKET_NAME)
    os.chown(shared / SOCKET_NAME, IMAGE_USER, IMAGE_USER)
    (shared / SOCKET_NAME).chmod(0o755)
    said = subprocess.run(
        [sys.executable, "-c", REFUSED, str(shared)], cwd=ROOT, capture_output=True, check=False, timeout=60
    )
    listener.close()
    text = said.stdout.decode()
    assert f"user {SIDECAR_USER}" in text, said.stderr.decode()
    assert f"{shared / SOCKET_NAME} belongs to user {IMAGE_USER}, group {IMAGE_USER}, mode 0755" in text


READ = """
import os, sys
from trainer_sidecar.access import describe_refusal
os.setgid(65532); os.setuid(65532)
try:
    open(sys.argv[1])
except OSError as error:
    print(describe_refusal("somewhere else", error))
"""


@as_root
def test_a_file_by_root_with_umask_027_is_named_with_both_users(shared: Path) -> None:
    path = shared / "latest_checkpointed_iteration.txt"
    path.touch(mode=0o640)
    said = subprocess.run([sys.executable, "-c", READ, str(path)], cwd=ROOT, capture_output=True, check=False)
    text = said.stdout.decode()
    assert text.startswith(f"user {SIDECAR_USER} (group {SIDECAR_USER}) may not open {path}"), said.stderr.decode()
    assert "belongs to user 0, group 0, mode 0640" in text


def test_of_a_path_that_is_not_there_the_nearest_above_is_named(tmp_path: Path) -> None:
    error = PermissionError(13, "Permission denied", "/proc/self/fd/7/controller.sock")
    text = describe_refusal(tmp_path / "gone" / "controller.sock", error)
    assert f"may not open {tmp_path / 'gone' / 'controller.sock'}" in text
    assert f"{tmp_path} belongs to user {os.geteuid()}" in text
