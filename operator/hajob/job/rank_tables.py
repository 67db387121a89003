"""The rank table of one job as it is now: made of the pods that should exist, and made anew only when they change."""

from __future__ import annotations

import hashlib
import zlib
from functools import lru_cache
from typing import Final

from hajob.api.derived import has_rank_table, nodes_per_block
from hajob.job.snapshot import JobSnapshot
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.pod import PodView
from hajob.sources.rank_table import RankTable, build_rank_table

_VERSION_LENGTH: Final = 16
"""Characters of a version: it only tells apart the tables of one job."""


_KEPT_TABLES: Final = 16
"""Messages that are kept for jobs whose pods change; few have a table, and it is made again where one is missing."""


def rank_table_of_job(snapshot: JobSnapshot) -> RankTable:
    """Return the rank table of the job, or why there is none; nothing of a job that asks for none."""
    if not has_rank_table(snapshot.job.spec):
        return RankTable()
    pods = _newest_pods(snapshot)
    # Asked at each change of any pod: parsing the notes of a thousand pods anew takes a tenth of a second.
    seen = tuple((pod.uid, pod.node_name, pod.address, pod.devices) if pod is not None else None for pod in pods)
    if snapshot.kept.rank_table is None or snapshot.kept.rank_table[0] != seen:
        table = build_rank_table(pods, snapshot.layout.chips_per_node, nodes_per_block(snapshot.job.spec))
        snapshot.kept.rank_table = seen, table
    return snapshot.kept.rank_table[1]


def rank_table_to_send(snapshot: JobSnapshot) -> wire.RankTable | None:
    """Return the rank table for the coordinator, without content while it cannot be made; None: the job has none."""
    if not has_rank_table(snapshot.job.spec):
        return None
    return _wire_of_table(rank_table_of_job(snapshot))


@lru_cache(maxsize=_KEPT_TABLES)
def _wire_of_table(table: RankTable) -> wire.RankTable:
    """Return the message of a table; it is asked for with each change of a pod, and of a large job is a megabyte."""
    if not table.content:
        return wire.RankTable()
    # A version is made of the content, so that another leader sends the same one and no agent writes anything.
    named = hashlib.sha256(table.content + " ".join(table.pod_uids).encode())
    return wire.RankTable(
        version=named.hexdigest()[:_VERSION_LENGTH], content=zlib.compress(table.content), pod_uids=table.pod_uids
    )


def _newest_pods(snapshot: JobSnapshot) -> list[PodView | None]:
    """Return the newest pod that should exist of each node rank: of one that moves, the one that it moves to."""
    wanted = {(one.node_rank, one.incarnation) for one in snapshot.desired_pods.ranks}
    newest: dict[int, PodView] = {}
    for pod in snapshot.pods.rank_pods():
        known = newest.get(pod.node_rank)
        if (pod.node_rank, pod.incarnation) in wanted and (known is None or pod.incarnation > known.incarnation):
            newest[pod.node_rank] = pod
    return [newest.get(node_rank) for node_rank in range(snapshot.layout.num_nodes)]
