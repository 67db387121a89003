"""Builds the HATrainingJob of a job of another kind. Pure.

Every field that a HATrainingJob needs gets a value. Where the old job does not say it, a value is chosen with which the
new one is accepted, and a question says what to put there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.constants import JOB_NAME_MAX_LENGTH
from hajob.api.derived import CHIPS_PER_NODE
from hajob.api.enums import Framework, Product, RankTablePolicy
from hajob.convert import command_line
from hajob.convert.foreign_job import Findings, ForeignJob, PodGroup
from hajob.convert.pod_template import (
    chips_of_pod,
    convert_template,
    reads_rank_table,
    trainer_of_pod,
    without_words_of_others,
)
from hajob.domain.patience import LONGEST_WAIT_SECONDS
from hajob.domain.text import counted_noun
from hajob.pods.rank_pod import innermost_mount
from hajob.sources.reading import items, mapping, parse_whole_number, text

_CHECKPOINTS: Final = "checkpoints"
_NO_COMMAND: Final = ["bash", "train.sh"]
_A3: Final = re.compile(r"(?<![a-z0-9])a3(?![a-z0-9])|sp-block")
"""In the names of node types (`module-a3-16-super-pod`) and the annotation of super pods."""
_NO_IMAGE: Final = "registry.example.org/trainer:1"
_SHARED: Final = ("persistentVolumeClaim", "nfs", "hostPath", "csi", "cephfs", "glusterfs", "flexVolume")
"""Kinds of volumes that may be one and the same on all nodes."""
_OUTPUTS: Final = re.compile(r"ckpt|checkpoint|output|save", re.IGNORECASE)
_STRATEGIES: Final = {
    "retry": "Retry", "recover-in-place": "InPlace", "recover": "Replace", "elastic-training": "Shrink",
}  # fmt: skip


def build_job(job: ForeignJob, found: Findings) -> Json | None:
    """Return the manifest of the new job; None: the old one has no pods that could train.

    Args:
        job: of the other kind.
        found: takes questions and what is left out.
    """
    ranks = _rank_groups(job, found)
    if not ranks:
        return None
    # Workers are many, the master one: what most pods have is what all of them get.
    group = max(ranks, key=lambda one: one.count)
    resource, chips = chips_of_pod(group.template["spec"])
    chips = chips or job.chips
    if len(ranks) > 1 and any(one.template["spec"] != group.template["spec"] for one in ranks):
        apart = ", ".join(one.name for one in ranks if one is not group)
        found.ask_person(
            f"spec.template: it is that of {group.name}; all pods of a HATrainingJob are alike, so look at what "
            f"{apart} has otherwise"
        )
    pod_as_it_was = deepcopy(group.template["spec"])  # the conversion takes its words and mounts out of the containers
    template = convert_template(group.template, found)
    words = _put_command_in_place(job, template, found)
    spec: Json = {}
    if framework := _framework_of_job(job, template, words):
        spec["framework"] = framework
    spec["numNodes"] = sum(one.count for one in ranks)
    spec["accelerator"] = _accelerator_of_pods(job, group, resource, chips, found)
    if "chipsPerNode" in spec["accelerator"] and spec["numNodes"] > 1:
        found.ask_person(
            f"spec.numNodes: {spec['numNodes']} pods of {counted_noun(chips, 'chip')}; each gets a node of its own, "
            "so fewer and larger ones may fit better"
        )
    spec["parallelism"] = _parallelism_of_command(spec, words, found)
    spec["checkpoint"] = {"path": _checkpoint_path_on_volume(template, words, found)}
    spec["template"] = template
    if job.suspend:
        spec["suspend"] = True
    if reads_rank_table(pod_as_it_was, is_mindspore="framework" in spec):
        spec["network"] = {"rankTablePolicy": RankTablePolicy.ENABLED.value}
    spec |= job.fields
    if recovery := _recovery_of_job(job, found):
        spec["recovery"] = recovery
    if job.queue:
        found.leave_out(
            f"queue {job.queue} of Volcano: where Hajob is installed with Volcano, set spec.scheduling: "
            f"{{gangPolicy: Volcano, queueName: {job.queue}}}"
        )
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": _metadata_of_job(job, found),
        "spec": spec,
    }


def _rank_groups(job: ForeignJob, found: Findings) -> list[PodGroup]:
    """Return the groups whose pods train: those with chips; where nobody asks for any, those that start no others."""
    groups = [group for group in job.groups if group.count and trainer_of_pod(group.template["spec"]) is not None]
    ranks = [group for group in groups if chips_of_pod(group.template["spec"])[1] and not group.starts_others]
    if not ranks:
        # Samples for processors: whoever converts them wants to see what becomes of the rest.
        ranks = [group for group in groups if not group.starts_others]
    for group in job.groups:
        if group in ranks:
            continue
        what = "MindSpore's scheduler runs beside Hajob's coordinator" if group.name == "Scheduler" else ""
        what = what or ("Hajob starts the ranks itself" if group.starts_others else "it has no chips, so no ranks")
        found.leave_out(f"pods of {group.name or 'a group without a name'}: {what}")
    return ranks


def _put_command_in_place(job: ForeignJob, template: Json, found: Findings) -> list[str]:
    """Put a command into the container that trains; return it with its arguments."""
    trainer = trainer_of_pod(template["spec"])
    assert trainer is not None
    starter = next((trainer_of_pod(group.template["spec"]) for group in job.groups if group.starts_others), None)
    if starter is not None:
        words = [*map(str, items(starter.get("command"))), *map(str, items(starter.get("args")))]
        mindspore = command_line.names_mindspore([*words, text(trainer.get("image"))])
        command = command_line.command_without_mpi(words, "msrun" if mindspore else "torchrun")
        if command is None:
            found.ask_person(
                f"spec.template: what is to be run in each pod; the old job's launcher ran: {' '.join(words)[:200]}"
            )
        else:
            found.ask_person(
                "spec.template: whether this starts one pod's ranks; it is made of the old job's mpirun line"
            )
            trainer["command"] = command
            trainer.pop("args", None)
    if not trainer.get("image"):
        trainer["image"] = _NO_IMAGE
        found.ask_person("spec.template: the image of container trainer, which the old job does not name")
    if not trainer.get("command"):
        trainer["command"] = list(_NO_COMMAND)
        found.ask_person(
            "spec.template: the start command of container trainer: the old job leaves it to its image, and Hajob's "
            "launcher cannot see what that would run"
        )
    return [*map(str, items(trainer.get("command"))), *map(str, items(trainer.get("args")))]


def _framework_of_job(job: ForeignJob, template: Json, words: list[str]) -> str:
    """Return MindSpore where the job says so; empty for PyTorch, the default."""
    trainer = mapping(trainer_of_pod(template["spec"]))
    variables = {text(mapping(one).get("name")): mapping(one).get("value") for one in items(trainer.get("env"))}
    told = str(job.labels.get("framework") or variables.get("framework") or "").lower()
    if told:
        return Framework.MINDSPORE.value if told == "mindspore" else ""
    return Framework.MINDSPORE.value if command_line.names_mindspore([text(trainer.get("image")), *words]) else ""


def _accelerator_of_pods(job: ForeignJob, group: PodGroup, resource: str, chips: int, found: Findings) -> Json:
    spec = group.template["spec"]
    told = " ".join(map(str, (*mapping(spec.get("nodeSelector")).values(), *job.annotations)))
    # 16 chips are an A3 node's, and those of the A2 boxes that their label names.
    is_a3 = _A3.search(told) is not None or (chips == CHIPS_PER_NODE[Product.A3] and "910b-16" not in told)
    product = Product.A3 if is_a3 else Product.A2
    if job.labels.get("ring-controller.atlas") == "ascend-910":
        found.ask_person(
            "spec.accelerator.product: the old job is for Atlas 800 (910A), which Hajob does not know; A2 is put"
        )
    elif not chips or not resource:
        found.ask_person(
            "spec.accelerator: product and chips of the nodes; the pods of the old job ask for no huawei.com chip"
        )
    if "sp-block" in job.annotations:
        found.leave_out(
            f"sp-block: {job.annotations['sp-block']}: where blocks of ranks must be in one super pod, set "
            f"spec.accelerator.superPodChips: {job.annotations['sp-block']}"
        )
    accelerator: Json = {"product": product.value}
    if chips and chips != CHIPS_PER_NODE[product]:
        accelerator["chipsPerNode"] = chips
    if resource and resource != names.DEFAULT_RESOURCE_NAME:
        accelerator["resourceName"] = resource
    return accelerator


def _parallelism_of_command(spec: Json, words: list[str], found: Findings) -> Json:
    """Return the degrees that the command names, as far as the chips can be divided by them."""
    chips = spec["accelerator"].get("chipsPerNode", CHIPS_PER_NODE[Product(spec["accelerator"]["product"])])
    degrees = command_line.degrees_of_command(words)
    block = degrees.get("tensor", 1) * degrees.get("pipeline", 1) * degrees.get("context", 1)
    fits = all(degrees.values()) and (spec["numNodes"] * chips) % max(block, 1) == 0
    if not fits:
        named = ", ".join(f"{name} {degree}" for name, degree in degrees.items())
        found.ask_person(
            f"spec.parallelism: the command names {named}: "
            f"no divisors of {counted_noun(spec['numNodes'] * chips, 'chip')}"
        )
        return {"tensor": 1}
    if "tensor" not in degrees:
        found.ask_person(
            "spec.parallelism: tensor, pipeline, context and expert as in the start script, which the manifest "
            "does not hold (docs/user/training-images.md)"
        )
    return {"tensor": 1, **degrees}


def _checkpoint_path_on_volume(template: Json, words: list[str], found: Findings) -> str:
    """Return the checkpoints' directory, on a volume that all ranks share; one is added where there is none."""
    spec, told = template["spec"], command_line.checkpoint_directory(words)
    trainer = trainer_of_pod(spec)
    assert trainer is not None
    volumes = {text(mapping(one).get("name")): mapping(one) for one in items(spec.get("volumes"))}
    mounts = [mapping(one) for one in items(trainer.get("volumeMounts"))]
    shared = [
        mount
        for mount in mounts
        if not mount.get("readOnly") and any(kind in volumes.get(text(mount.get("name")), {}) for kind in _SHARED)
    ]
    # A path that the script names counts only on a volume that the other nodes see, too.
    if told and innermost_mount(trainer, told) in shared:
        return told
    if not told:
        likely = [one for one in shared if _OUTPUTS.search(f"{one.get('name')} {one.get('mountPath')}")]
        if likely:
            found.ask_person("spec.checkpoint.path: the directory of the script's --save and --load (output_dir)")
            return text(likely[0].get("mountPath")).rstrip("/")
    path = told or "/ckpt"
    spec["volumes"] = [*items(spec.get("volumes")), _volume_of_checkpoints(volumes)]
    trainer["volumeMounts"] = [*mounts, {"name": spec["volumes"][-1]["name"], "mountPath": path}]
    found.ask_person(
        f"spec.checkpoint.path: {path}, the directory of the script's --save and --load, is on a volume that convert "
        f"has added: PersistentVolumeClaim {_CHECKPOINTS} must exist and be ReadWriteMany, or put another volume "
        "there"
    )
    return path


def _volume_of_checkpoints(volumes: Mapping[str, object]) -> Json:
    name = _CHECKPOINTS
    while name in volumes:
        name += "-2"
    return {"name": name, "persistentVolumeClaim": {"claimName": _CHECKPOINTS}}


def _recovery_of_job(job: ForeignJob, found: Findings) -> Json:
    """Return what the old job's labels and annotations say of recovery, where it differs from Hajob's defaults."""
    recovery: Json = {}
    strategies = job.annotations.get("recover-strategy")
    if strategies:
        off = [
            action for word, action in _STRATEGIES.items() if word not in str(strategies).replace(" ", "").split(",")
        ]
        found.leave_out(
            f"recover-strategy: {strategies}: Hajob tries every action that the layout allows, the smallest first"
            + (f"; to keep {', '.join(off)} off, give them maxCount: 0 in spec.recovery.actions" if off else "")
        )
    wait = parse_whole_number(job.annotations.get("wait-reschedule-timeout"))
    if wait:
        recovery["replacementTimeoutSeconds"] = min(wait, LONGEST_WAIT_SECONDS)
    if job.labels.get("subHealthyStrategy") == "ignore":
        recovery["subHealthPolicy"] = "Ignore"
    told = [name for name in ("fault-scheduling", "pod-rescheduling", "process-recover-enable", "fault-retry-times")
            if name in job.labels]  # fmt: skip
    if told:
        found.leave_out(
            f"{', '.join(told)} of the labels: for Huawei's scheduler plugin, which handles faults otherwise"
        )
    return recovery


def _metadata_of_job(job: ForeignJob, found: Findings) -> Json:
    # Other kinds allow dots and more letters; a HATrainingJob's name becomes a label of its pods.
    name = re.sub(r"[^a-z0-9-]+", "-", job.name.lower()).strip("-")[:JOB_NAME_MAX_LENGTH].strip("-")
    if name != job.name:
        found.ask_person(f"metadata.name: {name or 'training'}; the old job's is {job.name!r}")
    metadata: Json = {"name": name or "training"}
    if job.namespace:
        metadata["namespace"] = job.namespace
    if labels := without_words_of_others(job.labels):
        metadata["labels"] = labels
    return metadata
