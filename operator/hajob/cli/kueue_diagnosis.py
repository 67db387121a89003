"""What `kubectl hajob doctor` concludes about Kueue: what of its configuration and queues would break a job. Pure.

Kueue counts a job by the Workload that Hajob makes, and needs to know nothing of HATrainingJobs. What breaks jobs is
what it does to their pods by itself, and queues that can never admit them (docs/admin/schedulers.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.cli.diagnosis import Finding, Grade, title_of_job
from hajob.cli.kueue_configuration import KNOWN_OWNER, KueueConfiguration, labels_of_namespace, matches_selector
from hajob.cli.workloads import is_switched_on
from hajob.domain.text import counted_noun
from hajob.sources.reading import items, mapping, name_of_object, text

CONFIGURATION: Final = "/api/v1/namespaces/kueue-system/configmaps/kueue-manager-config"
_GATE: Final = f"{names.KUEUE_GROUP}/admission"
_SERVED: Final = "HAJOB_KUEUE_ENABLED"
_PAGE: Final = "docs/admin/schedulers.md"
_COMPUTE: Final = frozenset({"cpu", "memory"})
"""What agents and coordinator ask for, whatever the template says."""
_OTHER_CLUSTERS: Final = "kueue.x-k8s.io/multikueue"
_WEBHOOKS: Final = ".kb.io"


@dataclass(slots=True)
class KueueObjects:
    """What was gathered of Kueue, raw.

    Attributes:
        local_queues: None where the cluster does not have this kind.
        is_old: Kueue is there, in a version that does not serve what Hajob asks for.
        cluster_queues: of the cluster.
        flavors: of the cluster.
        checks: AdmissionChecks of the cluster.
        namespaces: of the cluster.
        configuration: ConfigMap of the manager; None where it is not there, or may not be read.
    """

    local_queues: list[Json] | None = None
    is_old: bool = False
    cluster_queues: list[Json] = field(default_factory=list)
    flavors: list[Json] = field(default_factory=list)
    checks: list[Json] = field(default_factory=list)
    namespaces: list[Json] = field(default_factory=list)
    configuration: Json | None = None


def findings_of_kueue(
    gathered: KueueObjects, operator: Mapping[str, Any] | None, jobs: Iterable[Json], pods: Iterable[Json] = ()
) -> Iterator[Finding]:
    """Yield whether Kueue is there and served, and what of it breaks jobs.

    Args:
        gathered: of Kueue.
        operator: its Deployment; None where it is not there.
        jobs: that are looked at.
        pods: of a job that is looked at.
    """
    looked_at = list(jobs)
    queued = [job for job in looked_at if _queue_of_job(job)]
    if gathered.local_queues is None:
        yield from _findings_without_kueue(gathered, queued)
        return
    serves = is_switched_on(operator, _SERVED)
    told = "and this operator serves jobs of it" if serves else "and this operator does not serve jobs of it"
    grade = Grade.FINE if serves or operator is None else Grade.NOTE
    do = f"set kueue.enabled in the chart for jobs with the label {names.LABEL_QUEUE} ({_PAGE})"
    yield Finding(
        grade, "Kueue", f"is installed, with {counted_noun(len(gathered.local_queues), 'LocalQueue')}, {told}", do
    )
    configuration = KueueConfiguration.of_config_map(gathered.configuration)
    if queued and (late := configuration.words_on_pods_ready):
        do_late = "make its timeout longer than your largest image takes to be pulled on every node"
        yield Finding(Grade.NOTE, "Kueue", late, do_late)
    if queued and configuration.blocks_admission:
        told = "waitForPodsReady.blockAdmission: nobody else is admitted while the pods of an admitted job start"
        yield Finding(Grade.NOTE, "Kueue", told, "leave it off where images take long to be pulled")
    for job in looked_at:
        yield from _findings_of_pods(job, gathered, configuration)
    for job in queued:
        if operator is not None and not serves:
            told = f"has the label {names.LABEL_QUEUE}, and this operator does not serve Kueue: it is never started"
            yield Finding(Grade.PROBLEM, title_of_job(job), told, do)
        yield from _findings_of_queues(job, gathered, configuration)
    for pod in pods:
        gates = [mapping(one).get("name") for one in items(mapping(pod.get("spec")).get("schedulingGates"))]
        if _GATE in gates:
            told = f"has the gate {_GATE}: Kueue has taken it for a job of its own, and holds it"
            yield Finding(Grade.PROBLEM, f"pod {name_of_object(pod)}", told, _LET_KUEUE_KNOW)


_LET_KUEUE_KNOW: Final = (
    f"add {KNOWN_OWNER} to integrations.externalFrameworks of Kueue's configuration, with rights to read them, or "
    f"take pod out of integrations.frameworks ({_PAGE})"
)


def _findings_without_kueue(gathered: KueueObjects, queued: Iterable[Json]) -> Iterator[Finding]:
    for job in queued:
        told = f"has the label {names.LABEL_QUEUE}, and the cluster has no Kueue: it is never started"
        do = "install Kueue, or take the label off"
        if gathered.is_old:
            told = f"has the label {names.LABEL_QUEUE}, and this Kueue does not serve {names.KUEUE_API_VERSION}"
            do = "install Kueue 0.15 or later"
        yield Finding(Grade.PROBLEM, title_of_job(job), told, do)


def _queue_of_job(job: Json) -> str:
    return text(mapping(mapping(job.get("metadata")).get("labels")).get(names.LABEL_QUEUE))


def _namespace_of_job(job: Json) -> str:
    return text(mapping(job.get("metadata")).get("namespace"))


def _namespace_object(gathered: KueueObjects, name: str) -> Json:
    """Return a namespace as it is; one that was not read has its name alone."""
    return next((one for one in gathered.namespaces if name_of_object(one) == name), {"metadata": {"name": name}})


def _local_queues_of(gathered: KueueObjects, namespace: str) -> dict[str, Json]:
    return {
        name_of_object(one): one
        for one in gathered.local_queues or ()
        if text(mapping(one.get("metadata")).get("namespace")) == namespace
    }


def _findings_of_pods(job: Json, gathered: KueueObjects, configuration: KueueConfiguration) -> Iterator[Finding]:
    """Yield what Kueue's webhook for pods does to those of a job, whether it is in a queue or not."""
    title, namespace, queued = title_of_job(job), _namespace_of_job(job), bool(_queue_of_job(job))
    has_default = "default" in _local_queues_of(gathered, namespace)
    raw = _namespace_object(gathered, namespace)
    if configuration.takes_pods(raw, queued=queued, has_default=has_default):
        do = _LET_KUEUE_KNOW
        told = (
            "Kueue's configuration has manageJobsWithoutQueueName, and does not name HATrainingJobs: it takes every "
            "pod for a job of its own, and holds it"
        )
        if has_default and configuration.knows_jobs:
            do = f"put the label {names.LABEL_QUEUE}: default on the job"
            told = (
                "its namespace has a LocalQueue named default, and the job names no queue: Kueue takes every pod for a "
                "job of its own, and holds it"
            )
        elif has_default:
            told = (
                "its namespace has a LocalQueue named default, and Kueue does not know HATrainingJobs: it takes every "
                "pod for a job of its own, and holds it"
            )
        yield Finding(Grade.PROBLEM if configuration.is_known else Grade.UNKNOWN, title, told, do)
    for one in map(mapping, items(mapping(job.get("status")).get("conditions"))):
        # Rights of Kueue's manager cannot be asked for by everybody; what they lead to stands in the job's status.
        if one.get("type") == "Scheduled" and one.get("status") == "False" and _WEBHOOKS in text(one.get("message")):
            told = f"its pods are refused by a webhook: {text(one.get('message'))}"
            do = "look whether Kueue's manager runs"
            if configuration.knows_jobs:
                do = f"look whether Kueue's manager runs, and may get and list {names.PLURAL} of {names.GROUP}"
            yield Finding(Grade.PROBLEM, title, told, do)


def _findings_of_queues(job: Json, gathered: KueueObjects, configuration: KueueConfiguration) -> Iterator[Finding]:
    title, wanted, namespace = title_of_job(job), _queue_of_job(job), _namespace_of_job(job)
    here = _local_queues_of(gathered, namespace)
    if wanted not in here:
        told = f"there is no LocalQueue {wanted} in {namespace}"
        yield Finding(Grade.PROBLEM, title, told, f"create it, or name another one in the label {names.LABEL_QUEUE}")
        return
    if (policy := _stop_policy_of(here[wanted])) != "None":
        told = f"its LocalQueue {wanted} is stopped ({policy}): no job of it is admitted"
        yield Finding(Grade.PROBLEM, title, told, "set its spec.stopPolicy to None")
    name = text(mapping(here[wanted].get("spec")).get("clusterQueue"))
    queue = next((one for one in gathered.cluster_queues if name_of_object(one) == name), None)
    if queue is None:
        yield Finding(
            Grade.PROBLEM, title, f"its queue leads to ClusterQueue {name}, which does not exist", "create it"
        )
        return
    yield from _findings_of_stops(title, queue, _namespace_object(gathered, namespace))
    yield from _findings_of_resources(job, queue, configuration)
    yield from _findings_of_flavors(title, queue, gathered)


def _stop_policy_of(queue: Json) -> str:
    return text(mapping(queue.get("spec")).get("stopPolicy")) or "None"


def _findings_of_stops(title: str, queue: Json, namespace: Json) -> Iterator[Finding]:
    """Yield why a ClusterQueue admits no job of a namespace, whatever it asks for."""
    name, spec = name_of_object(queue), mapping(queue.get("spec"))
    active = [mapping(one) for one in items(mapping(queue.get("status")).get("conditions"))]
    inactive = [one for one in active if one.get("type") == "Active" and one.get("status") == "False"]
    if (policy := _stop_policy_of(queue)) != "None":
        told = f"its ClusterQueue {name} is stopped ({policy}): no job of it is admitted"
        yield Finding(Grade.PROBLEM, title, told, "set its spec.stopPolicy to None")
    # Kueue itself says what is missing: a flavor, a check, its controller.
    elif inactive:
        told = f"its ClusterQueue {name} is not active, and admits nobody: {text(inactive[0].get('message'))}"
        yield Finding(Grade.PROBLEM, title, told, f"kubectl describe clusterqueue {name}")
    selector = spec.get("namespaceSelector")
    # A missing selector chooses nothing, an empty one everything.
    if selector is None or not matches_selector(selector, labels_of_namespace(namespace)):
        told = f"its ClusterQueue {name} does not serve namespace {name_of_object(namespace)} (namespaceSelector)"
        yield Finding(
            Grade.PROBLEM,
            title,
            told,
            "let its namespaceSelector choose the namespace; an empty one chooses all of them",
        )


def _findings_of_resources(job: Json, queue: Json, configuration: KueueConfiguration) -> Iterator[Finding]:
    title, name = title_of_job(job), name_of_object(queue)
    groups = [mapping(one) for one in items(mapping(queue.get("spec")).get("resourceGroups"))]
    covered = {text(each) for one in groups for each in items(one.get("coveredResources"))}
    named = text(mapping(mapping(job.get("spec")).get("accelerator")).get("resourceName"))
    chips = named or names.DEFAULT_RESOURCE_NAME
    counted = configuration.counted_resources({*_COMPUTE, chips, *_resources_of_template(job)})
    grade = Grade.PROBLEM if configuration.is_known else Grade.UNKNOWN
    if (left_out := sorted(counted - covered)) and not configuration.ignores_undeclared:
        told = f"its ClusterQueue {name} does not cover {' and '.join(left_out)}, which pods of the job ask for"
        do = f"cover them, or set resources.excludeResourcePrefixes in Kueue's configuration ({_PAGE})"
        yield Finding(grade, title, told, do)
    if not configuration.counted_resources({chips}):
        told = f"Kueue does not count {chips} (resources.excludeResourcePrefixes): every job of any size is admitted"
        yield Finding(Grade.NOTE, title, told, "take the prefix out, and cover the chips in the ClusterQueue")


def _resources_of_template(job: Json) -> Iterator[str]:
    """Yield the resources that the containers of the template name."""
    pod = mapping(mapping(mapping(job.get("spec")).get("template")).get("spec"))
    for part in ("containers", "initContainers"):
        for one in map(mapping, items(pod.get(part))):
            resources = mapping(one.get("resources"))
            yield from map(str, (*mapping(resources.get("requests")), *mapping(resources.get("limits"))))


def _findings_of_flavors(title: str, queue: Json, gathered: KueueObjects) -> Iterator[Finding]:
    """Yield what of a queue's flavors and admission checks does not go with Hajob."""
    name, spec = name_of_object(queue), mapping(queue.get("spec"))
    groups = [mapping(one) for one in items(spec.get("resourceGroups"))]
    used = {text(mapping(each).get("name")) for one in groups for each in items(one.get("flavors"))}
    for flavor in gathered.flavors:
        topology = text(mapping(flavor.get("spec")).get("topologyName"))
        if name_of_object(flavor) in used and topology:
            told = f"its flavor {name_of_object(flavor)} has topologyName {topology}: Kueue and Hajob both choose nodes"
            yield Finding(Grade.PROBLEM, title, told, "use a flavor without topologyName")
    strategy = mapping(spec.get("admissionChecksStrategy"))
    asked = {text(mapping(one).get("name")) for one in items(strategy.get("admissionChecks"))}
    for check in gathered.checks:
        controller = text(mapping(check.get("spec")).get("controllerName"))
        if name_of_object(check) in asked and controller == _OTHER_CLUSTERS:
            told = (
                f"its ClusterQueue {name} sends jobs to other clusters (AdmissionCheck {name_of_object(check)}); a "
                "HATrainingJob runs in its own, and is never admitted"
            )
            yield Finding(Grade.PROBLEM, title, told, "use a ClusterQueue without MultiKueue")
