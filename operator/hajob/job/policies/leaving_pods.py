"""Pods of a job's earlier starts, which must be gone before new pods are made: how long to wait for them."""

from __future__ import annotations

from typing import Final

from hajob.job.ages import Ages
from hajob.job.pod_index import old_rank_pods
from hajob.job.snapshot import JobSnapshot

GONE_SECONDS: Final = 30.0
"""So long after its grace a pod of an earlier start is waited for: its node may be dead and nobody know it yet."""


def overdue_pods(snapshot: JobSnapshot, ages: Ages) -> tuple[set[str], float]:
    """Return the UIDs of old pods that should have gone long ago, for which new pods no longer wait.

    Args:
        snapshot: of the job.
        ages: of its old pods; updated.

    Returns:
        The UIDs, and when the next pod will be overdue, in seconds of the monotonic clock; inf: none.
    """
    given = snapshot.job.spec.template["spec"].get("terminationGracePeriodSeconds")
    limit = (given if isinstance(given, int) else snapshot.settings.rank_grace_seconds) + GONE_SECONDS
    seen = ages.update_ages((pod.uid for pod in old_rank_pods(snapshot.state.base, snapshot.pods.pods)), snapshot.now)
    return {uid for uid, age in seen.items() if age >= limit}, ages.next_limit_time(snapshot.now, limit)
