"""What `kubectl hajob doctor` concludes about schedulers: the device plugin's mode, Volcano, and jobs that fit neither.

In its Volcano mode (`-volcanoType=true`) MindCluster's device plugin serves pods of other schedulers with all chips of
a node or none (docs/admin/schedulers.md). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.derived import CHIPS_PER_NODE
from hajob.api.enums import GangPolicy
from hajob.cli.diagnosis import Finding, Grade, title_of_job
from hajob.cli.workloads import containers_of_workload, is_switched_on, place_of_object
from hajob.domain.text import first_of_list
from hajob.sources.device_plugin import volcano_mode_of_plugin
from hajob.sources.node import node_view_of
from hajob.sources.pod_group import queue_view_of
from hajob.sources.reading import mapping, parse_whole_number, text

_SERVED: Final = "HAJOB_VOLCANO_ENABLED"
_PAGE: Final = "docs/admin/schedulers.md"


@dataclass(slots=True)
class Schedulers:
    """What was gathered of schedulers, raw.

    Attributes:
        daemon_sets: where the device plugin may be.
        queues: of Volcano; None where the cluster does not have this kind.
        operator: its Deployment; None where it is not there.
    """

    daemon_sets: list[Json] = field(default_factory=list)
    queues: list[Json] | None = None
    operator: Json | None = None


def plugin_is_in_volcano_mode(daemon_sets: Iterable[Json]) -> tuple[str, bool] | None:
    """Return place and name of the device plugin's DaemonSet, and whether it is in Volcano mode; None without one."""
    for one in daemon_sets:
        for mode in map(volcano_mode_of_plugin, containers_of_workload(one)):
            if mode is not None:
                return place_of_object(one), mode
    return None


def findings_of_schedulers(gathered: Schedulers, jobs: Sequence[Json], nodes: Iterable[Json] = ()) -> Iterator[Finding]:
    """Yield which mode the device plugin is in, whether Volcano is there and served, and the jobs that fit neither."""
    plugin = plugin_is_in_volcano_mode(gathered.daemon_sets)
    in_volcano_mode = plugin is not None and plugin[1]
    if plugin is not None:
        mode = (
            "in Volcano mode: pods of Volcano get their chips from it; those of other schedulers get whole nodes only"
            if in_volcano_mode
            else "not in Volcano mode: it serves pods of every scheduler, and chooses their chips itself"
        )
        yield Finding(Grade.FINE, "device plugin", f"{plugin[0]} is {mode}")
    served = is_switched_on(gathered.operator, _SERVED)
    if gathered.queues is not None:
        told = "and this operator serves jobs of it" if served else "and this operator does not serve jobs of it"
        grade = Grade.FINE if served or gathered.operator is None else Grade.NOTE
        do = f"set volcano.enabled in the chart for gangPolicy: Volcano ({_PAGE})"
        yield Finding(grade, "Volcano", f"is installed, with {len(gathered.queues)} queues, {told}", do)
    for job in jobs:
        yield from _findings_of_job(job, gathered, in_volcano_mode=in_volcano_mode)
    if any("superPodChips" in mapping(mapping(job.get("spec")).get("accelerator")) for job in jobs):
        yield from _findings_of_super_pods(nodes)


def _findings_of_super_pods(nodes: Iterable[Json]) -> Iterator[Finding]:
    """Yield which nodes with chips do not say in which super pod they are, where a job asks for blocks."""
    views = [node_view_of(raw) for raw in nodes]
    without = sorted(one.name for one in views if one.all_chips and names.LABEL_NODE_SUPER_POD not in one.labels)
    if without:
        shown = first_of_list(without, 3)
        yield Finding(
            Grade.NOTE,
            "super pods",
            f"{len(without)} nodes with chips have no label {names.LABEL_NODE_SUPER_POD} ({shown}): "
            "jobs with superPodChips put no replacement there",
            f"the device plugin writes it on A3 nodes; see its log ({_PAGE})",
        )


def _findings_of_job(job: Json, gathered: Schedulers, *, in_volcano_mode: bool) -> Iterator[Finding]:
    spec = mapping(job.get("spec"))
    scheduling, accelerator = mapping(spec.get("scheduling")), mapping(spec.get("accelerator"))
    title = title_of_job(job)
    if scheduling.get("gangPolicy") != GangPolicy.VOLCANO:
        whole = next((chips for product, chips in CHIPS_PER_NODE.items() if product == accelerator.get("product")), 0)
        chips = parse_whole_number(accelerator.get("chipsPerNode")) or whole
        if in_volcano_mode and chips < whole:
            yield Finding(
                Grade.PROBLEM,
                title,
                f"wants {chips} of {whole} chips of a node by another scheduler than Volcano: the device plugin "
                "refuses its pods (not get valid pod)",
                f"set spec.scheduling.gangPolicy: Volcano, or ask for all chips of a node ({_PAGE})",
            )
        return
    if gathered.queues is None:
        yield Finding(
            Grade.PROBLEM,
            title,
            "has gangPolicy: Volcano, and the cluster has no Volcano",
            "install Volcano, or leave spec.scheduling.gangPolicy out",
        )
        return
    queue = text(scheduling.get("queueName")) or names.VOLCANO_DEFAULT_QUEUE
    views = {view.name: view for view in map(queue_view_of, gathered.queues)}
    if queue not in views or not views[queue].is_open:
        why = "is closed" if queue in views else "does not exist"
        yield Finding(
            Grade.PROBLEM,
            title,
            f"its queue {queue} of Volcano {why}, of which Volcano says nothing",
            "create or open the queue, or name another one in spec.scheduling.queueName",
        )
