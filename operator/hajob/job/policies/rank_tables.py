"""Says why a job's rank table cannot be made, once that has lasted.

Volcano notes a pod's chips when it binds the pod, and the device plugin within 5 s of its start: nothing is said of a
wait that ends by itself. Deadlines of the start and of the recovery bound the wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hajob.job.rank_tables import rank_table_of_job
from hajob.job.snapshot import JobSnapshot
from hajob.job.wants import Wants

PATIENCE_SECONDS: Final = 10.0
"""Twice what the device plugin takes."""


@dataclass(slots=True)
class TableMemo:
    """What is remembered of a rank table that is missing.

    Attributes:
        since: since when it cannot be made, in seconds of the monotonic clock; None: it can, or is not wanted.
        told: why, in words, once that has lasted; empty: nothing is said.
    """

    since: float | None = None
    told: str = ""


def want_rank_table(snapshot: JobSnapshot, memo: TableMemo) -> Wants:
    """Want to be asked again when the rank table has been missing for long enough to say so."""
    missing = rank_table_of_job(snapshot).missing
    if not missing:
        memo.since, memo.told = None, ""
        return Wants()
    if memo.since is None:
        memo.since = snapshot.now
    due = memo.since + PATIENCE_SECONDS
    if snapshot.now < due:
        return Wants(again_at=due)
    memo.told = missing
    return Wants()
