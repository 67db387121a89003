"""What the operator's process loads, and what it does without."""

from __future__ import annotations

import importlib
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from hajob.app.memory_tuning import without_package
from hajob.kube.credentials import CredentialsError, from_service_account

SERVER = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_the_operator_loads_no_models_of_kubernetes() -> None:
    heavy = "{'kubernetes', 'requests', 'oauthlib'}"
    look = f"import sys; from hajob.app import operator; print(sorted({heavy} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=120)
    assert said.stdout.strip() == "[]"


def test_a_package_is_absent_only_while_it_is_asked_to_be() -> None:
    name = "wsgiref.validate"
    with without_package(name), pytest.raises(ImportError):
        importlib.import_module(name)
    before = importlib.import_module(name)
    with without_package(name):
        assert importlib.import_module(name) is before


CONNECTIONS = """
import asyncio, ssl, sys, tracemalloc
from hajob.app import memory_tuning

memory_tuning.use_small_tls_buffers()

async def main():
    loop, context = asyncio.get_running_loop(), ssl.create_default_context()
    tracemalloc.start()
    name = {"server_hostname": "server"}
    kept = [asyncio.sslproto.SSLProtocol(loop, asyncio.Protocol(), context, None, **name) for _ in range(40)]
    print(tracemalloc.get_traced_memory()[0] < 40 * 64 * 1024, len(kept))

asyncio.run(main())
"""


def test_forty_connections_take_two_megabytes() -> None:
    said = subprocess.run([sys.executable, "-c", CONNECTIONS], capture_output=True, text=True, check=True, timeout=120)
    assert said.stdout.strip() == "True 40"


FRAGMENTS = """
from hajob.app import memory_tuning

def resident():
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1]) / 1024

memory_tuning.give_memory_back()
blocks = [bytes(bytearray(20_000)) for _ in range(5_000)]
kept, before = blocks[::50], resident()
del blocks
memory_tuning.trim_memory()
print(before - resident() > 80, len(kept))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is of glibc")
def test_memory_between_what_is_kept_goes_back() -> None:
    said = subprocess.run([sys.executable, "-c", FRAGMENTS], capture_output=True, text=True, check=True, timeout=120)
    assert said.stdout.split() == ["True", "100"]


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "ca.crt").write_text("certificate")
    return tmp_path


@pytest.mark.parametrize(
    ("host", "server"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_a_service_account_is_read(account: Path, host: str, server: str) -> None:
    found = from_service_account(str(account), {**SERVER, "KUBERNETES_SERVICE_HOST": host})
    assert (found.server, found.ca_file, found.bearer_token) == (server, str(account / "ca.crt"), "secret")


@pytest.mark.parametrize("lacks", ["token", "ca.crt", "empty token", "address"])
def test_what_a_service_account_lacks_is_named(account: Path, lacks: str) -> None:
    if lacks == "empty token":
        (account / "token").write_text("")
    elif lacks != "address":
        (account / lacks).unlink()
    with pytest.raises(CredentialsError, match="host/port" if lacks == "address" else lacks.removeprefix("empty ")):
        from_service_account(str(account), {} if lacks == "address" else SERVER)
