"""Broken trainings and wrong manifests, as people make them: `status` and `why` name the cause of each.

What `kubectl apply` refuses it names in one command; tests/integration/api has every such rule. A memory limit and a
volume without room are played by what they leave: a SIGKILL that nobody has sent, and the error of a save. What agents
tell of the limit and the room themselves is in tests/unit: on process nodes there is neither.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from e2e.cluster.control_plane import ControlPlaneError
from e2e.harness.fixtures import RunHajob
from e2e.harness.job import Job, manifest
from e2e.harness.rig import RIG_LABEL, Rig, RigLayout

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]

SMALL: Final[Mapping[str, Any]] = {"tensor": 1, "nodes": 2, "chips": 1, "iterations": 100_000}
SAID_SECONDS: Final = 180.0
"""A program that fails in its loop is started three times before it is given up; quiet ranks are told of after 90 s."""
ONCE: Final = {"recovery": {"maxProgramFailures": 0}}
PLAIN: Final = ["bash", "-c", 'exec bash <(sed /--enable-/d train.sh) "$@"', "train.sh"]
"""The start script as it is without high availability, which Hajob switches on where it can work."""
RULE: Final = {"name": "loss-is-nan", "pattern": "loss: nan$", "action": "Restart"}


@dataclass(frozen=True)
class Wrong:
    """Something wrong.

    Attributes:
        words: Each must be in what the two commands print.
        fault: Ordered of the trainer; empty: none.
        arguments: More arguments of the trainer.
        spec: Fields of the spec.
        container: Fields of the trainer's container; one that is None is left out.
        pod: Fields of the template's spec.
        nodes: Rank pods.
    """

    words: Sequence[str]
    fault: str = ""
    arguments: Sequence[str] = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    container: Mapping[str, Any] = field(default_factory=dict)
    pod: Mapping[str, Any] = field(default_factory=dict)
    nodes: int = 2


TRAININGS: Final = {
    "wrong-path": Wrong(
        ("No such file: /data/corpus.bin",),
        fault="rank=1 at=startup do=raise always=1 text=No_such_file:_/data/corpus.bin",
        spec=ONCE,
    ),
    "raises-in-loop": Wrong(
        ("KeyError: the vocabulary", "rank 1"),
        fault="rank=1 step=6 do=raise always=1 text=KeyError:_the_vocabulary",
    ),
    "killed-in-loop": Wrong(("SIGKILL", "memory"), fault="rank=1 step=6 do=kill always=1"),
    "hangs": Wrong(
        ("no step has ended",),
        fault="rank=1 step=25 at=update do=hang always=1",
        spec={"recovery": {"hang": {"stepTimeMultiple": 20, "minTimeoutSeconds": 3}}},
    ),
    "blocks": Wrong(
        ("NoRankStarted", "torchrun", "script in blocks-0-", "it waits for something", "kubectl logs POD -c trainer"),
        container={"command": ["bash", "-c", "while true; do sleep 600; done"]},
    ),
    "hangs-at-once": Wrong(
        ("NoStepEnded", "not registered with MindIO: rank 1", "no rank computes", "kubectl hajob stacks"),
        fault="rank=1 at=startup do=hang always=1",
    ),
    "hangs-in-first-step": Wrong(
        ("NoStepEnded", "every rank has registered", "no rank computes", "kubectl hajob stacks"),
        fault="rank=1 step=1 at=forward do=hang always=1",
    ),
    "loss-is-nan": Wrong(
        ("loss: nan",),
        fault="rank=0 step=9 at=updated do=nan always=1",
        spec={"recovery": {"logRules": [RULE], "maxProgramFailures": 1}},
    ),
    "is-slow": Wrong(("s a step", "stacks JOB --times"), fault="rank=1 at=forward do=slow seconds=2 always=1"),
    "volume-full": Wrong(
        ("No space left on device", "rank 0"),
        fault="rank=0 at=save do=raise always=1 text=OSError:_[Errno_28]_No_space_left_on_device",
        arguments=("--save-interval", "10"),
    ),
    "read-only": Wrong(
        ("is readOnly: no checkpoint could be saved",),
        container={"volumeMounts": [{"name": "checkpoints", "mountPath": "/ckpt", "readOnly": True}]},
        spec=ONCE,
    ),
    "no-script": Wrong(("no-such.sh: No such file",), container={"command": ["bash", "no-such.sh"]}, spec=ONCE),
    "no-torchrun": Wrong(
        ("torchrun",), container={"command": ["python3", "-c", "import os; os.environ['RANK']"]}, spec=ONCE
    ),
}
MANIFESTS: Final = {
    "ends-at-once": Wrong(
        ("why       the start script ended", "without calling torchrun or msrun", "hi there"),
        container={"command": ["bash", "-c", "echo hi there"]},
        spec=ONCE,
    ),
    "image": Wrong(("no/such:1",), container={"image": "no/such:1"}),
    "resource-name": Wrong(
        ("huawei.com/Ascend910X",),
        spec={"accelerator": {"product": "A2", "chipsPerNode": 1, "resourceName": "huawei.com/Ascend910X"}},
    ),
    "node-selector": Wrong(("nodeSelector",), pod={"nodeSelector": {"pool": "nothing"}}),
    "fifty-nodes": Wrong(("50",), nodes=50),
    "priority": Wrong(("no PriorityClass", "no-such-class"), pod={"priorityClassName": "no-such-class"}),
    "elsewhere": Wrong(("/ckpt",), container={"volumeMounts": [{"name": "checkpoints", "mountPath": "/other"}]}),
    "typo": Wrong(("volumeMount",), container={"volumeMount": []}),
    "node-name": Wrong(("nodeName",), pod={"nodeName": "node-1"}),
    "config-map": Wrong(("volume",), pod={"volumes": [{"name": "checkpoints", "configMap": {"name": "none"}}]}),
    "no-image": Wrong(("image",), container={"image": None}),
    "service-account": Wrong(("serviceaccount", "nobody"), pod={"serviceAccountName": "nobody"}),
    "unknown-volume": Wrong(
        ("nowhere",),
        container={
            "volumeMounts": [{"name": "checkpoints", "mountPath": "/ckpt"}, {"name": "nowhere", "mountPath": "/x"}]
        },
    ),
    "cpu-in-words": Wrong(("cpu",), container={"resources": {"requests": {"cpu": "96 cores"}}}),
    "cpu-of-no-node": Wrong(("cpu",), container={"resources": {"requests": {"cpu": "9600"}}}),
    "secret": Wrong(("wandb",), container={"envFrom": [{"secretRef": {"name": "wandb"}}]}),
    "claim": Wrong(
        ("(NoVolume)", 'waits for its volume: persistentvolumeclaim "no-claim" not found'),
        pod={"volumes": [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": "no-claim"}}]},
    ),
    "ends-late": Wrong(("torchrun",), container={"command": ["bash", "-c", "sleep 20"]}, spec=ONCE),
    "no-volume": Wrong(("/ckpt", "no volume"), container={"volumeMounts": []}),
    "empty-dir": Wrong(("emptyDir",), pod={"volumes": [{"name": "checkpoints", "emptyDir": {}}]}),
    "bad-regex": Wrong(
        ("regular expression", "loss: (nan"), spec={"recovery": {"logRules": [{**RULE, "pattern": "loss: (nan"}]}}
    ),
    "one-node": Wrong(("every shard needs a second rank",), nodes=1, container={"command": PLAIN}),
    "one-node-switched-on": Wrong(("do not support the size of dp_cp_ranks 1",), nodes=1, spec=ONCE),
    "no-copies": Wrong(
        ("every shard needs a second rank",),
        container={"command": PLAIN},
        spec={"parallelism": {"tensor": 2}},
        arguments=("--tensor-model-parallel-size", "2"),
    ),
    # Not Volcano's name: another scenario may have installed it on this control plane.
    "scheduler": Wrong(("nobody",), pod={"schedulerName": "nobody"}),
    "selector-typo": Wrong(("nodeSelectors",), pod={"nodeSelectors": {"pool": "a"}}),
    "chips-in-template": Wrong(
        ("huawei.com/Ascend910",), container={"resources": {"limits": {"huawei.com/Ascend910": "8"}}}
    ),
    "other-chips": Wrong(
        ("huawei.com/Ascend910B",), container={"resources": {"limits": {"huawei.com/Ascend910B": "2"}}}
    ),
    "product": Wrong(("A2", "A3"), spec={"accelerator": {"product": "Ascend910B", "chipsPerNode": 1}}),
    "sizes": Wrong(("tensor",), spec={"parallelism": {"tensor": 3}}),
    "no-command": Wrong(("command",), container={"command": None}),
    "spec-typo": Wrong(("numNode",), spec={"numNode": 2}),
    "relative-path": Wrong(("checkpoint.path",), spec={"checkpoint": {"path": "ckpt"}}),
}


def submit(rig: Rig, name: str, wrong: Wrong) -> str:
    """Apply it; what `kubectl apply` refuses it with, empty where it takes it."""
    volume = rig.directory / "volumes" / name
    arguments = [*wrong.arguments, *(["--fault", wrong.fault] if wrong.fault else [])]
    fields = {**SMALL, "nodes": wrong.nodes, "arguments": arguments, "spec": wrong.spec}
    made = manifest(name, rig.namespace, volume, node_selector={RIG_LABEL: rig.name}, **fields)
    pod = made["spec"]["template"]["spec"]
    container = {**pod["containers"][0], **wrong.container}
    pod["containers"] = [{name: value for name, value in container.items() if value is not None}]
    pod.update(wrong.pod)
    volume.mkdir(parents=True, exist_ok=True)
    done = rig.plane.kubectl("apply", "-f", "-", stdin=json.dumps(made), check=False)
    if done.returncode:
        return str(done.stderr)
    rig.jobs.append(Job(rig.plane, name, rig.namespace, volume))
    return ""


def told(run_hajob: RunHajob, job: Job) -> str:
    """What `kubectl hajob status` and `why` print about a job."""
    printed = ""
    for verb in ("status", "why"):
        _, out, err = run_hajob(verb, job)
        printed += f"$ kubectl hajob {verb} {job.name}\n{out}{err}\n"
    return printed


def untold(rig: Rig, run_hajob: RunHajob, wrongs: Mapping[str, Wrong]) -> dict[str, str]:
    """Of each whose cause the two commands do not name within `SAID_SECONDS`, what they print."""
    jobs = {job.name: job for job in rig.jobs}
    left = dict.fromkeys(jobs, "")

    def all_are_told() -> bool:
        for name in list(left):
            left[name] = told(run_hajob, jobs[name])
            if all(word in left[name] for word in wrongs[name].words):
                del left[name]
        return not left

    with suppress(ControlPlaneError):
        rig.plane.wait("every cause to be told", all_are_told, SAID_SECONDS, poll=2.0)
    return left


@pytest.fixture
def roomy_rig(start_rig: Callable[[RigLayout], Rig]) -> Rig:
    """Room for all trainings at once, two nodes with a chip for each, and a node more."""
    return start_rig(RigLayout(chip_nodes=len(TRAININGS) + 1, chips=2))


def assert_causes_are_told(rig: Rig, run_hajob: RunHajob, wrongs: Mapping[str, Wrong]) -> None:
    """Submit all, and wait until the cause of each is told."""
    refused = {name: submit(rig, name, wrong) for name, wrong in wrongs.items()}
    missing = {
        name: said for name, said in refused.items() if said and not all(word in said for word in wrongs[name].words)
    }
    missing |= untold(rig, run_hajob, wrongs)
    assert not missing, "\n".join(f"{name}: not all of {wrongs[name].words} in\n{missing[name]}" for name in missing)


def test_broken_trainings_name_their_cause(roomy_rig: Rig, run_hajob: RunHajob) -> None:
    assert_causes_are_told(roomy_rig, run_hajob, TRAININGS)


def test_wrong_manifests_name_their_cause(roomy_rig: Rig, run_hajob: RunHajob) -> None:
    assert_causes_are_told(roomy_rig, run_hajob, MANIFESTS)
