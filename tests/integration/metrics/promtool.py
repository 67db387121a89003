"""Prometheus and promtool, where `make metrics` has built them; tests that need them are skipped by name elsewhere."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from e2e.bootstrap.binaries import MissingBinaryError, locate
from e2e.bootstrap.paths import CHECKOUT

RULES = CHECKOUT / "charts/hajob/files/alerts/rules.yaml"


def located(name: str) -> Path:
    """Where a program of Prometheus is; skips the test where it is not built."""
    try:
        return locate(name)
    except MissingBinaryError:
        pytest.skip(f"{name} is not built: make metrics")


def promtool(*arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    """Run promtool, with this as its standard input."""
    command = [str(located("promtool")), *arguments]
    return subprocess.run(command, input=said, capture_output=True, text=True, check=False, timeout=120)
