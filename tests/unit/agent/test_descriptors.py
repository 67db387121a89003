"""Entries raise the soft limit of descriptors: a coordinator holds a stream for each of thousands of agents."""

from __future__ import annotations

import subprocess
import sys

import pytest

SOFT = 64
ENTRIES = (
    "trainer_sidecar.coordinator.__main__",
    "trainer_sidecar.agent.__main__",
    "trainer_sidecar.controller_host.__main__",
    "hajob.app.operator",
)
PROGRAM = """
import asyncio, importlib, os, resource, sys
from unittest.mock import Mock
os.environ["HAJOB_DIR"] = "/"
entry = importlib.import_module(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
class Settings:
    log_level, log_format = "INFO", "text"
    from_environment = classmethod(lambda _: Settings())
for name in ("Settings", "read_settings", "Hub"):
    setattr(entry, name, Settings if name == "Settings" else lambda *_: Settings())
for name in ("serve", "_main"):
    setattr(entry, name, lambda *_: None)
asyncio.run = lambda _: None
entry.Host = Mock()
entry.main()
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
print("raised" if soft == hard else soft)
"""


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_raises_its_descriptor_limit(entry: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, entry, str(SOFT)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "raised", done.stdout + done.stderr
