"""`kubectl apply` of a bad HATrainingJob is refused by the server itself, with the sentence that helps."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from e2e.cluster.control_plane import ControlPlane
from hajob.domain.patience import LONGEST_WAIT_SECONDS

Job = dict[str, Any]
Edit = Callable[[Job], object]


def _container(job: Job) -> Job:
    found: Job = job["spec"]["template"]["spec"]["containers"][0]
    return found


def _set(path: str, value: object) -> Edit:
    """An edit that puts a value at a dotted path below the spec."""

    def edit(job: Job) -> None:
        *parents, last = path.split(".")
        node = job["spec"]
        for name in parents:
            node = node.setdefault(name, {})
        node[last] = value

    return edit


def _misspell(job: Job) -> None:
    spec = job["spec"]["template"]["spec"]
    spec["contaners"] = spec.pop("containers")


def _second_trainer(job: Job) -> None:
    containers = job["spec"]["template"]["spec"]["containers"]
    containers.append(deepcopy(containers[0]))


def _rule(pattern: str) -> Edit:
    return _set("recovery.logRules", [{"name": "nan", "pattern": pattern}])


REFUSED: dict[str, tuple[Edit, str]] = {
    "sizes that do not divide": (_set("parallelism.tensor", 3), "so that data parallel comes out whole"),
    "the default chips of A2 do not divide": (
        lambda job: (job["spec"]["accelerator"].pop("chipsPerNode"), _set("parallelism.tensor", 5)(job)),
        "(8 on A2 and 16 on A3 when left out)",
    ),
    "pipeline and context count, too": (_set("parallelism.pipeline", 8), "multiple of parallelism tensor × pipeline"),
    "expert does not divide": (_set("parallelism.expert", 3), "the experts cannot be spread"),
    "more minimum than data parallel": (_set("elastic.minDataParallel", 5), "larger than data parallel"),
    "no trainer": (lambda job: _container(job).update(name="main"), "name the container that trains `trainer`"),
    "two trainers": (_second_trainer, "exactly one container named trainer"),
    "contaners": (_misspell, "look for a misspelled `containers`"),
    "no command": (lambda job: _container(job).pop("command"), "the container trainer needs a command"),
    "one port for two": (_set("network.mindIOPort", 7071), "give each of network.agentPort"),
    "no room for the coordinator's ports": (_set("network.coordinatorPort", 65531), "less than or equal to 65530"),
    "an unknown field": (_set("numNode", 4), 'unknown field "spec.numNode"'),
    "an unknown field further down": (_set("recovery.hang.steps", 4), 'unknown field "spec.recovery.hang.steps"'),
    "an unknown field of the template": (_set("template.sepc", {}), 'unknown field "spec.template.sepc"'),
    "a negative number of nodes": (_set("numNodes", -1), "should be greater than or equal to 1"),
    "a negative count": (_set("recovery.maxProgramFailures", -3), "should be greater than or equal to 0"),
    "a negative limit of an action": (
        _set("recovery.actions", [{"name": "Retry", "maxCount": -1}]),
        "should be greater than or equal to 0",
    ),
    "an unknown word": (_set("framework", "TensorFlow"), '"PyTorch", "MindSpore"'),
    "a planned action as a step of recovery": (_set("recovery.actions", [{"name": "Expand"}]), '"Retry", "InPlace"'),
    "an action twice": (_set("recovery.actions", [{"name": "Retry"}, {"name": "Retry"}]), "Duplicate value"),
    "a wait that MindIO does not outlast": (
        _set("recovery.replacementTimeoutSeconds", LONGEST_WAIT_SECONDS + 1),
        "set recovery.replacementTimeoutSeconds to 3480 or less",
    ),
    "a relative checkpoint path": (_set("checkpoint.path", "ckpt"), "spec.checkpoint.path must be absolute"),
    "text for a number": (_set("numNodes", "four"), "must be of type integer"),
    "a log rule with a look-ahead": (_rule("loss: (?!0)"), "unsupported Perl syntax: `(?!`"),
    "a log rule that every line meets": (_rule("nan|"), "does not match the empty string"),
    "a name over 40 characters": (lambda job: job["metadata"].update(name="n" * 41), "choose a shorter name"),
    "a name with a dot": (lambda job: job["metadata"].update(name="qwen3.8b"), "no dots"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_job_is_refused_with_the_sentence_that_helps(
    control_plane: ControlPlane, crd: Job, job: Job, case: str
) -> None:
    edit, sentence = REFUSED[case]
    edit(job)
    done = control_plane.kubectl("apply", "-f", "-", stdin=json.dumps(job), check=False)
    assert done.returncode != 0, done.stdout
    assert sentence in done.stderr


LAYOUT = "delete the job and apply it again"
EDITS: dict[str, tuple[Edit, str]] = {
    "numNodes": (_set("numNodes", 8), LAYOUT),
    "tensor": (_set("parallelism.tensor", 4), LAYOUT),
    "rank order": (_set("parallelism.rankOrder", "TensorPipelineData"), LAYOUT),
    "chips": (_set("accelerator.chipsPerNode", 4), LAYOUT),
    "an optional field added later": (_set("accelerator.superPodChips", 4), LAYOUT),
    "an optional field removed later": (lambda job: job["spec"]["accelerator"].pop("chipsPerNode"), LAYOUT),
    "copies": (_set("optimizer.copies", 1), LAYOUT),
    "framework": (_set("framework", "MindSpore"), LAYOUT),
    "launcher": (_set("launcher", "TaskD"), LAYOUT),
    "managedBy": (_set("managedBy", "somebody.example/else"), LAYOUT),
    "checkpoint": (_set("checkpoint.path", "/other"), LAYOUT),
    "the agents' port": (_set("network.agentPort", 7171), LAYOUT),
    "image while running": (lambda job: _container(job).update(image="other:2"), "set spec.suspend to true first"),
    "an undeclared part of the template": (
        lambda job: _container(job).update(env=[{"name": "SEED", "value": "2"}]),
        "set spec.suspend to true first",
    ),
}


@pytest.mark.parametrize("case", EDITS)
def test_an_edit_of_what_is_fixed_is_refused(control_plane: ControlPlane, crd: Job, job: Job, case: str) -> None:
    control_plane.apply(job)
    edit, sentence = EDITS[case]
    edit(job)
    done = control_plane.kubectl("apply", "-f", "-", stdin=json.dumps(job), check=False)
    assert done.returncode != 0, done.stdout
    assert sentence in done.stderr


ALLOWED: dict[str, Edit] = {
    "suspend": _set("suspend", value=True),
    "the model's size": _set("model", {"parameters": 8_200_000_000}),
    "a limit": _set("recovery.actions", [{"name": "Replace", "maxCount": 0}]),
    "excluded nodes": _set("scheduling.excludedNodeNames", ["node-7"]),
    "a request to restart": _set("restartRequestTime", "2026-11-21T09:00:00Z"),
    "where the next coordinator listens": _set("network.coordinatorPort", 7170),
    "a null where nothing is meant": _set("activeDeadlineSeconds", None),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_an_edit_of_anything_else_is_accepted(control_plane: ControlPlane, crd: Job, job: Job, case: str) -> None:
    control_plane.apply(job)
    ALLOWED[case](job)
    control_plane.apply(job)


SUSPENDED_EDITS: dict[str, tuple[Edit, str]] = {
    "image": (lambda job: _container(job).update(image="other:2"), ""),
    "labels": (_set("template.metadata", {"labels": {"team": "a"}}), ""),
    "nodeSelector": (_set("template.spec.nodeSelector", {"pool": "a"}), ""),
    "tolerations": (_set("template.spec.tolerations", [{"operator": "Exists"}]), ""),
    "command": (lambda job: _container(job).update(command=["bash", "other.sh"]), "only image, labels"),
    "env": (lambda job: _container(job).update(env=[{"name": "SEED", "value": "2"}]), "only image, labels"),
    "volumes": (_set("template.spec.volumes", []), "only image, labels"),
    "another container": (
        lambda job: job["spec"]["template"]["spec"]["containers"].append({"name": "more", "image": "a"}),
        "only image, labels",
    ),
}


@pytest.mark.parametrize(("before", "after"), [(True, True), (True, False), (False, True)], ids=["still", "on", "off"])
@pytest.mark.parametrize("case", SUSPENDED_EDITS)
def test_with_suspend_a_few_parts_of_the_template_may_change(
    control_plane: ControlPlane, crd: Job, job: Job, case: str, before: bool, after: bool
) -> None:
    """A queue changes them in the update that starts or stops the job."""
    job["spec"]["suspend"] = before
    control_plane.apply(job)
    edit, sentence = SUSPENDED_EDITS[case]
    edit(job)
    job["spec"]["suspend"] = after
    done = control_plane.kubectl("apply", "-f", "-", stdin=json.dumps(job), check=False)
    assert (done.returncode == 0) == (not sentence), done.stderr
    assert sentence in done.stderr
