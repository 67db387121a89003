"""The pages as a site: strict, so a dead link, a page outside the navigation or a wrong anchor fails it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from e2e.bootstrap.paths import CHECKOUT
from release.site.__main__ import directory_of_packages

PAGES = 150
"""In two languages; far fewer would mean that one is missing."""


@pytest.mark.skipif(not directory_of_packages().is_dir(), reason="what builds the site is not installed: make docs")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "release.site", "--output", str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-2]) >= PAGES
    assert "Hajob" in (tmp_path / "site/index.html").read_text()
