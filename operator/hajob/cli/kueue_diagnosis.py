"""What `kubectl hajob doctor` concludes about Kueue: what of its configuration and queues would break a job. Pure.

Kueue counts a job by the Workload that Hajob makes, and needs to know nothing of HATrainingJobs. What breaks jobs is
what it does to their pods by itself, and queues that can never admit them (docs/admin/schedulers.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.cli.diagnosis import Finding, Grade, title_of_job
from hajob.cli.workloads import is_switched_on
from hajob.sources.reading import items, mapping, name_of_object, text

CONFIGURATION: Final = "/api/v1/namespaces/kueue-system/configmaps/kueue-manager-config"
_KEY: Final = "controller_manager_config.yaml"
_KNOWN_OWNER: Final = f"{names.KIND}.{names.VERSION}.{names.GROUP}"
_GATE: Final = f"{names.KUEUE_GROUP}/admission"
_SERVED: Final = "HAJOB_KUEUE_ENABLED"
_PAGE: Final = "docs/admin/schedulers.md"
_COMPUTE: Final = ("cpu", "memory")
"""What agents and coordinator ask for, whatever the template says."""


@dataclass(slots=True)
class KueueObjects:
    """What was gathered of Kueue, raw.

    Attributes:
        local_queues: None where the cluster does not have this kind.
        cluster_queues: of the cluster.
        flavors: of the cluster.
        configuration: ConfigMap of the manager; None where it is not there, or may not be read.
    """

    local_queues: list[Json] | None = None
    cluster_queues: list[Json] = field(default_factory=list)
    flavors: list[Json] = field(default_factory=list)
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
    queued = [job for job in jobs if _queue_of_job(job)]
    if gathered.local_queues is None:
        for job in queued:
            told = f"has the label {names.LABEL_QUEUE}, and the cluster has no Kueue: it is never started"
            yield Finding(Grade.PROBLEM, title_of_job(job), told, "install Kueue, or take the label off")
        return
    serves = is_switched_on(operator, _SERVED)
    told = "and this operator serves jobs of it" if serves else "and this operator does not serve jobs of it"
    grade = Grade.FINE if serves or operator is None else Grade.NOTE
    do = f"set kueue.enabled in the chart for jobs with the label {names.LABEL_QUEUE} ({_PAGE})"
    yield Finding(grade, "Kueue", f"is installed, with {len(gathered.local_queues)} LocalQueues, {told}", do)
    configuration = _parse_configuration(gathered.configuration)
    yield from _findings_of_configuration(configuration, queued)
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
    f"add {_KNOWN_OWNER} to integrations.externalFrameworks of Kueue's configuration, with rights to read them, or "
    f"take pod out of integrations.frameworks ({_PAGE})"
)


def _queue_of_job(job: Json) -> str:
    return text(mapping(mapping(job.get("metadata")).get("labels")).get(names.LABEL_QUEUE))


def _parse_configuration(config_map: Json | None) -> Mapping[str, Any] | None:
    """Return the manager's configuration; None where it is not known."""
    written = mapping(mapping(config_map).get("data")).get(_KEY)
    if not isinstance(written, str):
        return None
    try:
        return mapping(yaml.safe_load(written))
    except yaml.YAMLError:
        return None


def _findings_of_configuration(configuration: Mapping[str, Any] | None, queued: Sequence[Json]) -> Iterator[Finding]:
    ready = mapping(mapping(configuration).get("waitForPodsReady"))
    # Older configurations have the switch, newer ones the time alone.
    if queued and ready and ready.get("enable") is not False:
        told = f"waitForPodsReady evicts a job whose pods do not all run within {ready.get('timeout', '5m')}"
        yield Finding(
            Grade.NOTE,
            "Kueue",
            told,
            "make its timeout longer than your largest image takes to be pulled on every node",
        )


def _takes_pods(configuration: Mapping[str, Any] | None) -> bool:
    """Whether Kueue takes pods of HATrainingJobs in a namespace with a LocalQueue `default`, as far as is known."""
    integrations = mapping(mapping(configuration).get("integrations"))
    frameworks = integrations.get("frameworks")
    # Since 0.16 the integration is on where nothing is said.
    takes = frameworks is None or "pod" in list(items(frameworks))
    return takes and _KNOWN_OWNER not in list(items(integrations.get("externalFrameworks")))


def _findings_of_queues(
    job: Json, gathered: KueueObjects, configuration: Mapping[str, Any] | None
) -> Iterator[Finding]:
    title, wanted = title_of_job(job), _queue_of_job(job)
    namespace = text(mapping(job.get("metadata")).get("namespace"))
    here = {
        name_of_object(one): one
        for one in gathered.local_queues or ()
        if text(mapping(one.get("metadata")).get("namespace")) == namespace
    }
    if "default" in here and _takes_pods(configuration):
        told = (
            "its namespace has a LocalQueue named default, and Kueue does not know HATrainingJobs: it takes every pod "
            "for a job of its own, and holds it"
        )
        grade = Grade.PROBLEM if configuration is not None else Grade.UNKNOWN
        yield Finding(grade, title, told, _LET_KUEUE_KNOW)
    if wanted not in here:
        told = f"there is no LocalQueue {wanted} in {namespace}"
        yield Finding(Grade.PROBLEM, title, told, f"create it, or name another one in the label {names.LABEL_QUEUE}")
        return
    name = text(mapping(here[wanted].get("spec")).get("clusterQueue"))
    queue = next((one for one in gathered.cluster_queues if name_of_object(one) == name), None)
    if queue is None:
        yield Finding(
            Grade.PROBLEM, title, f"its queue leads to ClusterQueue {name}, which does not exist", "create it"
        )
        return
    yield from _findings_of_cluster_queue(title, queue, gathered.flavors, configuration)


def _findings_of_cluster_queue(
    title: str, queue: Json, flavors: Iterable[Json], configuration: Mapping[str, Any] | None
) -> Iterator[Finding]:
    name, spec = name_of_object(queue), mapping(queue.get("spec"))
    if (policy := text(spec.get("stopPolicy")) or "None") != "None":
        told = f"its ClusterQueue {name} is stopped ({policy}): no job of it is admitted"
        yield Finding(Grade.PROBLEM, title, told, "set its spec.stopPolicy to None")
    groups = [mapping(one) for one in items(spec.get("resourceGroups"))]
    covered = {text(each) for one in groups for each in items(one.get("coveredResources"))}
    resources = mapping(mapping(configuration).get("resources"))
    excluded = tuple(map(text, items(resources.get("excludeResourcePrefixes"))))
    left_out = [one for one in _COMPUTE if one not in covered and not (excluded and one.startswith(excluded))]
    if left_out and resources.get("quotaCheckStrategy") != "IgnoreUndeclared":
        told = f"its ClusterQueue {name} does not cover {' and '.join(left_out)}, which agents and coordinator ask for"
        do = f"cover them, or set resources.excludeResourcePrefixes in Kueue's configuration ({_PAGE})"
        grade = Grade.PROBLEM if configuration is not None else Grade.UNKNOWN
        yield Finding(grade, title, told, do)
    used = {text(mapping(each).get("name")) for one in groups for each in items(one.get("flavors"))}
    for flavor in flavors:
        topology = text(mapping(flavor.get("spec")).get("topologyName"))
        if name_of_object(flavor) in used and topology:
            told = f"its flavor {name_of_object(flavor)} has topologyName {topology}: Kueue and Hajob both choose nodes"
            yield Finding(Grade.PROBLEM, title, told, "use a flavor without topologyName")
