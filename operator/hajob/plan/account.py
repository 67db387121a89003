"""Which bucket of the goodput account a job's time goes into, by state of the table."""

from typing import Final

from hajob.domain.goodput import Account, Bucket
from hajob.domain.incidents import Purpose
from hajob.plan.state import ENDED, JobState, Phase

_BUCKET: Final = {
    Phase.NEW: Bucket.SCHEDULING,
    Phase.PENDING: Bucket.SCHEDULING,
    Phase.STARTING: Bucket.START_UP,
    Phase.WARMING: Bucket.START_UP,
    Phase.RUNNING: Bucket.TRAINING,
    Phase.UNPROTECTED: Bucket.TRAINING,
    Phase.CONFIRMING: Bucket.TRAINING,
    Phase.SHRUNK: Bucket.TRAINING,
    Phase.EXPANDING: Bucket.TRAINING,
    Phase.MIGRATING: Bucket.TRAINING,
    Phase.HELD: Bucket.DECISION,
    Phase.GATHERING: Bucket.RECOVERY,
    Phase.RESUMING: Bucket.RECOVERY,
    Phase.SHRINKING: Bucket.RECOVERY,
    Phase.SAVING: Bucket.CHECKPOINTING,
    Phase.RESTARTING: Bucket.SCHEDULING,
    Phase.SUSPENDED: Bucket.SUSPENDED,
}


def bucket_of(state: JobState, *, free_nodes: int | None = None) -> Bucket | None:
    """The bucket that time goes into in this state; None once the job has ended.

    While pods are lost and no node is free for them it is the capacity that is awaited, not the recovery.
    """
    if state.phase in ENDED:
        return None
    incident = state.incident
    waits = incident is not None and incident.purpose is Purpose.FAULT and incident.replaced_nodes
    if state.phase is Phase.GATHERING and waits and incident is not None and not incident.ready and free_nodes == 0:
        return Bucket.WAITING
    return _BUCKET[state.phase]


def follow(account: Account, state: JobState, desired: int, now_ms: int, *, free_nodes: int | None = None) -> Account:
    """Bring the account to the state as it is now."""
    missing = len(state.shrunk.dropped) if state.shrunk and state.phase is not Phase.SHRINKING else 0
    account = account.switch(bucket_of(state, free_nodes=free_nodes), now_ms)
    return account.shrink(min(missing, desired - 1), desired, now_ms)
