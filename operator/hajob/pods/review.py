"""What a spec is refused for that no rule of the CRD can say, and what works and is worth knowing. Pure.

hajob.api.new_jobs has the rules. Here is what would exceed their budget, or needs the meaning of a volume. Everything
is found by name: a container, mount or volume may stand anywhere in its list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from hajob.api import constants as names
from hajob.api.derived import allowed_actions, chips_per_node, has_rank_table, why_not_served
from hajob.api.enums import GangPolicy
from hajob.api.job import HATrainingJob
from hajob.api.log_rules import log_rule_refusal
from hajob.api.spec import HATrainingJobSpec
from hajob.plan.policy import policy_from_spec
from hajob.pods.containers import trainer_container
from hajob.pods.environment import rank_environment
from hajob.pods.naming import is_kueues_key
from hajob.pods.rank_pod import innermost_mount
from hajob.sources.quota import parse_thousandths
from hajob.sources.reading import items, mapping, text

_POD: Final = "spec.template.spec"
_LOST_WITH_THE_POD: Final = {
    "emptyDir": "is empty in each new pod",
    "ephemeral": "is made for each pod and goes with it",
    "configMap": "cannot be written to",
    "secret": "cannot be written to",
    "downwardAPI": "cannot be written to",
    "projected": "cannot be written to",
    "image": "cannot be written to",
    "gitRepo": "is made for each pod",
}
"""Kinds of volumes that keep no checkpoint, and why."""
_SET_FOR_RANKS: Final = frozenset({"MASTER_ADDR", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"})
"""Variables that people write by hand, and that coordinator or agent set (docs/admin/pods.md)."""
_USERS_FIRST: Final = frozenset({"HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"})
"""Of these the launcher takes what the user has written."""
_NAMES_SHOWN: Final = 8
_WITHOUT_VOLCANO: Final = (
    "spec.scheduling.gangPolicy: Volcano: this operator is installed without Volcano: whoever installs it sets "
    "volcano.enabled in the chart, or HAJOB_VOLCANO_ENABLED; or leave gangPolicy out"
)


def why_not_started(spec: HATrainingJobSpec, *, serves_volcano: bool = True) -> str:
    """Return all that is to be changed before the operator starts the job, in sentences; empty for nothing.

    Args:
        spec: of the job.
        serves_volcano: the operator may make PodGroups of Volcano.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: the template is no pod; the API server says it better.
    """
    away = "" if serves_volcano or spec.scheduling.gang_policy is not GangPolicy.VOLCANO else _WITHOUT_VOLCANO
    return "; ".join(filter(None, (why_not_served(spec), away, log_rule_refusal(spec), *refusals_of_spec(spec))))


def refusals_of_spec(spec: HATrainingJobSpec) -> Iterator[str]:
    """Yield what no pod can be made from: field, value, what to do. Raises like `why_not_started`."""
    pod: Mapping[str, Any] = spec.template["spec"]
    trainer = trainer_container(dict(pod))
    yield from _checkpoint_refusals(spec, pod, trainer)
    yield from _chip_refusals(spec, pod)
    yield from _table_refusals(spec, trainer)
    yield from _quantity_refusals(pod)
    for part, container in _containers_of_pod(pod):
        rules = map(mapping, items(container.get("restartPolicyRules")))
        if any(rule.get("action") == "RestartAllContainers" for rule in rules):
            name = text(container.get("name"))
            yield (
                f"{_POD}.{part}: container {name} has a restartPolicyRule RestartAllContainers, which would restart "
                "the ranks behind Hajob's back: leave the rule out"
            )


def _containers_of_pod(pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for part in ("initContainers", "containers"):
        for container in items(pod.get(part)):
            yield part, mapping(container)


def _checkpoint_refusals(spec: HATrainingJobSpec, pod: Mapping[str, Any], trainer: Mapping[str, Any]) -> Iterator[str]:
    path = spec.checkpoint.path
    if ".." in PurePosixPath(path).parts:
        yield f"spec.checkpoint.path: {path}: has `..` in it: write the path that it leads to"
        return
    found = innermost_mount(dict(trainer), path)
    if found is None:
        mounts = ", ".join(entry["mountPath"] for entry in trainer.get("volumeMounts") or []) or "none"
        yield (
            f"spec.checkpoint.path: {path}: lies on no volume, and every checkpoint would be lost with its pod: mount "
            f"a volume that all ranks share into container trainer, at this path or above it (mounted are: {mounts})"
        )
        return
    name = text(found.get("name"))
    where = f"volumeMount {name} at {found['mountPath']}, on which spec.checkpoint.path: {path} lies,"
    if found.get("readOnly") is True:
        yield f"{_POD}.containers: {where} is readOnly: no checkpoint could be saved; take readOnly away"
    if found.get("subPathExpr"):
        yield (
            f"{_POD}.containers: {where} has subPathExpr: {found['subPathExpr']}: every pod could have a directory of "
            "its own, and Hajob's agent does not have the variables in it; write subPath"
        )
    volume = next((one for one in map(mapping, items(pod.get("volumes"))) if one.get("name") == name), {})
    for kind, why in _LOST_WITH_THE_POD.items():
        if volume.get(kind) is not None:
            yield (
                f"{_POD}.volumes: {name} holds spec.checkpoint.path: {path}, and is of kind {kind}, which {why}: "
                "choose a volume that all ranks share and that outlives them, such as a persistentVolumeClaim"
            )


def _table_refusals(spec: HATrainingJobSpec, trainer: Mapping[str, Any]) -> Iterator[str]:
    """What stands where the rank table comes; without one, a script's own file there is its own affair."""
    if not has_rank_table(spec):
        return
    for mount in map(mapping, items(trainer.get("volumeMounts"))):
        path = text(mount.get("mountPath"))
        if PurePosixPath(path).is_relative_to(names.RANK_TABLE_DIRECTORY):
            yield (
                f"{_POD}.containers: volumeMount {text(mount.get('name'))} at {path} is where Hajob puts the "
                "rank table (network.rankTablePolicy: Enabled): take the mount away, Hajob mounts a volume of its own"
            )


def _chip_refusals(spec: HATrainingJobSpec, pod: Mapping[str, Any]) -> Iterator[str]:
    """Resources of the accelerator's domain: only trainer has them, ours and no other."""
    ours, chips = spec.accelerator.resource_name, chips_per_node(spec)
    domain = ours.rpartition("/")[0]
    for part, container in _containers_of_pod(pod):
        name = text(container.get("name"))
        resources, told = mapping(container.get("resources")), set[str]()
        for side in ("limits", "requests"):
            for resource, amount in mapping(resources.get(side)).items():
                at_all = resource == ours or (domain and resource.rpartition("/")[0] == domain)
                right = resource == ours and name == "trainer" and part == "containers" and str(amount) == str(chips)
                if at_all and not right and resource not in told:
                    told.add(resource)
                    yield (
                        f"{_POD}.{part}: container {name} has {resource}: {amount} in its resources: leave it out; "
                        f"Hajob gives all {chips} {ours} of a node to container trainer (spec.accelerator)"
                    )


def _quantity_refusals(pod: Mapping[str, Any]) -> Iterator[str]:
    """Amounts that are none: the API server's refusal does not say where they stand."""
    for part, container in _containers_of_pod(pod):
        resources = mapping(container.get("resources"))
        for side in ("requests", "limits"):
            for resource, amount in mapping(resources.get(side)).items():
                if isinstance(amount, str) and parse_thousandths(amount) is None:
                    name = text(container.get("name"))
                    yield (
                        f"{_POD}.{part}: container {name} has {resource}: {amount} in its resources.{side}, which is "
                        "no quantity: write a number, with a unit or without: 96, 500m, 64Gi"
                    )


def notes_on_spec(job: HATrainingJob) -> Iterator[str]:
    """Yield what the spec says, works, and is worth knowing."""
    spec = job.spec
    pod: Mapping[str, Any] = spec.template["spec"]
    if not allowed_actions(spec):
        yield "spec.recovery.actions switches every action off: the first fault ends the job"
    if any(
        mapping(entry).get("operator") == "Exists" and not mapping(entry).get("key")
        for entry in _tolerations_of_pod(pod)
    ):
        yield "the template tolerates every taint (operator: Exists, no key); cordoned nodes are avoided all the same"
    metadata = mapping(spec.template.get("metadata"))
    kueues = {key for part in ("labels", "annotations") for key in mapping(metadata.get(part)) if is_kueues_key(key)}
    if kueues:
        yield (
            f"spec.template.metadata: {', '.join(sorted(kueues))} does not come into the pods, which Kueue would "
            f"queue one by one: give the label {names.LABEL_QUEUE} to the job"
        )
    if names.LABEL_QUEUE in job.metadata.labels and spec.scheduling.queue_name not in {"", names.VOLCANO_DEFAULT_QUEUE}:
        yield (
            f"label {names.LABEL_QUEUE}: {job.metadata.labels[names.LABEL_QUEUE]} and spec.scheduling.queueName: "
            f"{spec.scheduling.queue_name}: the job waits in Kueue's queue first and then in Volcano's, which may hold "
            f"what Kueue has admitted; write queueName: {names.VOLCANO_DEFAULT_QUEUE}"
        )
    trainer = next(
        (one for part, one in _containers_of_pod(pod) if part == "containers" and one.get("name") == "trainer"), {}
    )
    written = {text(mapping(entry).get("name")) for entry in items(trainer.get("env"))}
    if ours := sorted(written & (_SET_FOR_RANKS | rank_environment(job, policy_from_spec(spec)).keys() - _USERS_FIRST)):
        shown = ", ".join(ours[:_NAMES_SHOWN])
        yield f"what env of container trainer says of {shown} does not count for the ranks: Hajob sets it"
    mounted = {text(mapping(mount).get("mountPath")).rstrip("/") for mount in items(trainer.get("volumeMounts"))}
    if not has_rank_table(spec) and ("RANK_TABLE_FILE" in written or names.RANK_TABLE_DIRECTORY in mounted):
        yield (
            f"container trainer names a rank table (RANK_TABLE_FILE or {names.RANK_TABLE_DIRECTORY}), which nobody "
            "writes: set network.rankTablePolicy: Enabled, and take the mount away, unless the file is your own"
        )
    if spec.output.path and innermost_mount(dict(trainer), spec.output.path) is None:
        yield f"spec.output.path: {spec.output.path} lies on no volume of container trainer: no output is kept"


def _tolerations_of_pod(pod: Mapping[str, Any]) -> list[Any]:
    return list(items(pod.get("tolerations")))


def checkpoint_claim(spec: HATrainingJobSpec) -> str:
    """Return the name of the PersistentVolumeClaim that holds the checkpoints; empty for none."""
    pod: Mapping[str, Any] = spec.template["spec"]
    mount = mapping(innermost_mount(trainer_container(dict(pod)), spec.checkpoint.path))
    volumes = map(mapping, items(pod.get("volumes")))
    volume = next((one for one in volumes if mount and one.get("name") == mount.get("name")), {})
    return text(mapping(volume.get("persistentVolumeClaim")).get("claimName"))


def note_on_claim(claim: Mapping[str, Any], num_nodes: int) -> str:
    """Return what the access modes of that claim do not allow; empty where they allow all."""
    modes = [text(mode) for mode in items(mapping(claim.get("spec")).get("accessModes"))]
    if num_nodes == 1 or not modes or "ReadWriteMany" in modes:
        return ""
    name = text(mapping(claim.get("metadata")).get("name"))
    return (
        f"PersistentVolumeClaim {name} of spec.checkpoint.path is {', '.join(modes)}: pods on {num_nodes} nodes cannot "
        "all mount and write it, unless its driver does not mind; ReadWriteMany is what is needed"
    )
