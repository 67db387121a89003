"""Map a job's state to the bucket of the goodput account that its time goes into (docs/user/goodput.md)."""

from collections.abc import Mapping
from typing import Final

from hajob.domain.goodput import Account, Bucket
from hajob.domain.timeline import Mark
from hajob.plan.state import ENDED, JobPhase, JobState
from hajob.plan.view import ClusterView

_BUCKET: Final = {
    JobPhase.NEW: Bucket.SCHEDULING,
    JobPhase.PENDING: Bucket.SCHEDULING,
    JobPhase.STARTING: Bucket.START_UP,
    JobPhase.WARMING: Bucket.START_UP,
    JobPhase.RUNNING: Bucket.TRAINING,
    JobPhase.UNPROTECTED: Bucket.TRAINING,
    JobPhase.CONFIRMING: Bucket.TRAINING,
    JobPhase.SHRUNK: Bucket.TRAINING,
    JobPhase.EXPANDING: Bucket.TRAINING,
    JobPhase.MIGRATING: Bucket.TRAINING,
    JobPhase.HELD: Bucket.DECISION,
    JobPhase.GATHERING: Bucket.RECOVERY,
    JobPhase.RESUMING: Bucket.RECOVERY,
    JobPhase.SHRINKING: Bucket.RECOVERY,
    JobPhase.PAUSED: Bucket.PAUSED,
    JobPhase.SAVING: Bucket.CHECKPOINTING,
    JobPhase.ENDING: Bucket.TRAINING,
    JobPhase.RESTARTING: Bucket.SCHEDULING,
    JobPhase.SUSPENDED: Bucket.SUSPENDED,
}
_PLACED: Final = frozenset({JobPhase.PENDING, JobPhase.RESTARTING, JobPhase.GATHERING})
"""Phases in which pods are being placed; unplaced pods then make the time count as waiting for capacity."""


def bucket_of(state: JobState, *, unplaced: int = 0) -> Bucket | None:
    """Return the bucket that counts time in this state; None once the job has ended.

    Args:
        state: of the job.
        unplaced: rank pods that should exist and for which the scheduler finds no node.
    """
    phase = state.going_on
    if phase in ENDED:
        return None
    return Bucket.WAITING if unplaced and phase in _PLACED else _BUCKET[phase]


def follow_account(
    account: Account | None, state: JobState, view: ClusterView, marks: Mapping[Mark, int], at_ms: int
) -> Account:
    """Return the account updated to the given state and view.

    Args:
        account: the account so far; None to open one now.
        state: of the job.
        view: of the cluster and the training.
        marks: of the open incident.
        at_ms: time from which state and view hold.
    """
    account = _move_undetected(account or Account(at_ms), marks)
    missing = len(state.shrunk.dropped) if state.shrunk and state.phase is not JobPhase.SHRINKING else 0
    bucket, desired = bucket_of(state, unplaced=view.unplaced), view.layout.data
    if (smaller := state.smaller) is not None:
        more = desired * smaller.missing // smaller.nodes
        missing, desired = missing + more, desired + more
    account = (
        account.book_training(view.step, at_ms) if bucket is Bucket.TRAINING else account.begin_outage(bucket, at_ms)
    )
    return account.set_missing(min(missing, desired - 1), desired, at_ms)


def _move_undetected(account: Account, marks: Mapping[Mark, int]) -> Account:
    """Move the undetected part of the running outage to `DETECTION` once its marks are known."""
    if Mark.STEP_BEFORE not in marks or Mark.NOTICED not in marks:
        return account
    return account.move_unnoticed(marks[Mark.NOTICED] - marks[Mark.STEP_BEFORE])
