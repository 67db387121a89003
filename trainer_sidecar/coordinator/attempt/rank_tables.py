"""Which rank table the ranks may be started with: one that holds exactly the pods where they are, or shall be."""

from __future__ import annotations

from trainer_sidecar.coordinator.state.job import Job


def table_to_start_with(job: Job) -> str:
    """Return the version of the table that is true for every pod that serves, empty: there is none (yet).

    A rank that started with an older one would look for the others where they have been.
    """
    if job.assignment is None or not job.assignment.rank_table.version:
        return ""
    table, roster = job.assignment.rank_table, job.roster
    if len(table.pod_uids) != roster.number_of_nodes:
        return ""
    for node_rank, uid in enumerate(table.pod_uids):
        first = node_rank * roster.ranks_per_node
        # Of a rank that moves the second process is yet to start; the first one has read its table long ago.
        target = roster.spares.get(first) or roster.targets.get(first)
        if target is not None and target.run and target.pod_uid != uid:
            return ""
    return table.version
