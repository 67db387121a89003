"""Which bucket of the goodput account a job's time goes into, by state of the table."""

from typing import Final

from hajob.domain.goodput import Account, Bucket
from hajob.domain.incidents import Purpose
from hajob.plan.state import ENDED, JobPhase, JobState

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
    JobPhase.SAVING: Bucket.CHECKPOINTING,
    JobPhase.RESTARTING: Bucket.SCHEDULING,
    JobPhase.SUSPENDED: Bucket.SUSPENDED,
}


def bucket_of(state: JobState, *, free_nodes: int | None = None) -> Bucket | None:
    """The bucket that time goes into in this state; None once the job has ended.

    While pods are lost and no node is free for them it is the capacity that is awaited, not the recovery.
    """
    if state.phase in ENDED:
        return None
    incident = state.incident
    waits = incident is not None and incident.purpose is Purpose.FAULT and incident.replaced_nodes
    if state.phase is JobPhase.GATHERING and waits and incident is not None and not incident.ready and free_nodes == 0:
        return Bucket.WAITING
    return _BUCKET[state.phase]


def follow(account: Account, state: JobState, desired: int, now_ms: int, *, free_nodes: int | None = None) -> Account:
    """Bring the account to the state as it is now."""
    missing = len(state.shrunk.dropped) if state.shrunk and state.phase is not JobPhase.SHRINKING else 0
    account = account.switch(bucket_of(state, free_nodes=free_nodes), now_ms)
    return account.shrink(min(missing, desired - 1), desired, now_ms)
