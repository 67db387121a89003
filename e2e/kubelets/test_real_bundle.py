"""Installed from the bundle as docs/admin/install.md has it, in a network that leads nowhere."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from e2e.kubelets.__main__ import BUNDLE, this_platform, why_skipped
from e2e.kubelets.cluster import Cluster
from e2e.kubelets.configuration import DIRECTORY
from hajob.version import VERSION
from release import image

pytestmark = [
    pytest.mark.skipif(DIRECTORY not in os.environ, reason=why_skipped()),
    pytest.mark.timeout(600),
]


def test_what_the_bundle_holds_is_installed(hajob: Cluster, tmp_path: Path) -> None:
    """Unpacked, checked, imported on every node, installed; the operators say that they are well."""
    bundle = Path(os.environ[DIRECTORY]) / BUNDLE
    if not bundle.is_file():
        pytest.skip("the bundle was not made for this choice of scenarios")
    subprocess.run(["tar", "xf", str(bundle)], cwd=tmp_path, check=True)
    top = tmp_path / f"hajob-{VERSION}"
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=top, check=True)
    hajob.uninstall()
    for node in hajob.nodes.nodes.values():
        hajob.nodes.ctr(node, "images", "rm", "--sync", image.NAME)
        assert image.NAME not in hajob.nodes.ctr(node, "images", "ls", "--quiet")
    hajob.nodes.load([top / "images" / f"hajob-{VERSION}-linux-{this_platform().architecture}.tar"])

    began = time.monotonic()
    hajob.install(chart=top / "charts" / f"hajob-{VERSION}.tgz")
    print(f"installed from the bundle in {time.monotonic() - began:.1f} s")

    assert {pod["spec"]["containers"][0]["image"] for pod in hajob.operators()} == {f"hajob/operator:{VERSION}"}
    assert "Succeeded" in hajob.helm("test", "hajob", "--timeout=60s")
