"""What a waiting job lacks, in numbers and names: the nodes it needs, how many there are, and who has them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from hajob.capacity.demand import Demand
from hajob.capacity.nodes import Capacity
from hajob.capacity.super_pods import nodes_in_whole_blocks
from hajob.domain.text import counted_noun, first_of_list

OTHERS: Final = "pods that are not Hajob's"
_SHOWN: Final = 3


def shortfall_of_nodes(
    need: int,
    demand: Demand,
    capacity: Capacity,
    quarantined: Collection[str],
    job_uid: str,
    *,
    nodes_per_block: int = 0,
) -> str:
    """Return how many nodes a job needs, and what became of each node that could take one of its pods when empty.

    Args:
        need: nodes for all of its rank pods.
        demand: what each of them needs.
        capacity: of the cluster.
        quarantined: names of nodes where nothing new is placed.
        job_uid: of the job, whose own pods take no node from it.
        nodes_per_block: nodes that it needs in one super pod together; 0: anywhere.
    """
    may_take = demand.node_filter()
    # Busy, cordoned and silent nodes count, too: what became of each of them is what people ask.
    able = {
        name
        for name, node in capacity.nodes.items()
        if (node.chips or {}).get(demand.resource, 0) >= demand.chips
        # A node that is only down or cordoned now counts as able: the sentence names what became of it.
        and may_take(replace(node, ready=True, unschedulable=False, drained=False))
    }
    free = (capacity.free_nodes(demand) | capacity.soon_free_nodes(demand, job_uid)).difference(quarantined) & able
    rest = able - free
    kept = sorted(rest.intersection(quarantined))
    unready = sorted(name for name in rest.difference(kept) if not may_take(capacity.nodes[name]))
    used = rest.difference(kept, unready)
    needs = f"needs {counted_noun(need, 'node')} with {demand.chips} {demand.resource}"
    if not able:
        return f"{needs}; the cluster has none"
    told = [f"{needs}; of {counted_noun(len(able), 'such node')}"]
    told += _nodes_in_use(used, demand, capacity, job_uid)
    if kept:
        told.append(f"{_number_with_verb(len(kept))} in quarantine ({first_of_list(kept, _SHOWN)})")
    if unready:
        told.append(f"{_number_with_verb(len(unready))} not ready or cordoned ({first_of_list(unready, _SHOWN)})")
    told.append(f"{_number_with_verb(len(free))} free")
    if nodes_per_block:
        whole = nodes_in_whole_blocks(capacity.nodes, free, nodes_per_block)
        told.append(f"{whole} of them in whole blocks of {nodes_per_block} in one super pod")
    return ", ".join(told)


def _number_with_verb(number: int) -> str:
    return f"{number} is" if number == 1 else f"{number} are"


def _nodes_in_use(used: Collection[str], demand: Demand, capacity: Capacity, job_uid: str) -> Iterator[str]:
    if not used:
        return
    owners: Counter[str] = Counter()
    for name in used:
        owners.update(
            {_owner_of_pod(key, uid) for key, uid in capacity.users_of_node(name, demand.resource) if uid != job_uid}
        )
    listed = [f"{owner} {number}" for owner, number in sorted(owners.items(), key=lambda one: (-one[1], one[0]))]
    yield f"{_number_with_verb(len(used))} used" + (f" ({first_of_list(listed, _SHOWN)})" if listed else "")


def _owner_of_pod(pod: str, job_uid: str) -> str:
    """Return namespace and name of the job of a pod, which begin the pod's own (hajob.pods.naming)."""
    return pod.rsplit("-", 2)[0].removesuffix("-spare").removesuffix("-hook") if job_uid else OTHERS
