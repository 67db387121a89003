"""Reads the kinds of jobs that are converted: one function each, and the table of them.

Shapes as their projects define them: AscendJob (mind-cluster), Job of Volcano, PyTorchJob, TrainJob and MPIJob
(Kubeflow), JobSet (Kubernetes SIGs), and the plain workloads of Kubernetes. A field of another type than its project's
is read as absent: what comes of it is checked by `kubectl apply`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from hajob.api.base import Json
from hajob.convert.foreign_job import Findings, ForeignJob, PodGroup
from hajob.convert.pod_template import chips_of_pod
from hajob.sources.reading import items, mapping, parse_whole_number, text

Object = Mapping[str, Any]
"""A Kubernetes object, or a part of one."""

_MPI_LAUNCHER: Final = "Launcher"
_TRAINER_JOB: Final = "node"
"""Name that a TrainJob's runtime gives to the pods that train; `trainer` in older ones."""


def read_foreign_job(body: Object, others: list[Json], found: Findings) -> ForeignJob | None:
    """Read a job of another kind.

    Args:
        body: the object.
        others: the other objects of the same file: a TrainJob's runtime may be among them.
        found: takes what is left out.

    Returns:
        None: the object is of no kind that is converted.
    """
    read = READERS.get((text(body.get("apiVersion")).partition("/")[0], text(body.get("kind"))))
    return read(body, others, found) if read is not None else None


def _whole_number_or(value: object, default: int) -> int:
    """Return a whole number; `default` where it is absent or none."""
    found = parse_whole_number(value)
    return default if found is None else found


def _build_foreign_job(
    body: Object,
    groups: Iterable[PodGroup],
    *,
    queue: str = "",
    chips: int = 0,
    suspend: bool = False,
    fields: Json | None = None,
) -> ForeignJob:
    metadata = mapping(body.get("metadata"))
    # A manifest for `kubectl create` may leave its name to the server.
    return ForeignJob(
        kind=text(body.get("kind")),
        name=text(metadata.get("name")) or text(metadata.get("generateName")).rstrip("-"),
        namespace=text(metadata.get("namespace")),
        labels=dict(mapping(metadata.get("labels"))),
        annotations=dict(mapping(metadata.get("annotations"))),
        groups=tuple(groups),
        queue=queue,
        chips=chips,
        suspend=suspend,
        fields=fields or {},
    )


def _template_of_role(raw: object) -> Json:
    found = mapping(raw)
    return {"metadata": dict(mapping(found.get("metadata"))), "spec": copy.deepcopy(dict(mapping(found.get("spec"))))}


def _build_from_replicas(body: Object, field: str, found: Findings, *, chips: int = 0) -> ForeignJob:
    """Build the job of an operator that Kubeflow's common library has shaped; `field` holds its roles."""
    spec = mapping(body.get("spec"))
    groups = _groups_of_replicas(mapping(spec.get(field)))
    return _build_foreign_job(body, groups, chips=chips, **_fields_of_run_policy(mapping(spec.get("runPolicy")), found))


def _groups_of_replicas(replicas: Object) -> Iterator[PodGroup]:
    for name, raw in replicas.items():
        role = mapping(raw)
        count = _whole_number_or(role.get("replicas"), 1)
        yield PodGroup(str(name), count, _template_of_role(role.get("template")), starts_others=name == _MPI_LAUNCHER)


def _fields_of_run_policy(policy: Object, found: Findings) -> dict[str, Any]:
    """Return what a `runPolicy` says of queue, times and suspension."""
    scheduling = mapping(policy.get("schedulingPolicy"))
    if policy.get("backoffLimit") is not None:
        found.leave_out(
            f"runPolicy.backoffLimit: {policy['backoffLimit']}: Hajob counts each action by itself "
            "(spec.recovery.actions) and failures of the program by spec.recovery.maxProgramFailures"
        )
    for name in ("cleanPodPolicy", "managedBy"):
        if policy.get(name) is not None:
            found.leave_out(f"runPolicy.{name}: {policy[name]}: it is of no use to Hajob")
    times = {"ttlSecondsAfterFinished", "activeDeadlineSeconds"}
    return {
        "queue": text(scheduling.get("queue")),
        "suspend": policy.get("suspend") is True,
        "fields": {name: policy[name] for name in sorted(times) if isinstance(policy.get(name), int)},
    }


def _read_ascend_job(body: Object, _others: list[Json], found: Findings) -> ForeignJob:
    spec = mapping(body.get("spec"))
    if spec.get("successPolicy"):
        found.leave_out(f"successPolicy: {spec['successPolicy']}: a job of Hajob is complete when all ranks have ended")
    return _build_from_replicas(body, "replicaSpecs", found)


def _read_pytorch_job(body: Object, _others: list[Json], found: Findings) -> ForeignJob:
    spec = mapping(body.get("spec"))
    if spec.get("elasticPolicy"):
        found.leave_out("elasticPolicy: Hajob shrinks by data-parallel ranks and grows back by itself (spec.elastic)")
    return _build_from_replicas(body, "pytorchReplicaSpecs", found, chips=_whole_number_or(spec.get("nprocPerNode"), 0))


def _read_mpi_job(body: Object, _others: list[Json], found: Findings) -> ForeignJob:
    chips = mapping(body.get("spec")).get("slotsPerWorker")
    return _build_from_replicas(body, "mpiReplicaSpecs", found, chips=_whole_number_or(chips, 0))


def _read_volcano_job(body: Object, _others: list[Json], found: Findings) -> ForeignJob:
    spec = mapping(body.get("spec"))
    plugins = ", ".join(mapping(spec.get("plugins")))
    if plugins:
        found.leave_out(f"plugins ({plugins}): ranks find each other through Hajob's coordinator")
    if spec.get("policies"):
        found.leave_out("policies: Hajob answers each fault with the smallest action that works")
    if spec.get("maxRetry") is not None:
        found.leave_out(f"maxRetry: {spec['maxRetry']}: see spec.recovery.actions and spec.recovery.maxProgramFailures")
    groups = (
        PodGroup(
            text(task.get("name")), _whole_number_or(task.get("replicas"), 1), _template_of_role(task.get("template"))
        )
        for task in map(mapping, items(spec.get("tasks")))
    )
    ttl = spec.get("ttlSecondsAfterFinished")
    fields = {"ttlSecondsAfterFinished": ttl} if isinstance(ttl, int) else {}
    return _build_foreign_job(body, groups, queue=text(spec.get("queue")), fields=fields)


def _read_job_set(body: Object, _others: list[Json], found: Findings) -> ForeignJob:
    spec = mapping(body.get("spec"))
    for name in ("failurePolicy", "successPolicy", "startupPolicy", "network", "coordinator"):
        if spec.get(name):
            found.leave_out(f"{name}: Hajob starts, connects and restarts the pods of a job itself")
    ttl = spec.get("ttlSecondsAfterFinished")
    return _build_foreign_job(
        body,
        _groups_of_job_set(items(spec.get("replicatedJobs"))),
        suspend=spec.get("suspend") is True,
        fields={"ttlSecondsAfterFinished": ttl} if isinstance(ttl, int) else {},
    )


def _groups_of_job_set(replicated: Iterable[Any]) -> Iterator[PodGroup]:
    for one in map(mapping, replicated):
        job = mapping(mapping(one.get("template")).get("spec"))
        # An indexed Job of JobSet runs as many pods at once as it has completions.
        pods = _whole_number_or(job.get("completions"), _whole_number_or(job.get("parallelism"), 1))
        yield PodGroup(
            text(one.get("name")),
            _whole_number_or(one.get("replicas"), 1) * pods,
            _template_of_role(job.get("template")),
        )


def _read_train_job(body: Object, others: list[Json], found: Findings) -> ForeignJob:
    spec = mapping(body.get("spec"))
    trainer, runtime = mapping(spec.get("trainer")), text(mapping(spec.get("runtimeRef")).get("name"))
    group = _group_of_runtime(runtime, others)
    if group is None:
        found.ask_person(
            f"spec.template: the runtime {runtime or '(none named)'} is not in this file, so what it adds to the pods "
            "is missing: give its TrainingRuntime in the same file, or write image, command and volumes"
        )
    if spec.get("initializer"):
        found.leave_out("initializer: load data and model onto the volume before, or by an initContainer")
    template = group.template if group is not None else {"metadata": {}, "spec": {"containers": []}}
    count = _whole_number_or(trainer.get("numNodes"), group.count if group is not None else 1)
    # Patches come last: they are written for the pods as the trainer has made them.
    _put_trainer(template, trainer)
    for patch in _runtime_patches(spec):
        _merge_into_template(template, patch)
    # The runtime is made for Volcano, so the queue stands in a label that its webhook reads.
    queue = mapping(mapping(body.get("metadata")).get("labels")).get("volcano.sh/queue-name")
    return _build_foreign_job(
        body,
        [PodGroup("trainer", count, template)],
        queue=text(queue),
        chips=_whole_number_or(trainer.get("numProcPerNode"), 0),
        suspend=spec.get("suspend") is True,
    )


def _group_of_runtime(name: str, others: list[Json]) -> PodGroup | None:
    for body in others:
        metadata = mapping(body.get("metadata"))
        if body.get("kind") not in {"TrainingRuntime", "ClusterTrainingRuntime"} or metadata.get("name") != name:
            continue
        spec = mapping(body.get("spec"))
        jobs = items(mapping(mapping(spec.get("template")).get("spec")).get("replicatedJobs"))
        groups = list(_groups_of_job_set(jobs))
        found = next((group for group in groups if group.name in {_TRAINER_JOB, "trainer"}), None)
        nodes = _whole_number_or(mapping(spec.get("mlPolicy")).get("numNodes"), 1)
        return PodGroup(_TRAINER_JOB, nodes, found.template) if found is not None else None
    return None


def _put_trainer(template: Json, trainer: Object) -> None:
    """Put a TrainJob's own words into the container that trains."""
    containers = template["spec"].setdefault("containers", [])
    container = next((one for one in containers if mapping(one).get("name") == _TRAINER_JOB), None)
    if container is None:
        container = containers[0] if containers else {"name": _TRAINER_JOB}
        if not containers:
            containers.append(container)
    container |= {name: trainer[name] for name in ("image", "command", "args") if trainer.get(name)}
    if trainer.get("resourcesPerNode"):
        container["resources"] = trainer["resourcesPerNode"]
    named = {text(mapping(one).get("name")) for one in items(trainer.get("env"))}
    kept = [one for one in items(container.get("env")) if text(mapping(one).get("name")) not in named]
    if env := [*kept, *items(trainer.get("env"))]:
        container["env"] = env


def _runtime_patches(spec: Object) -> Iterator[Json]:
    """Yield what users, queues and admission have patched into the pods, in either form of the API."""
    for patch in map(mapping, items(spec.get("runtimePatches"))):
        whole = mapping(mapping(patch.get("trainingRuntimeSpec")).get("template"))
        for job in map(mapping, items(mapping(whole.get("spec")).get("replicatedJobs"))):
            if job.get("name") in {_TRAINER_JOB, "trainer"}:
                yield _template_of_role(mapping(mapping(job.get("template")).get("spec")).get("template"))
    for name in ("podTemplateOverrides", "podSpecOverrides"):
        for override in map(mapping, items(spec.get(name))):
            yield {"metadata": dict(mapping(override.get("metadata"))), "spec": dict(mapping(override.get("spec")))}


def _merge_into_template(template: Json, patch: Json) -> None:
    for name, value in patch["metadata"].items():
        both = {**mapping(template["metadata"].get(name)), **value} if isinstance(value, dict) else value
        template["metadata"][name] = both
    for name, value in patch["spec"].items():
        if name != "containers":
            template["spec"][name] = value


def _read_replicas(body: Object, _others: list[Json], _found: Findings) -> ForeignJob:
    """Read a plain workload, as some samples of MindCluster are; where its pods ask for no chips it is no training."""
    spec = mapping(body.get("spec"))
    count = _whole_number_or(
        spec.get("replicas"), _whole_number_or(spec.get("completions"), _whole_number_or(spec.get("parallelism"), 1))
    )
    group = PodGroup("pods", count, _template_of_role(spec.get("template")))
    return _build_foreign_job(body, [group] if chips_of_pod(group.template["spec"])[1] else [])


READERS: Final[dict[tuple[str, str], Callable[[Object, list[Json], Findings], ForeignJob]]] = {
    ("mindxdl.gitee.com", "AscendJob"): _read_ascend_job,
    ("batch.volcano.sh", "Job"): _read_volcano_job,
    ("kubeflow.org", "PyTorchJob"): _read_pytorch_job,
    ("kubeflow.org", "MPIJob"): _read_mpi_job,
    ("trainer.kubeflow.org", "TrainJob"): _read_train_job,
    ("jobset.x-k8s.io", "JobSet"): _read_job_set,
    ("apps", "Deployment"): _read_replicas,
    ("apps", "StatefulSet"): _read_replicas,
    ("batch", "Job"): _read_replicas,
}
