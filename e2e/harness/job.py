"""A HATrainingJob under test: apply it, wait for what it says about itself, read what its ranks wrote."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from e2e.cluster.control_plane import ControlPlane
from e2e.harness.images import TRAINER_IMAGE
from e2e.trainer import proof
from e2e.trainer.compare import differences
from e2e.trainer.settings import HURRY

GROUP = "/apis/training.hajob.io/v1alpha1"
CHECKPOINT_MOUNT = "/ckpt"
MINDFORMERS_SCRIPTS = ("pretrain_mindformers.sh", "train_msrun.sh")
EPOCH = 50
"""Steps of an epoch in the image's configuration of MindFormers."""

Object = dict[str, Any]

IMPATIENT: Final[dict[str, Object]] = {
    "recovery": {"replacementTimeoutSeconds": 5},
    "elastic": {"expandDelaySeconds": 2},
}
"""Of a spec: minutes of waiting made seconds where no node is free."""


def manifest(
    name: str,
    namespace: str,
    volume: Path,
    *,
    tensor: int = 2,
    pipeline: int = 1,
    nodes: int = 4,
    chips: int = 2,
    iterations: int = 100,
    step_milliseconds: float = 100.0,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    node_selector: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
    script: str = "train.sh",
) -> Object:
    """A job that trains the toy model; its checkpoints and logs go to `volume`, a directory of this machine.

    Args:
        name: Of the job.
        namespace: Of the job.
        volume: Mounted at /ckpt; the event logs are below log/.
        tensor: Tensor-parallel size.
        pipeline: Pipeline-parallel size.
        nodes: Rank pods.
        chips: Ranks per pod.
        iterations: Steps to train.
        step_milliseconds: How long a step takes at least, until the job is hurried; the training must outlast the test.
        arguments: More arguments of the trainer.
        environment: More environment variables of the trainer.
        node_selector: Where its pods may run.
        spec: Fields that replace those of the spec.
        script: The start script, of those in the image.
    """
    is_mindformers = script in MINDFORMERS_SCRIPTS
    own = _mindformers_words if is_mindformers else _megatron_words
    words = [*own(tensor, pipeline, iterations, step_milliseconds), *arguments]
    extra = {"HAJOB_STORE": "", "CHECKPOINT_PATH": CHECKPOINT_MOUNT} if is_mindformers else {}  # MindSpore's scheduler
    pod = _pod(volume, script, words, {**extra, **(environment or {})})
    if node_selector:
        pod["nodeSelector"] = dict(node_selector)
    content: Object = {
        "accelerator": {"product": "A2", "chipsPerNode": chips},
        "numNodes": nodes,
        "parallelism": {"tensor": tensor, "pipeline": pipeline},
        "checkpoint": {"path": CHECKPOINT_MOUNT},
        "template": {"spec": pod},
    }
    if node_selector:
        content["coordinator"] = {"nodeSelector": dict(node_selector)}
    return {
        "apiVersion": "training.hajob.io/v1alpha1",
        "kind": "HATrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": content | dict(spec or {}),
    }


def _megatron_words(tensor: int, pipeline: int, iterations: int, step_milliseconds: float) -> list[str]:
    flags: dict[str, object] = {
        "--tensor-model-parallel-size": tensor,
        "--pipeline-model-parallel-size": pipeline,
        "--train-iters": iterations,
        "--step-time-ms": step_milliseconds,
        "--log-dir": f"{CHECKPOINT_MOUNT}/log",
        "--save": CHECKPOINT_MOUNT,
        "--load": CHECKPOINT_MOUNT,
    }
    return [str(word) for pair in flags.items() for word in pair]


def _mindformers_words(tensor: int, pipeline: int, iterations: int, step_milliseconds: float) -> list[str]:
    """Parts of its configuration; steps are counted in epochs of fifty."""
    options = {
        "parallel_config.model_parallel": tensor,
        "parallel_config.pipeline_stage": pipeline,
        "runner_config.epochs": iterations // EPOCH,
        "toy.step_milliseconds": step_milliseconds,
        "toy.log_dir": f"{CHECKPOINT_MOUNT}/log",
    }
    return [f"{key}={value}" for key, value in options.items()]


def _pod(volume: Path, script: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Object:
    """Spec of a pod that trains the toy model."""
    container = {
        "name": "trainer",
        "image": TRAINER_IMAGE,
        "command": ["bash", script],
        "args": list(arguments),
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "volumeMounts": [{"name": "checkpoints", "mountPath": CHECKPOINT_MOUNT}],
    }
    volumes = [{"name": "checkpoints", "hostPath": {"path": str(volume), "type": "DirectoryOrCreate"}}]
    return {"containers": [container], "volumes": volumes}


class Job:
    """One job as a user and as the neutral reader of its ranks' logs see it.

    Attributes:
        name: Of the object.
        namespace: Of the object.
        volume: Directory that the ranks see as their checkpoint volume.
    """

    def __init__(self, plane: ControlPlane, name: str, namespace: str, volume: Path) -> None:
        self.name = name
        self.namespace = namespace
        self.volume = volume
        self.plane = plane
        self._has_run = False

    @property
    def path(self) -> str:
        """Of the object in the API."""
        return f"{GROUP}/namespaces/{self.namespace}/hatrainingjobs/{self.name}"

    @property
    def logs(self) -> Path:
        """Directory of the ranks' event logs."""
        return self.volume / "log"

    def get(self) -> Object:
        """The object as it is now."""
        return self.plane.api.get(self.path)

    def status(self) -> Object:
        """Its status, empty before the first one."""
        found: Object = self.get().get("status", {})
        return found

    def condition(self, kind: str) -> Object:
        """One condition, empty when it is not there."""
        return next((each for each in self.status().get("conditions", []) if each["type"] == kind), {})

    def wait_condition(self, kind: str, value: str = "True", seconds: float = 120.0) -> Object:
        """Wait until a condition has a value; returns the condition. A job that fails meanwhile ends the wait."""

        def reached() -> Object | None:
            conditions = {each["type"]: each for each in self.status().get("conditions", [])}
            found: Object | None = conditions.get(kind)
            if found and found["status"] == value:
                return found
            failed = conditions.get("Failed")
            if failed and failed["status"] == "True" and kind != "Failed":
                raise AssertionError(f"{self.name} failed: {failed['reason']}: {failed['message']}")
            return None

        return self.plane.wait(f"condition {kind}={value} of {self.name}", reached, seconds)

    def wait_step(self, step: int, seconds: float = 120.0) -> int:
        """Wait until all ranks have finished `step`; returns the newest step that they have in common.

        The first time it waits for the job to say that it runs, too: ranks that print nothing are known to train two
        seconds late, by their heartbeats, and a fault before that is one of the start.
        """

        def reached() -> int | None:
            newest = self.common_step()
            if newest >= step:
                return newest
            failed = self.condition("Failed")
            if failed.get("status") == "True":
                raise AssertionError(f"{self.name} failed: {failed['reason']}: {failed['message']}")
            return None

        self.plane.wait(f"step {step} of {self.name}", reached, seconds)
        if not self._has_run:
            self.wait_condition("Running", seconds=seconds)
            self._has_run = True
        return self.common_step()

    def wait_incident(self, incarnation: int, outcome: str = "Recovered", seconds: float = 120.0) -> Object:
        """Wait until the incident of an incarnation has an outcome; returns its entry in the status."""

        def reached() -> Object | None:
            found = (each for each in self.incidents() if each["incarnation"] == incarnation)
            return next((each for each in found if each["outcome"] == outcome), None)

        return self.plane.wait(f"incident {incarnation} of {self.name} to be {outcome}", reached, seconds)

    def incidents(self) -> list[Object]:
        """Its incidents, newest first."""
        found: list[Object] = self.status().get("incidents", [])
        return found

    def takeovers(self) -> int:
        """So often another MindIO controller has taken the place of a lost one."""
        return int(self.status().get("takeovers", {}).get("count", 0))

    def pods(self, role: str = "") -> list[Object]:
        """Its pods, of one role (rank or coordinator) or all."""
        selector = f"training.hajob.io/job-name={self.name}" + (f",training.hajob.io/role={role}" if role else "")
        return self.plane.api.items(f"/api/v1/namespaces/{self.namespace}/pods", labelSelector=selector)

    def started(self, container: str) -> float:
        """When a container of this name was first started in one of its pods: seconds, from the nodes' Events."""
        told = self.plane.api.items(f"/api/v1/namespaces/{self.namespace}/events", fieldSelector="reason=Started")
        return min(
            datetime.datetime.fromisoformat(each["firstTimestamp"]).timestamp()
            for each in told
            if each["message"] == f"Started container {container}"
            and each["involvedObject"]["name"].startswith(f"{self.name}-")
        )

    def node_of(self, node_rank: int) -> str:
        """The node of the newest pod of a node rank; empty while it has none."""
        label = "training.hajob.io/node-rank"
        pods = [pod for pod in self.pods("rank") if pod["metadata"]["labels"].get(label) == str(node_rank)]
        newest = max(pods, key=lambda pod: int(pod["metadata"]["labels"]["training.hajob.io/incarnation"]))
        return str(newest["spec"].get("nodeName", ""))

    def events(self) -> list[proof.Event]:
        """What the ranks wrote down so far, in order of time."""
        return proof.load(self.logs) if self.logs.is_dir() else []

    def world(self) -> int:
        """Number of ranks."""
        spec = self.get()["spec"]
        return int(spec["numNodes"]) * int(spec["accelerator"]["chipsPerNode"])

    def common_step(self) -> int:
        """The newest step that all ranks have finished; 0 before the first."""
        steps = proof.common_steps(self.events(), self.world())
        return steps[-1][0] if steps else 0

    def weights_differ(self, other: Path) -> list[str]:
        """Sentences about how its final weights differ from those of another run's logs; empty when they do not."""
        return differences(self.logs, other)

    def hurry(self) -> None:
        """From here on only the end of the training matters: its steps take no longer than they must."""
        self.logs.mkdir(parents=True, exist_ok=True)
        (self.logs / HURRY).touch()

    def patch(self, change: Mapping[str, object]) -> Object:
        """Merge a change into the object, as a user would."""
        return self.plane.api.merge(self.path, change)

    def delete(self, seconds: float = 120.0) -> None:
        """Delete it and wait until nothing of it is left."""
        self.plane.api.delete(self.path)
        self.plane.wait(f"{self.name} to be gone", lambda: self.plane.api.find(self.path) is None, seconds)
        self.plane.wait(f"the pods of {self.name} to be gone", lambda: not self.pods(), seconds)
