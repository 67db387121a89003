"""Starting a node set for a run: what the tests, the benchmarks and the demo call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.run import Run
from e2e.nodes.config import NodeSetSettings, NodeSettings
from e2e.nodes.control import NodeControl

START_SECONDS = 30.0
NO_SYSTEM_AUTHORITIES = {"SSL_CERT_FILE": os.devnull}
"""aiohttp loads the system's authorities twice when it is imported: half a second for nothing."""


@dataclass(frozen=True)
class RunningNodes:
    """A node set that runs: its settings, its control socket and its process."""

    settings: NodeSetSettings
    control: NodeControl
    process: subprocess.Popen[bytes]

    def stop(self, seconds: float = 10.0) -> None:
        """End it and every process of its containers."""
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_nodes(
    run: Run,
    plane: ControlPlane,
    nodes: Sequence[NodeSettings],
    images: Mapping[str, Path],
    *,
    name: str = "nodes",
    **settings: Any,  # noqa: ANN401 - any further field of NodeSetSettings
) -> RunningNodes:
    """Start the nodes as a process of ``run`` and wait until all are registered.

    Args:
        run: whose addresses and directory they use.
        plane: the cluster they join.
        nodes: the nodes.
        images: image name → directory with an ``image.json``.
        name: names the process, its log and its directory within the run.
        settings: further fields of :class:`NodeSetSettings`, for example ``first_block`` for a second set in a run.

    Raises:
        RuntimeError: they did not come up; the message ends with their log.
    """
    directory = run.directory / name
    chosen = NodeSetSettings(
        directory=directory,
        server=plane.server,
        authority=plane.ca_file.parent,
        control_socket=directory / "control.sock",
        address_prefix=run.address(0, 0).rsplit(".", 2)[0],
        images=dict(images),
        nodes=list(nodes),
        **settings,
    )
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "config.json"
    config.write_text(json.dumps(chosen.model_dump(mode="json", by_alias=True)), encoding="utf-8")
    process = run.spawn(name, [sys.executable, "-m", "e2e.nodes", "--config", str(config)], NO_SYSTEM_AUTHORITIES)
    control = NodeControl(chosen.control_socket)
    _wait_ready(process, control, run.logs / f"{name}.log")
    return RunningNodes(chosen, control, process)


def _wait_ready(process: subprocess.Popen[bytes], control: NodeControl, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            control.state()
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.05)
        else:
            return
    tail = log.read_text(errors="replace")[-2000:] if log.exists() else ""
    process.kill()
    raise RuntimeError(f"the nodes did not come up within {START_SECONDS:.0f} s; the end of {log}:\n{tail}")
