"""What `kubectl hajob doctor` concludes about schedulers: the device plugin's mode, Volcano, and jobs that fit neither.

In its Volcano mode (`-volcanoType=true`) MindCluster's device plugin serves pods of other schedulers with all chips of
a node or none (docs/admin/schedulers.md). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.derived import CHIPS_PER_NODE
from hajob.api.enums import GangPolicy
from hajob.api.job import HATrainingJob
from hajob.capacity.demand import Demand
from hajob.capacity.parts_of_nodes import PluginPod, chips_of_whole_nodes, nodes_of_demand, why_parts_refused
from hajob.cli.diagnosis import Finding, Grade, title_of_job
from hajob.cli.workloads import containers_of_workload, is_switched_on, place_of_object
from hajob.domain.errors import MALFORMED
from hajob.domain.text import counted_noun, first_of_list
from hajob.plan.policy import layout_from_spec
from hajob.sources.device_plugin import volcano_mode_of_plugin
from hajob.sources.node import NodeView, node_view_of
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


def modes_of_plugins(daemon_sets: Iterable[Json]) -> Iterator[tuple[Json, bool]]:
    """Yield each DaemonSet of the device plugin, and whether it is in Volcano mode; each product may have its own."""
    for one in daemon_sets:
        mode = next(
            (mode for mode in map(volcano_mode_of_plugin, containers_of_workload(one)) if mode is not None), None
        )
        if mode is not None:
            yield one, mode


def findings_of_schedulers(gathered: Schedulers, jobs: Sequence[Json], nodes: Iterable[Json] = ()) -> Iterator[Finding]:
    """Yield which mode the device plugin is in, whether Volcano is there and served, and the jobs that fit neither."""
    plugins = list(modes_of_plugins(gathered.daemon_sets))
    for plugin, in_volcano_mode in plugins:
        mode = (
            "in Volcano mode: pods of Volcano get their chips from it; those of other schedulers get whole nodes only"
            if in_volcano_mode
            else "not in Volcano mode: it serves pods of every scheduler, and chooses their chips itself"
        )
        yield Finding(Grade.FINE, "device plugin", f"{place_of_object(plugin)} is {mode}")
    served = is_switched_on(gathered.operator, _SERVED)
    if gathered.queues is not None:
        told = "and this operator serves jobs of it" if served else "and this operator does not serve jobs of it"
        grade = Grade.FINE if served or gathered.operator is None else Grade.NOTE
        do = f"set volcano.enabled in the chart for gangPolicy: Volcano ({_PAGE})"
        yield Finding(grade, "Volcano", f"is installed, with {counted_noun(len(gathered.queues), 'queue')}, {told}", do)
    elif any(in_volcano_mode for _, in_volcano_mode in plugins):
        yield Finding(
            Grade.NOTE,
            "Volcano",
            "is not installed, and the device plugin waits for it: only pods with all chips of their node get any",
            f"install Volcano, or take -volcanoType=true out of the device plugin's command ({_PAGE})",
        )
    views = [view for view in map(node_view_of, nodes) if view.all_chips]
    for job in jobs:
        yield from _findings_of_job(job, gathered, views, plugins)
    if any("superPodChips" in mapping(mapping(job.get("spec")).get("accelerator")) for job in jobs):
        yield from _findings_of_super_pods(views)


def _findings_of_super_pods(nodes: Iterable[NodeView]) -> Iterator[Finding]:
    """Yield which nodes with chips do not say in which super pod they are, where a job asks for blocks."""
    without = sorted(one.name for one in nodes if names.LABEL_NODE_SUPER_POD not in one.labels)
    if without:
        shown = first_of_list(without, 3)
        yield Finding(
            Grade.NOTE,
            "super pods",
            f"no label {names.LABEL_NODE_SUPER_POD} on {counted_noun(len(without), 'node')} with chips ({shown}): "
            "jobs with superPodChips put no replacement there",
            f"the device plugin writes it on A3 nodes; see its log ({_PAGE})",
        )


def _part_that_is_refused(
    job: Json, nodes: Sequence[NodeView], plugins: Sequence[tuple[Json, bool]]
) -> tuple[int, int]:
    """Return how many chips the job wants, and of how many of a node, where the device plugin refuses that; else zeros.

    By the nodes where its pods may go; where none can be read, by what nodes of the product have.
    """
    spec = mapping(job.get("spec"))
    accelerator = mapping(spec.get("accelerator"))
    whole = next((chips for product, chips in CHIPS_PER_NODE.items() if product == accelerator.get("product")), 0)
    chips = parse_whole_number(accelerator.get("chipsPerNode")) or whole
    try:
        read = HATrainingJob.from_object(job).spec
        demand = Demand.from_spec(read, layout_from_spec(read))
    except MALFORMED:  # what is wrong with it is said by another look
        demand = None
    if demand is None or not nodes:
        refused = whole if any(mode for _, mode in plugins) and chips < whole else 0
    else:
        there = {
            f"{place_of_object(plugin)} on {node.name}": PluginPod(node.name, mode)
            for plugin, mode in plugins
            for node in nodes
            if _selector_of(plugin).items() <= node.labels.items()
        }
        near = nodes_of_demand(demand, nodes)
        refused = chips_of_whole_nodes(demand, near) if why_parts_refused(demand, near, there) else 0
    return (chips, refused) if refused else (0, 0)


def _selector_of(daemon_set: Json) -> Mapping[str, object]:
    return mapping(mapping(mapping(mapping(daemon_set.get("spec")).get("template")).get("spec")).get("nodeSelector"))


def _findings_of_job(
    job: Json, gathered: Schedulers, nodes: Sequence[NodeView], plugins: Sequence[tuple[Json, bool]]
) -> Iterator[Finding]:
    scheduling = mapping(mapping(job.get("spec")).get("scheduling"))
    title = title_of_job(job)
    if scheduling.get("gangPolicy") != GangPolicy.VOLCANO:
        chips, whole = _part_that_is_refused(job, nodes, plugins)
        if chips:
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
