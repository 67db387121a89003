"""Which components of MindCluster a cluster runs, and what follows for jobs of Hajob; pure, for `kubectl hajob doctor`.

They are known by their programs and images, which stay the same where an admin changes names and namespaces.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hajob.api.base import Json
from hajob.cli.diagnosis import Finding, Grade
from hajob.cli.workloads import containers_of_workload, place_of_object
from hajob.domain.text import counted_noun, first_of_list
from hajob.sources.device_plugin import command_line_of
from hajob.sources.reading import mapping, name_of_object, text

ABOUT: Final = "beside"
_VOLCANO: Final = "volcano"


@dataclass(frozen=True, slots=True)
class Component:
    """One component: how it is known, and what it is to Hajob's jobs.

    Attributes:
        name: in the documentation.
        words: names of its images and programs.
        grade: of the finding.
        message: what it is to Hajob's jobs.
        do: what to do about it.
        absence: what follows where it is not there; empty: nothing.
    """

    name: str
    words: frozenset[str]
    grade: Grade
    message: str
    do: str = ""
    absence: str = ""


COMPONENTS: Final = (
    Component(
        "device plugin",
        frozenset({"ascend-k8sdeviceplugin", "ascend-device-plugin", "device-plugin"}),
        Grade.FINE,
        "needed: it offers the chips and tells of their faults",
    ),
    Component(
        "NodeD",
        frozenset({"noded"}),
        Grade.FINE,
        "may run: it tells of faults of a node's own hardware",
        absence="faults of a node's own hardware (CPU, memory, disks, fans) are not known",
    ),
    Component(
        "ClusterD",
        frozenset({"clusterd"}),
        Grade.FINE,
        "redundant for Hajob's jobs: it repeats what device plugins and NodeD say, and each fault counts once",
    ),
    Component(
        "Ascend Operator",
        frozenset({"ascend-operator"}),
        Grade.FINE,
        "redundant for Hajob's jobs: it looks after AscendJobs, whose nodes and chips Hajob counts as taken",
    ),
    Component(
        "Infer Operator",
        frozenset({"infer-operator"}),
        Grade.FINE,
        "may run: it looks after inference, whose chips Hajob counts as taken",
    ),
    Component("NPU exporter", frozenset({"npu-exporter"}), Grade.FINE, "may run: Hajob reads nothing of it"),
    Component(
        "Resilience Controller",
        frozenset({"resilience-controller"}),
        Grade.NOTE,
        "must keep off: it deletes and restarts jobs of Volcano by rules of its own, and does nothing for Hajob's",
        "run no job of Hajob with scheduling.gangPolicy: Volcano where it runs",
    ),
    Component(
        "DRA driver",
        frozenset({"ascend-dra", "ascend-dra-driver"}),
        Grade.NOTE,
        "must keep off nodes of Hajob's jobs: it offers chips as claims, and the jobs ask for an extended resource",
        "keep the device plugin on the nodes where Hajob's jobs run",
    ),
)
_SCHEDULER: Final = frozenset({"vc-scheduler"})
_SCHEDULER_NAME: Final = "Volcano's scheduler"


def findings_of_components(workloads: Iterable[Json], jobs: Sequence[Json]) -> Iterator[Finding]:
    """Yield what each component is to Hajob's jobs.

    Args:
        workloads: Deployments and DaemonSets of all namespaces.
        jobs: HATrainingJobs.
    """
    listed = [(place_of_object(raw), words_of_workload(raw)) for raw in workloads]
    for component in COMPONENTS:
        there = [place for place, words in listed if words & component.words]
        if there:
            message = f"{component.name} ({first_of_list(there)}) {component.message}"
            yield Finding(component.grade, ABOUT, message, component.do)
        elif component.absence:
            yield Finding(
                Grade.NOTE, ABOUT, f"{component.name} was not found: {component.absence}", "docs/admin/admin.md#beside"
            )
    schedulers = [place for place, words in listed if words & _SCHEDULER]
    if schedulers:
        yield _finding_of_volcano(schedulers, jobs)
    yield from _findings_of_taskd(jobs)


def words_of_workload(raw: Json) -> frozenset[str]:
    """Return the names of a workload's images and programs, without directories and versions."""
    found: set[str] = set()
    for container in containers_of_workload(raw):
        found.add(text(container.get("image")).partition("@")[0].rpartition("/")[2].partition(":")[0])
        spoken = command_line_of(container).split()
        found |= {word.rpartition("/")[2] for word in spoken if not word.startswith("-")}
    return frozenset(found - {""})


def _uses_volcano(job: Json) -> bool:
    spec = mapping(job.get("spec"))
    pod = mapping(mapping(spec.get("template")).get("spec"))
    gang = text(mapping(spec.get("scheduling")).get("gangPolicy"))
    return gang.casefold() == _VOLCANO or text(pod.get("schedulerName")) == _VOLCANO


def _finding_of_volcano(schedulers: list[str], jobs: Sequence[Json]) -> Finding:
    others = [name_of_object(job) for job in jobs if not _uses_volcano(job)]
    said = f"{_SCHEDULER_NAME} ({first_of_list(schedulers)}) may run"
    if not others:
        return Finding(Grade.FINE, ABOUT, f"{said}: no job of Hajob has another scheduler")
    some = counted_noun(len(others), "job")
    message = f"{said}; with another scheduler: {some} of Hajob, and both count the same chips as free"
    do = "give them node pools of their own, or set scheduling.gangPolicy: Volcano (docs/admin/admin.md#beside)"
    return Finding(Grade.NOTE, ABOUT, message, do)


def _findings_of_taskd(jobs: Sequence[Json]) -> Iterator[Finding]:
    """Jobs that start TaskD beside Hajob's launcher: two MindIO controllers, and neither knows of the other."""
    for job in jobs:
        spec = mapping(job.get("spec"))
        if text(spec.get("launcher")) == "TaskD" or "taskd" not in json.dumps(spec.get("template")).casefold():
            continue
        name = place_of_object(job)
        message = f"job {name} names TaskD in its template: TaskD's manager must keep off where Hajob's launcher starts"
        do = "leave TaskD out of the start script, or set launcher: TaskD"
        yield Finding(Grade.NOTE, ABOUT, message, do)
