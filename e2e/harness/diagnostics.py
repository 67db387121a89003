"""What a person needs to see when a scenario failed, written down while the cluster still stands."""

from __future__ import annotations

import shutil
from pathlib import Path

from e2e.cluster.control_plane import ControlPlane

QUESTIONS = {
    "pods.txt": ("get", "pods", "-o", "wide"),
    "jobs.yaml": ("get", "hatrainingjobs", "-o", "yaml"),
    "pods.yaml": ("get", "pods", "-o", "yaml"),
    "events.txt": ("get", "events", "--sort-by=.lastTimestamp"),
    "nodes.txt": ("describe", "nodes"),
}


def collect(plane: ControlPlane, namespace: str, directory: Path, name: str) -> Path:
    """Write down the objects of `namespace`, and the logs of containers and ranks below `directory`.

    Returns where they are found once the run has ended.
    """
    target = plane.run.logs / name
    target.mkdir(exist_ok=True)
    for file, question in QUESTIONS.items():
        answer = plane.kubectl("--namespace", namespace, *question, check=False)
        (target / file).write_text(answer.stdout + answer.stderr)
    for source in (
        plane.run.directory / f"nodes-{name}" / "logs",
        *directory.glob("volumes/*/log"),
        directory / "host",
    ):
        if source.is_dir():
            place = target / "-".join(source.relative_to(plane.run.directory).parts)
            shutil.copytree(source, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.npz", "*.pt"))
    return plane.run.keep_logs() / name
