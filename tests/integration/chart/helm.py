"""Helm, where it is built: `make chart` builds it, and tests that need it are skipped by name where it is not."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.bootstrap.binaries import MissingBinaryError, locate
from e2e.bootstrap.paths import CHECKOUT

CHART = CHECKOUT / "charts/hajob"
Object = dict[str, Any]
CHART_TESTS = Path(__file__).parent
SETS_OF_VALUES = sorted(path.stem for path in (CHART_TESTS / "values").glob("*.yaml"))


def helm(
    *arguments: str, check: bool = True, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it; skips the test where it is not built."""
    try:
        program = locate("helm")
    except MissingBinaryError:
        pytest.skip("helm is not built: make chart")
    done = subprocess.run(
        [str(program), *arguments], capture_output=True, text=True, check=False, timeout=120, env=environment
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def rendered(*arguments: str, chart: Path = CHART, namespace: str = "hajob-system") -> list[Object]:
    """The objects of the chart, without those of `helm test`."""
    everything = rendered_with_tests(*arguments, chart=chart, namespace=namespace)
    return [each for each in everything if "helm.sh/hook" not in (each["metadata"].get("annotations") or {})]


def rendered_with_tests(*arguments: str, chart: Path = CHART, namespace: str = "hajob-system") -> list[Object]:
    """All objects of the chart."""
    text = helm("template", "hajob", str(chart), "--namespace", namespace, *arguments).stdout
    return [each for each in yaml.safe_load_all(text) if each]
