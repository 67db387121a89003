"""`make demo ARGS=--ui`: the page of `kubectl hajob ui` beside the demo, as a user would open it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.processes import MARKER
from e2e.cluster.run import Run
from e2e.demo.observer import DemoError


def serve_page(run: Run, kubeconfig: Path, *options: str) -> str:
    """Start the command in a process of the run, which ends with it; returns the address that opens the page.

    Raises:
        DemoError: It did not start.
    """
    # It writes to its own file: what it has to say must not break the picture on the terminal.
    log = run.directory / "ui.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "hajob.cli.main", "ui", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=CHECKOUT,
            env=os.environ | {MARKER: run.identity, "KUBECONFIG": str(kubeconfig)},
        )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    if not address.startswith("http://"):
        raise DemoError(f"kubectl hajob ui has not started: {log.read_text().strip()}")
    return address
