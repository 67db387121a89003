"""The layouts of published training scripts: taken by server and operator as they are, and every copy pair is named."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from hajob.cli.main import main
from tests.rigs.jobs_on_server import ServedNamespace, path_of_jobs
from tests.rigs.layouts import PUBLISHED_LAYOUTS
from tests.rigs.slow_layout import Slow

FLAGS = (
    *("--bf16", "--use-distributed-optimizer", "--ckpt-format", "torch", "--train-iters", "2000"),
    *("--save", "/ckpt", "--load", "/ckpt", "--save-interval", "500"),
)


def manifest(like: dict[str, Any], name: str, sizes: tuple[int, ...]) -> dict[str, Any]:
    """A suspended job of a layout: it is looked at, and gets no pods."""
    nodes, chips, tensor, pipeline, context, expert, expert_tensor = sizes
    job = deepcopy(like)
    job["metadata"]["name"] = name
    parallelism = {"tensor": tensor, "pipeline": pipeline, "context": context, "expert": expert}
    flags = [f"--{part}-model-parallel-size" for part in ("tensor", "pipeline")]
    flags += ["--context-parallel-size", "--expert-model-parallel-size"]
    words = [str(word) for pair in zip(flags, parallelism.values(), strict=True) for word in pair]
    if expert_tensor:
        parallelism["expertTensor"] = expert_tensor
        words += ["--expert-tensor-parallel-size", str(expert_tensor)]
    accelerator = {"product": "A3" if chips == 16 else "A2", "chipsPerNode": chips}
    job["spec"] |= {"accelerator": accelerator, "numNodes": nodes, "parallelism": parallelism, "suspend": True}
    container = job["spec"]["template"]["spec"]["containers"][0]
    container |= {"command": ["torchrun", "pretrain_gpt.py"], "args": [*words, *FLAGS]}
    return job


def expected(sizes: tuple[int, ...]) -> set[tuple[str, tuple[int, ...]]]:
    """Its copy groups by counting through all ranks."""
    nodes, chips, tensor, pipeline, context, expert, expert_tensor = sizes
    slow = Slow(nodes, chips, tensor, pipeline, context, expert, etp=expert_tensor)
    rows = {("Dense", tuple(sorted(slow.holders(group, rank)))) for group in slow.dense_groups() for rank in group}
    if expert > 1:
        experts = slow.expert_groups()
        rows |= {("Expert", tuple(sorted(slow.holders(group, rank)))) for group in experts for rank in group}
    return rows


def test_published_layouts_are_accepted_and_simulated(
    served: ServedNamespace,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sizes = {f"layout-{number}": each[0] for number, each in enumerate(PUBLISHED_LAYOUTS.values())}
    jobs = {name: manifest(served.job, name, each) for name, each in sizes.items()}
    served.plane.kubectl(
        "apply", "-f", "-", stdin=json.dumps({"kind": "List", "apiVersion": "v1", "items": [*jobs.values()]})
    )

    def accepted() -> dict[str, dict[str, Any]]:
        found = {}
        for job in served.plane.api.items(path_of_jobs(served.namespace)):
            status = job.get("status") or {}
            conditions = {each["type"]: each for each in status.get("conditions") or []}
            if conditions.get("Accepted", {}).get("status") == "True":
                found[str(job["metadata"]["name"])] = status["effective"]
        return found

    served.until("every layout to be accepted", lambda: len(accepted()) == len(jobs))
    effective = accepted()
    for name, each in sizes.items():
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(jobs[name]))
        assert main(["simulate", "-f", str(path), "--lose", "rank=1", "-o", "json"]) == 0
        rows = {(row["kind"], tuple(row["ranks"])) for row in json.loads(capsys.readouterr().out)["copies"]}
        assert rows == expected(each), name
        assert effective[name]["worldSize"] == each[0] * each[1]
        assert effective[name]["numCopyGroups"] == len(rows), name
