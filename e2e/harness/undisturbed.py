"""The training that nothing happened to, to compare with: run once per shape, without Kubernetes and without Hajob."""

from __future__ import annotations

import sys
from pathlib import Path

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.run import Run
from e2e.harness.images import framework_settings, is_torch, mindio_directory


def undisturbed(run: Run, *, tensor: int, pipeline: int, data: int, iterations: int, is_mapped: bool = False) -> Path:
    """Log directory of an undisturbed run with these sizes; the second to ask gets the first one's.

    Args:
        run: it is a process of this run.
        tensor: tensor-parallel size.
        pipeline: pipeline-parallel size.
        data: data-parallel size.
        iterations: steps.
        is_mapped: whether ranks are numbered in the order TensorPipelineData.

    Raises:
        RuntimeError: The training did not end well; the message ends with its last words.
    """
    name = f"undisturbed-{tensor}-{pipeline}-{data}-{iterations}{'-mapped' * is_mapped}"
    directory = run.directory / name
    with run.alone(name):
        if not (directory / "done").exists():
            words = ["--tp-pp-dp"] * is_mapped
            _train(run, name, directory, words, tensor=tensor, pipeline=pipeline, data=data, iterations=iterations)
            (directory / "done").touch()
    return directory


def _train(run: Run, name: str, directory: Path, words: list[str], **sizes: int) -> None:
    iterations = sizes.pop("iterations")
    flags = [word for key, value in sizes.items() for word in (f"--{key}", str(value))]
    command = [sys.executable, "-m", "e2e.trainer.local", *flags, *words, "--log-dir", str(directory)]
    command += ["--torch"] if is_torch() else []
    process = run.spawn(
        name,
        [*command, "--", "--train-iters", str(iterations)],
        {"HAJOB_MINDIO": str(mindio_directory()), "PYTHONPATH": str(CHECKOUT), **framework_settings()},
    )
    if process.wait() != 0:
        last = (run.logs / f"{name}.log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"the undisturbed training failed: {last}")
