"""The pod of one node rank: the user's template with an agent beside it and the launcher in front of its command.

The user's template stays what it is: Hajob adds, and overrides only what would break the job (chips, restart policy,
its own variables). `restartPolicy: Never`, because nobody may restart a launcher behind Hajob's back.
"""

import copy
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.derived import chips_per_node, nodes_per_block, rank_host_ports, world_size_of
from hajob.api.enums import GangPolicy
from hajob.api.job import HATrainingJob
from hajob.pods import containers as parts
from hajob.pods.affinity import rank_affinity, with_node_loss_tolerations
from hajob.pods.naming import is_kueues_key, labels_of_pod, owner_references, rank_pod_name
from hajob.pods.pod_group import put_into_group
from hajob.pods.settings import PodSettings

OWN_INIT_CONTAINERS: Final = ("install", parts.AGENT_CONTAINER)
"""Names of Hajob's init containers, in their order; those of the template follow."""
_OUTPUT_DIRECTORY: Final = "hajob-output"
AGENT_RESOURCES: Final[Json] = {"requests": {"cpu": "1", "memory": "64Mi"}}
"""A CPU of its own: beside ranks that use every core, an agent that waits for its turn loses leases and heartbeats."""
_BIDIRECTIONAL: Final = "Bidirectional"  # for privileged containers only, which the agent is not
_TERMINATION_LOG: Final = "/dev/termination-log"  # Kubernetes' default of terminationMessagePath


def output_directory(job: HATrainingJob) -> str:
    """Return the directory of this job's output: below `spec.output.path`, else below the checkpoints.

    The job's UID is part of it, so that neither another job nor a later one of this name writes over what is kept.
    """
    base = job.spec.output.path or str(PurePosixPath(job.spec.checkpoint.path) / _OUTPUT_DIRECTORY)
    return str(PurePosixPath(base) / job.metadata.uid)


def innermost_mount(trainer: Json, path: str) -> Json | None:
    """Return the innermost volume mount of the trainer under which a path lies; None: on no volume.

    Raises:
        ValueError: a mount has no mountPath; the API server refuses such a pod.
    """
    wanted, mounts = PurePosixPath(path), trainer.get("volumeMounts") or []
    if (lost := next((entry for entry in mounts if "mountPath" not in entry), None)) is not None:
        raise ValueError(f"volumeMount {lost.get('name')} of container trainer has no mountPath: add it")
    fitting: list[Json] = [entry for entry in mounts if wanted.is_relative_to(PurePosixPath(entry["mountPath"]))]
    return max(fitting, key=lambda entry: len(PurePosixPath(entry["mountPath"]).parts), default=None)


def _trainer_container(job: HATrainingJob, settings: PodSettings, node_rank: int, trainer: Json) -> Json:
    """The user's container with chips, variables and the launcher in front of its command."""
    result = copy.deepcopy(trainer)
    ours = [
        *parts.env_variables(
            {
                "HAJOB_DIR": settings.shared_directory,
                "HAJOB_NODE_RANK": str(node_rank),
                "HAJOB_RANKS_PER_NODE": str(chips_per_node(job.spec)),
                "HAJOB_WORLD_SIZE": str(world_size_of(job.spec)),
                "HAJOB_TERMINATION_LOG": trainer.get("terminationMessagePath") or _TERMINATION_LOG,
                "HAJOB_CHECKPOINT_DIR": job.spec.checkpoint.path,
                "HAJOB_JOB_UID": job.metadata.uid,
                "MINDX_TASK_ID": job.metadata.uid,
                **parts.launcher_variable(job.spec),
                **_block_variables(job, node_rank),
                **parts.mindio_tls_variables(job, settings),
                **parts.rank_table_variables(job),
            }
        ),
        *parts.env_of_pod_fields(),
        {"name": "HCCL_IF_IP", "value": "$(POD_IP)"},
    ]
    result["env"] = parts.with_user_variables(ours, result.get("env") or [])
    command = [*(result.get("command") or []), *(result.pop("args", None) or [])]
    result["command"] = ["python3", "$(HAJOB_DIR)/launcher.pyz", "--", *command]
    chips = str(chips_per_node(job.spec))
    resources = result["resources"] = dict(result.get("resources") or {})
    for side in ("requests", "limits"):
        resources[side] = {**(resources.get(side) or {}), job.spec.accelerator.resource_name: chips}
    result["volumeMounts"] = [
        *(result.get("volumeMounts") or []),
        parts.volume_mount(parts.SHARED_VOLUME, settings.shared_directory),
        *parts.mindio_tls_mounts(job, settings),
        *parts.rank_table_mounts(job, read_only=True),
    ]
    if ports := rank_host_ports(job.spec):  # elsewhere the names are the user's
        result["ports"] = [*(result.get("ports") or []), *parts.container_ports(job.spec, ports)]
    result.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    return result


def _block_variables(job: HATrainingJob, node_rank: int) -> dict[str, str]:
    """The number of the node's block, by which HCCL knows whom it reaches within a super pod."""
    size = nodes_per_block(job.spec)
    return {"HCCL_LOGIC_SUPERPOD_ID": str(node_rank // size)} if size else {}


def _agent_container(
    job: HATrainingJob, settings: PodSettings, node_rank: int, incarnation: int, trainer: Json
) -> Json:
    """The agent, as a native sidecar: it is there before the trainer starts and ends after it."""
    output = output_directory(job)
    output_mount, checkpoint_mount = (
        innermost_mount(trainer, output),
        innermost_mount(trainer, job.spec.checkpoint.path),
    )
    own = {
        **parts.job_variables(job, settings, incarnation),
        "HAJOB_TLS_DIR": settings.tls_directory,
        **parts.mindio_tls_variables(job, settings),
        **parts.rank_table_variables(job),
        "HAJOB_NODE_RANK": str(node_rank),
        "HAJOB_FENCE_AFTER_SECONDS": str(settings.fence_after_seconds),
        "HAJOB_OUTPUT_DIR": output if output_mount else "",
        "HAJOB_OUTPUT_ATTEMPT_LIMIT": str(job.spec.output.attempt_limit),
        "HAJOB_CHECKPOINT_DIR": job.spec.checkpoint.path if checkpoint_mount else "",
    }
    mounts = [
        parts.volume_mount(parts.SHARED_VOLUME, settings.shared_directory),
        parts.volume_mount(parts.TLS_VOLUME, settings.tls_directory, read_only=True),
        *parts.mindio_tls_mounts(job, settings),
        *parts.rank_table_mounts(job, read_only=False),
    ]
    for volume in _distinct_mounts(output_mount, checkpoint_mount):  # to look: what is changed, the launcher changes
        propagated = {"mountPropagation"} if volume.get("mountPropagation") == _BIDIRECTIONAL else set()
        mounts.append({name: value for name, value in volume.items() if name not in propagated} | {"readOnly": True})
    container = parts.sidecar_container(
        parts.AGENT_CONTAINER,
        ["-m", "trainer_sidecar.agent"],
        job,
        settings,
        env=[*parts.env_variables(own), *parts.env_of_pod_fields()],
        mounts=mounts,
        resources=parts.resources_or(job.spec.agent.resources, settings.resources or AGENT_RESOURCES),
    )
    return {**container, "restartPolicy": "Always"}


def _distinct_mounts(*mounts: Json | None) -> list[Json]:
    """The mounts that there are, each once: output usually lies below the checkpoints."""
    return list({mount["mountPath"]: mount for mount in mounts if mount}.values())


def _metadata_of_pod(job: HATrainingJob, node_rank: int, incarnation: int) -> Json:
    written = {part: _without_kueues(pairs) for part, pairs in (job.spec.template.get("metadata") or {}).items()}
    labels = labels_of_pod(job, names.ROLE_RANK, incarnation)
    labels[names.LABEL_NODE_RANK] = str(node_rank)
    return {
        "name": rank_pod_name(job, node_rank, incarnation),
        "namespace": job.metadata.namespace,
        "labels": {**(written.get("labels") or {}), **labels},
        "annotations": {**(written.get("annotations") or {}), names.ANNOTATION_RANK_INDEX: str(node_rank)},
        "ownerReferences": owner_references(job),
    }


def _without_kueues(pairs: Json | None) -> Json:
    return {key: value for key, value in (pairs or {}).items() if not is_kueues_key(key)}


def build_rank_pod(
    job: HATrainingJob,
    node_rank: int,
    incarnation: int,
    settings: PodSettings,
    excluded_nodes: Collection[str] = (),
    *,
    place: str = "",
    gated: bool = False,
    super_pod: str = "",
) -> Json:
    """Build the pod of a node rank, ready to be created.

    Args:
        job: the job, with its UID.
        node_rank: 0 to numNodes - 1.
        incarnation: of the incident that makes the pod; name and label carry it.
        settings: images, ports and paths of the installation.
        excluded_nodes: node names where it must not run, besides those that the spec excludes.
        place: the only node where it may go, that of a spare; empty: any other.
        gated: it asks for no node until the gate is taken away.
        super_pod: where the other pods of its block are; empty: in any.

    Raises:
        ValueError: no container is named trainer.
    """
    spec: Json = copy.deepcopy(job.spec.template["spec"])
    trainer = parts.trainer_container(spec)
    spec["initContainers"] = [
        parts.install_container(job, settings),
        _agent_container(job, settings, node_rank, incarnation, trainer),
        *(spec.get("initContainers") or []),
    ]
    spec["containers"] = [
        _trainer_container(job, settings, node_rank, container) if container is trainer else container
        for container in spec["containers"]
    ]
    volumes = [parts.shared_volume(), parts.tls_volume(job, "agent"), *parts.mindio_tls_volumes(job)]
    volumes += parts.rank_table_volumes(job)
    spec["volumes"] = [*(spec.get("volumes") or []), *volumes]
    spec["affinity"] = rank_affinity(
        job, spec.get("affinity") or {}, excluded_nodes, place, topology=settings.topology_label, super_pod=super_pod
    )
    spec["tolerations"] = with_node_loss_tolerations(spec.get("tolerations") or [])
    spec |= parts.pull_secrets(spec, settings)
    spec["restartPolicy"] = "Never"
    if gated:
        spec["schedulingGates"] = [{"name": names.GATE}, *(spec.get("schedulingGates") or [])]
    spec.setdefault("terminationGracePeriodSeconds", settings.rank_grace_seconds)
    spec.setdefault("enableServiceLinks", False)
    spec.setdefault("automountServiceAccountToken", False)
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata_of_pod(job, node_rank, incarnation),
        "spec": spec,
    }
    if job.spec.scheduling.gang_policy is GangPolicy.VOLCANO:
        put_into_group(pod, job, names.ROLE_RANK)
    if super_pod:
        block = str(node_rank // nodes_per_block(job.spec))
        own = {names.ANNOTATION_SUPER_POD: super_pod, names.ANNOTATION_SUPER_POD_RANK: block}
        pod["metadata"]["annotations"] |= own
    return pod
