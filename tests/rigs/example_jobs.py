"""Jobs as users write them, the smallest that says what a test is about, and the pods that are built for them."""

from __future__ import annotations

from typing import Any

import yaml

from e2e.bootstrap.paths import CHECKOUT
from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.api.spec import HATrainingJobSpec
from hajob.pods.coordinator_pod import coordinator_pod
from hajob.pods.hook_pod import build_hook_pod
from hajob.pods.rank_pod import build_rank_pod
from hajob.pods.settings import PodSettings
from hajob.pods.spare_pod import build_spare_pod

UID = "7f9e7fc7-74d5-4678-88e6-1dfe8cb6055f"
Object = dict[str, Any]
SETTINGS = PodSettings("hajob/sidecar:dev")
EXAMPLE_ARGUMENTS = ["--global-batch-size", "64", "--micro-batch-size", "1", "--tensor-model-parallel-size", "2"]
EXAMPLE_MANIFEST: dict[str, Any] = {
    "apiVersion": "training.hajob.io/v1alpha1",
    "kind": "HATrainingJob",
    "metadata": {"name": "example"},
    "spec": {
        "accelerator": {"product": "A2", "chipsPerNode": 2},
        "numNodes": 4,
        "parallelism": {"tensor": 2},
        "checkpoint": {"path": "/ckpt"},
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "trainer",
                        "volumeMounts": [{"name": "shared", "mountPath": "/ckpt"}],
                        "image": "example/trainer:1",
                        "command": ["torchrun", "train.py"],
                        "args": [
                            *EXAMPLE_ARGUMENTS,
                            *("--save", "/ckpt", "--load", "/ckpt", "--bf16", "--ckpt-format", "torch"),
                            "--use-distributed-optimizer",
                        ],
                    }
                ]
            }
        },
    },
}


def example_job(name: str, **spec: Any) -> HATrainingJob:
    """Read an example of the project, with other values in its spec."""
    raw = yaml.safe_load((CHECKOUT / "examples" / f"{name}.yaml").read_text(encoding="utf-8"))
    raw["metadata"] |= {"uid": UID, "namespace": "team-a"}
    raw["spec"] |= spec
    return HATrainingJob.from_object(raw)


def example_in_the_nodes_network(name: str, **spec: Any) -> HATrainingJob:
    """Read an example whose pods live in their nodes' network."""
    job = example_job(name, **spec)
    job.spec.template["spec"]["hostNetwork"] = True
    return job


def pods_of_every_kind(job: HATrainingJob) -> list[Json]:
    """Build a pod of every kind, as it is made in every situation."""
    pods = [
        build_rank_pod(job, 0, 1, SETTINGS, gated=True),
        build_rank_pod(job, 3, 17, SETTINGS, ["node-1"], place="node-2"),
        coordinator_pod(job, 2, SETTINGS, ["node-1"], silent=["node-2"]),
        coordinator_pod(job, 3, SETTINGS, apart=False),
        build_spare_pod(job, 0, SETTINGS, ["node-1"]),
    ]
    return pods + ([build_hook_pod(job, 1, "node-1", 4)] if job.spec.pause is not None else [])


def smallest_spec(**fields: Any) -> HATrainingJobSpec:
    """Build the smallest spec that is valid, with these fields beside or instead of its own."""
    smallest = {
        "accelerator": {"product": "A2"},
        "numNodes": 4,
        "parallelism": {"tensor": 8},
        "checkpoint": {"path": "/ckpt"},
        "template": {"spec": {"containers": [{"name": "trainer"}]}},
    }
    return HATrainingJobSpec.model_validate({**smallest, **fields})
