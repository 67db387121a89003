"""What the operator remembers of a job between two lives, as one text in the status.

Everything that a decision depends on and that cannot be read off the cluster is in here: the planner's state, the
pods that should exist, the newest order, and the moments of the open incident. It is read back by `load`, which takes
an empty or foreign text for a job that is seen for the first time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from hajob.domain.actions import OrderCommand
from hajob.domain.goodput import Account, Bucket
from hajob.domain.timeline import Mark
from hajob.objects.wanted_pods import WantedPods
from hajob.plan import journal as plan_journal
from hajob.plan.effects import SendOrder
from hajob.plan.state import JobState
from hajob.status.incident_entry import Record, read_moments
from hajob.status.restoration import Restoration

ACCOUNT_MARK: Final = ',"account":'
"""Begins the last part of a journal: it moves with the clock, and alone it is not worth a write."""


@dataclass(frozen=True, slots=True)
class Journal:
    """The memory of one job."""

    state: JobState = field(default_factory=JobState)
    wanted: WantedPods = field(default_factory=WantedPods)
    order: SendOrder | None = None
    failed_reason: str = ""
    failed_message: str = ""
    open_record: Record | None = None
    moments: Mapping[Mark, int] = field(default_factory=dict)
    restoration: Restoration = field(default_factory=Restoration)
    account: Account | None = None
    restart_seen: str = ""

    def dump(self) -> str:
        """Compact JSON."""
        text: dict[str, Any] = {"plan": plan_journal.to_dict(self.state), "pods": self.wanted.to_journal()}
        if self.order is not None:
            text["order"] = asdict(self.order)
        if self.restart_seen:
            text["restart"] = self.restart_seen
        if self.failed_reason:
            text["failed"] = [self.failed_reason, self.failed_message]
        if self.open_record is not None and self.state.incident is not None:
            journal = self.open_record.moments_journal()
            text["moments"] = journal["moments"]
            if journal["restoration"]:
                text["restoration"] = journal["restoration"]
        if self.account is not None:
            text["account"] = _account_to_journal(self.account)
        return json.dumps(text, separators=(",", ":"))

    @classmethod
    def load(cls, text: str) -> Journal:
        """The inverse of `dump`.

        Raises:
            ValueError: the text is not a journal of a version that this operator can read.
        """
        if not text:
            return cls()
        raw = json.loads(text)
        failed = raw.get("failed", ["", ""])
        return cls(
            state=plan_journal.from_dict(raw["plan"]),
            wanted=WantedPods.from_journal(raw["pods"]),
            order=_order(raw["order"]) if "order" in raw else None,
            failed_reason=failed[0],
            failed_message=failed[1],
            moments=read_moments(raw),
            restoration=Restoration.from_journal(raw.get("restoration", {})),
            restart_seen=raw.get("restart", ""),
            account=_account(raw["account"]) if "account" in raw else None,
        )

    def record(self) -> Record | None:
        """The record of the incident that was open."""
        if self.state.incident is None:
            return None
        return Record(self.state.incident, self.moments, restoration=self.restoration)


def _order(raw: Mapping[str, Any]) -> SendOrder:
    lists = {key: tuple(raw[key]) for key in ("lost_ranks", "restart_ranks", "replaced_nodes")}
    return SendOrder(**{**raw, **lists, "command": OrderCommand(raw["command"])})


def _account_to_journal(account: Account) -> dict[str, Any]:
    return {
        "since": account.since_ms,
        "bucket": account.bucket.value if account.bucket else "",
        "size": [account.missing, account.desired],
        "booked": {bucket.value: amount for bucket, amount in account.booked.items()},
    }


def _account(raw: Mapping[str, Any]) -> Account:
    missing, desired = raw["size"]
    bucket = Bucket(raw["bucket"]) if raw["bucket"] else None
    booked = {Bucket(name): int(amount) for name, amount in raw["booked"].items()}
    return Account(int(raw["since"]), bucket, int(missing), int(desired), booked)
