"""The policies of one job, and what they remember."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from hajob.job.policies.chip_notes import want_chip_notes
from hajob.job.policies.drains import DrainMemo, want_drains
from hajob.job.policies.expiry import want_expiry
from hajob.job.policies.finished_pods import want_finished_pods
from hajob.job.policies.gang_start import GangMemo, want_gang_start
from hajob.job.policies.kueue import KueueMemo, want_kueue
from hajob.job.policies.outdated_pods import BootMemo, want_outdated_pods
from hajob.job.policies.pauses import PauseMemo, want_pauses
from hajob.job.policies.pod_groups import want_pod_groups
from hajob.job.policies.pods import PodMemo, want_pods
from hajob.job.policies.rank_tables import TableMemo, want_rank_table
from hajob.job.policies.spares import SpareMemo, want_spares
from hajob.job.policies.start_gate import StartMemo, want_start_gate
from hajob.job.snapshot import JobSnapshot
from hajob.job.wants import Wants


@dataclass(slots=True)
class PolicyMemos:
    """What the policies of one job remember between two rounds; a new leader begins without it."""

    drains: DrainMemo
    boots: BootMemo = field(default_factory=BootMemo)
    gang: GangMemo = field(default_factory=GangMemo)
    kueue: KueueMemo = field(default_factory=KueueMemo)
    pauses: PauseMemo = field(default_factory=PauseMemo)
    pods: PodMemo = field(default_factory=PodMemo)
    spares: SpareMemo = field(default_factory=SpareMemo)
    start: StartMemo = field(default_factory=StartMemo)
    tables: TableMemo = field(default_factory=TableMemo)


def policies_with(memos: PolicyMemos) -> tuple[Callable[[JobSnapshot], Wants], ...]:
    """Return all policies, each with its memo; of two changes of one object that of the later one counts."""
    return (
        partial(want_kueue, memo=memos.kueue),
        partial(want_start_gate, memo=memos.start),
        want_pod_groups,
        partial(want_outdated_pods, memo=memos.boots),
        partial(want_gang_start, memo=memos.gang),
        partial(want_drains, memo=memos.drains),
        partial(want_pauses, memo=memos.pauses),
        partial(want_spares, memo=memos.spares),
        partial(want_pods, memo=memos.pods, gang=memos.gang, boots=memos.boots),
        want_chip_notes,
        partial(want_rank_table, memo=memos.tables),
        want_finished_pods,
        want_expiry,
    )
