"""Deletes a job some time after it has ended (spec.ttlSecondsAfterFinished).

The time counts from status.completionTime, so a new leader goes on counting, and the user may lengthen or
shorten it as long as the job exists. Only the object is deleted: its finalizer and its owner references do the rest,
as for anybody who deletes it.
"""

from __future__ import annotations

from typing import Final

from hajob.api import constants as names
from hajob.job.snapshot import JobSnapshot
from hajob.job.wants import GONE, Delete, Wants
from hajob.plan.state import ENDED

RETRY_SECONDS: Final = (0.1, 10.0)
"""A job that is over keeps nobody waiting, and nothing else is refused with it."""
LOOK_SECONDS: Final = 1.0
"""So often it is looked whether the status has the time of an end, which is written in a moment."""


def want_expiry(snapshot: JobSnapshot) -> Wants:
    """Want the job deleted once its time is up."""
    seconds, completed = snapshot.job.spec.ttl_seconds_after_finished, snapshot.answers.completed
    if snapshot.state.phase not in ENDED or seconds is None:
        return Wants()
    if completed is None:
        return Wants(again_at=snapshot.now + LOOK_SECONDS)
    left = completed.timestamp() + seconds - snapshot.wall_seconds
    if left > 0:
        return Wants(again_at=snapshot.now + left)
    metadata = snapshot.job.metadata
    return Wants(
        changes=(
            Delete(
                resource=names.PLURAL,
                namespace=metadata.namespace,
                name=metadata.name,
                uid=metadata.uid,
                retry_seconds=RETRY_SECONDS,
                settled_by=GONE,
                follows_status=True,
                done="has expired and is deleted",
            ),
        )
    )
