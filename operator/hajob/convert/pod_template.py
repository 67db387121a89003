"""Makes the template of a HATrainingJob of the pods of another kind of job. Pure.

What Hajob sets or does itself is left out and said: a variable that stays would not count, a placement rule that stays
would keep replacements away, and a port or a table of another operator would be read by nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hajob.api.base import Json
from hajob.api.constants import RANK_TABLE_DIRECTORY, TRAINER_CONTAINER
from hajob.api.new_jobs import LONGEST_GRACE_SECONDS
from hajob.convert.foreign_job import Findings
from hajob.sources.reading import items, mapping, parse_whole_number, text

CHIP_DOMAIN: Final = "huawei.com/"
"""Before the slash of each resource that Huawei's device plugin offers."""
_SET_BY_HAJOB: Final = frozenset(
    [
        "MASTER_ADDR",
        "MASTER_PORT",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "NNODES",
        "GROUP_RANK",
        "TTP_PORT",
        "MS_SCHED_HOST",
        "MS_SCHED_PORT",
        "MS_WORKER_NUM",
        "MS_LOCAL_WORKER",
        "MS_NODE_RANK",
        "MS_ROLE",
        "MS_TFT_IP",
        "MS_TFT_PORT",
        "HIGH_AVAILABILITY",
        "PROCESS_RECOVER",
        "ELASTIC_PROCESS_RECOVER_ENABLE",
        "ENABLE_RESTART_FAULT_PROCESS",
        "MINDX_SERVER_IP",
        "MINDX_SERVER_DOMAIN",
        "MINDX_TASK_ID",
        "RANK_TABLE_FILE",
    ]
)
"""Variables of launchers, TaskD and Ascend Operator; Hajob's launcher sets what the ranks need of them."""
_DEVICES: Final = "ASCEND_VISIBLE_DEVICES"
_PORTS: Final = frozenset({"ascendjob-port", "ttp-port", "taskd-port", "pytorchjob-port"})
_TABLES: Final = (RANK_TABLE_DIRECTORY, "/user/restore/reset/config")
"""Where Ascend Operator and the device plugin of older jobs put files for the pods."""
_PLACED_BY_JOB: Final = ("job-name", "job-role", "replica-type")
"""What ends the keys by which jobs of others keep their own pods apart."""
_OF_OTHERS: Final = (
    "ring-controller.atlas", "fault-scheduling", "pod-rescheduling", "process-recover-enable", "fault-retry-times",
    "subHealthyStrategy", "tor-affinity", "framework", "volcano.sh/", "scheduling.k8s.io/", "scheduling.volcano.sh/",
    "hccl/", "huawei.com/", "training.kubeflow.org/", "trainer.kubeflow.org/", "jobset.sigs.k8s.io/",
    "batch.kubernetes.io/", "elastic-scheduling", "super-pod-", "sp-block", "sp-fit", "ra-block", "predicate-time",
    "podgroup-sched-enable", "distributed-job", "ascend.kubectl.kubernetes.io/", "backupSourcePodName",
)  # fmt: skip
"""Labels and annotations by which other operators, Huawei's scheduler plugin and its device plugin handle pods."""
_REFUSED_OF_POD: Final = {
    "restartPolicy": "Hajob restarts what fails",
    "nodeName": "Hajob and the scheduler place the pods",
    "hostname": "a pod's name is its host name",
    "subdomain": "ranks find each other through Hajob's coordinator",
    "schedulingGates": "hold the job with spec.suspend",
    "setHostnameAsFQDN": "the name would be too long",
}
_REFUSED_OF_TRAINER: Final = {
    "livenessProbe": "spec.recovery.hang finds a training that hangs",
    "readinessProbe": "Hajob says when a pod is ready",
    "startupProbe": "see spec.startupDeadlineSeconds",
    "restartPolicy": "Hajob restarts what fails",
}


def chips_of_pod(spec: Mapping[str, Any]) -> tuple[str, int]:
    """Return resource and number of the chips that a pod asks for; an empty name and 0 where it asks for none."""
    for container in _containers_of_pod(spec):
        resources = mapping(mapping(container).get("resources"))
        for side in ("limits", "requests"):
            for resource, amount in mapping(resources.get(side)).items():
                number = parse_whole_number(amount)
                if resource.startswith(CHIP_DOMAIN) and number:
                    return resource, number
    return "", 0


def _containers_of_pod(spec: Mapping[str, Any]) -> Iterator[Json]:
    yield from (one for one in items(spec.get("containers")) if isinstance(one, dict))


def _all_containers(spec: Mapping[str, Any]) -> Iterator[Json]:
    yield from _containers_of_pod(spec)
    yield from (one for one in items(spec.get("initContainers")) if isinstance(one, dict))


def trainer_of_pod(spec: Mapping[str, Any]) -> Json | None:
    """Return the container that trains: the one with chips, else the first; None: there is no container."""
    containers = list(_containers_of_pod(spec))
    return next((one for one in containers if chips_of_pod({"containers": [one]})[1]), next(iter(containers), None))


def reads_rank_table(spec: Mapping[str, Any], *, is_mindspore: bool) -> bool:
    """Return whether the pod reads a rank table: it says where, or trains with MindSpore and mounts one.

    Samples for PyTorch mount one as well, and set up their communication by a store.
    """
    trainer = mapping(trainer_of_pod(spec))
    if any(mapping(one).get("name") == "RANK_TABLE_FILE" for one in items(trainer.get("env"))):
        return True
    # Not for every mount: a job with a rank table cannot shrink.
    mounted = (text(mapping(one).get("mountPath")).rstrip("/") for one in items(trainer.get("volumeMounts")))
    return is_mindspore and RANK_TABLE_DIRECTORY in mounted


def convert_template(template: Json, found: Findings) -> Json:
    """Return the template of the new job; its container that trains has no chips, and still the old command."""
    spec = {name: value for name, value in template["spec"].items() if value is not None}
    for name, why in _REFUSED_OF_POD.items():
        if spec.pop(name, None) not in (None, "", False, [], "Never"):
            found.leave_out(f"{name} of the pods: {why}")
    if spec.get("schedulerName") == "volcano":
        del spec["schedulerName"]
        found.leave_out(
            "schedulerName: volcano: Hajob starts all pods of a job together by itself, with any scheduler; for "
            "Volcano's set spec.scheduling.gangPolicy: Volcano"
        )
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and not 1 <= grace <= LONGEST_GRACE_SECONDS:
        del spec["terminationGracePeriodSeconds"]
        found.leave_out(f"terminationGracePeriodSeconds: {grace}: it must be 1 to {LONGEST_GRACE_SECONDS}")
    if spec.pop("activeDeadlineSeconds", None) is not None:
        found.leave_out("activeDeadlineSeconds of the pods: limit the job with spec.activeDeadlineSeconds")
    _convert_affinity(spec, found)
    _convert_volumes(spec, found)
    trainer = trainer_of_pod(spec)
    for container in _all_containers(spec):
        _take_chips_out(container)
        if container.pop("restartPolicyRules", None) is not None:
            found.leave_out(f"restartPolicyRules of container {container.get('name')}: Hajob restarts what fails")
        if container is trainer:
            _convert_trainer(container, found)
    metadata = {
        name: kept
        for name in ("labels", "annotations")
        if (kept := without_words_of_others(template["metadata"].get(name)))
    }
    return {**({"metadata": metadata} if metadata else {}), "spec": spec}


def without_words_of_others(words: object) -> Json:
    """Return labels or annotations without those by which other operators handle jobs and pods."""
    return {name: value for name, value in mapping(words).items() if not name.startswith(_OF_OTHERS)}


def _convert_trainer(container: Json, found: Findings) -> None:
    container["name"] = TRAINER_CONTAINER
    for name, why in _REFUSED_OF_TRAINER.items():
        if container.pop(name, None) is not None:
            found.leave_out(f"{name} of the container that trains: {why}")
    env = [one for one in items(container.get("env")) if isinstance(one, dict)]
    gone = sorted(text(one.get("name")) for one in env if _is_set_by_hajob(one))
    if gone:
        found.leave_out(f"env {', '.join(gone)}: Hajob, or the device plugin, sets what the ranks need of it")
    if "env" in container:
        container["env"] = [one for one in env if not _is_set_by_hajob(one)]
    ports = [one for one in items(container.get("ports")) if mapping(one).get("name") not in _PORTS]
    if "ports" in container and len(ports) < len(list(items(container["ports"]))):
        found.leave_out("ports of other operators: Hajob's are in spec.network")
        container["ports"] = ports
    for name in ("env", "ports"):
        if not container.get(name):
            container.pop(name, None)


def _is_set_by_hajob(entry: Mapping[str, Any]) -> bool:
    name = text(entry.get("name"))
    # The device plugin sets the devices itself; from an annotation of Huawei's scheduler plugin they would be empty.
    return name in _SET_BY_HAJOB or name.startswith("PET_") or (name == _DEVICES and "valueFrom" in entry)


def _take_chips_out(container: Json) -> None:
    resources = {
        side: {name: value for name, value in mapping(amounts).items() if not name.startswith(CHIP_DOMAIN)}
        for side, amounts in mapping(container.get("resources")).items()
        if side in {"requests", "limits"}
    }
    if kept := {side: amounts for side, amounts in resources.items() if amounts}:
        container["resources"] = kept
    else:
        container.pop("resources", None)


def _convert_affinity(spec: Json, found: Findings) -> None:
    affinity = dict(mapping(spec.get("affinity")))
    for kind in ("podAntiAffinity", "podAffinity"):
        # Rules by other labels may keep jobs of two teams apart, so they stay.
        if kind in affinity and any(word in repr(affinity[kind]) for word in _PLACED_BY_JOB):
            del affinity[kind]
            found.leave_out(f"{kind} among the job's own pods: Hajob gives each rank pod a node of its own")
    if affinity:
        spec["affinity"] = affinity
    else:
        spec.pop("affinity", None)


def _convert_volumes(spec: Json, found: Findings) -> None:
    """Leave out files that other operators write for their pods, and mounts of volumes that the pods do not have."""
    volumes = {text(mapping(one).get("name")): one for one in items(spec.get("volumes"))}
    mounts = [mapping(mount) for one in _all_containers(spec) for mount in items(one.get("volumeMounts"))]
    tables = {text(one.get("name")) for one in mounts if one.get("mountPath") in _TABLES} & volumes.keys()
    if tables:
        found.leave_out(
            f"volumes {', '.join(sorted(tables))}: tables of ranks and resets that other operators write; for a "
            "script that reads RANK_TABLE_FILE Hajob writes it with network.rankTablePolicy: Enabled"
        )
    # A JobSet or StatefulSet makes claims for its pods, whose mounts then name volumes of no template.
    kept = volumes.keys() - tables
    lost = sorted(f"{one.get('name')} at {one.get('mountPath')}" for one in mounts if one.get("name") not in volumes)
    if lost:
        found.leave_out(f"mounts of volumes that the pods lack ({', '.join(lost)}): add them if needed")
    for container in _all_containers(spec):
        if "volumeMounts" in container:
            container["volumeMounts"] = [
                one
                for one in items(container["volumeMounts"])
                if mapping(one).get("name") in kept and mapping(one).get("mountPath")
            ]
    if volumes:
        spec["volumes"] = [volumes[name] for name in volumes if name in kept]
