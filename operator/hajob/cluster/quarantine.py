"""The NodeQuarantine that a node should have: a function of the present one, the standing faults, and the time.

A fault that isolates keeps its node out for as long as it stands, and then for a time that doubles with every offence;
a quiet day takes an offence away. An admin's decision is never reverted: a quarantine of their own ends when they
said, and after a release only a fault that was not known then keeps the node out again (docs/faults.md, "Quarantine").
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from hajob.api.quarantine import (
    BY_HAND,
    MAX_FAULTS,
    MESSAGE_LIMIT,
    NodeMetadata,
    NodeQuarantine,
    NodeQuarantineSpec,
    NodeQuarantineStatus,
    QuarantineState,
)
from hajob.domain.hardware import SEVERITY, ClusterFact

MOST_OFFENCES: Final = 1000
FREQUENT: Final = "FrequentFault"
"""Reason of a quarantine for a fault that comes again and again (hajob.cluster.frequency)."""


@dataclass(frozen=True, slots=True)
class QuarantineSettings:
    """How long nodes are kept out, and how many.

    Attributes:
        first_seconds: after the first offence, once its faults are over; doubled with each further one.
        longest_seconds: no longer than this, the cap of a single node.
        frequent_seconds: after a fault that came too often.
        forget_seconds: so long without a fault takes one offence away.
        share: percent of the nodes that the operator keeps out at most, the cap of the cluster.
        minimum: so many it may keep out in any case.
    """

    first_seconds: int = 600
    longest_seconds: int = 86_400
    frequent_seconds: int = 48 * 3600
    forget_seconds: int = 86_400
    share: int = 20
    minimum: int = 3

    def most(self, num_nodes: int) -> int:
        """Return how many of these nodes the operator may keep out by itself."""
        return max(self.minimum, num_nodes * self.share // 100)


def follow(
    node: str,
    known: NodeQuarantine | None,
    facts: Sequence[ClusterFact],
    now_ms: int,
    settings: QuarantineSettings,
) -> NodeQuarantine | None:
    """Return the quarantine that the node should have; the known one itself where nothing changes, None for none.

    Args:
        node: its name.
        known: the one that it has.
        facts: that isolate it or a chip of it now.
        now_ms: wall time.
        settings: for how long.
    """
    now = _time(now_ms)
    if known is not None and known.spec.source == BY_HAND:
        return _by_hand(known, now)
    if known is None:
        return _begun(_nothing_yet(node), facts, now, 1) if facts else None
    spec, status = known.spec, known.status
    if spec.release_time is not None and spec.release_time <= now:
        return _released(known, facts, now, settings)
    if not facts:
        return _waning(known, now, settings)
    if status.state is not QuarantineState.ACTIVE or spec.expire_time is not None:
        return _begun(known, facts, now, _offences(known, now, settings) + 1)
    names = _names(facts)
    if set(names) <= set(spec.faults):
        return known
    return _with(known, spec={"faults": _joined(spec.faults, names), **_why(facts)})


def active(known: NodeQuarantine | None, now_ms: int) -> bool:
    """Whether the node is kept out now."""
    return known is not None and known.keeps_out(_time(now_ms))


def due_ms(known: NodeQuarantine, settings: QuarantineSettings) -> int | None:
    """Return when `follow` would next change by time alone; None: never."""
    spec, status = known.spec, known.status
    if status.state is QuarantineState.ACTIVE:
        return _ms(spec.expire_time) if spec.expire_time is not None else None
    if status.last_offence_time is None:
        return 0
    return _ms(status.last_offence_time) + 1000 * settings.forget_seconds * max(status.offences, 1)


# ------------------------------------------------------------------------------------------------- the steps


def _begun(known: NodeQuarantine, facts: Sequence[ClusterFact], now: datetime, offences: int) -> NodeQuarantine:
    """Begin a quarantine."""
    spec = {"node_name": known.spec.node_name, "faults": _names(facts)[:MAX_FAULTS], "start_time": now, **_why(facts)}
    return known.model_copy(
        update={
            "spec": NodeQuarantineSpec.model_validate(spec),
            "status": NodeQuarantineStatus(offences=min(offences, MOST_OFFENCES), last_offence_time=now),
        }
    )


def _nothing_yet(node: str) -> NodeQuarantine:
    return NodeQuarantine(metadata=NodeMetadata(name=node), spec=NodeQuarantineSpec(node_name=node))


def _waning(known: NodeQuarantine, now: datetime, settings: QuarantineSettings) -> NodeQuarantine | None:
    """Continue after the last fault: kept out for a while, then over, then forgotten."""
    spec, status = known.spec, known.status
    if status.state is not QuarantineState.ACTIVE:
        return known if _offences(known, now, settings) > 0 else None
    if spec.expire_time is None:
        until = now + timedelta(seconds=_seconds(spec.reason, status.offences, settings))
        return _with(known, spec={"expire_time": until}, status={"last_offence_time": now})
    return known if now < spec.expire_time else _with(known, status={"state": QuarantineState.OVER})


def _released(
    known: NodeQuarantine,
    facts: Sequence[ClusterFact],
    now: datetime,
    settings: QuarantineSettings,
) -> NodeQuarantine | None:
    """An admin has let it in: what was named stays pardoned for as long as it stands; anything else is an offence."""
    if not set(_names(facts)) <= set(known.spec.faults):
        return _begun(known, facts, now, _offences(known, now, settings) + 1)
    if facts:
        return _with(known, status={"state": QuarantineState.RELEASED, "last_offence_time": now}, once=True)
    if known.status.state is not QuarantineState.OVER:
        return _with(known, spec={"faults": ()}, status={"state": QuarantineState.OVER})
    return known if _offences(known, now, settings) > 0 else None


def _by_hand(known: NodeQuarantine, now: datetime) -> NodeQuarantine | None:
    """An admin's: kept until the time that they gave, or until they release it; then it is of no use any more."""
    return known if known.keeps_out(now) else None


def _offences(known: NodeQuarantine, now: datetime, settings: QuarantineSettings) -> int:
    """Return the offences that still count: each quiet `forget_seconds` takes one away."""
    last = known.status.last_offence_time
    quiet = (now - last).total_seconds() if last is not None else 0.0
    return max(known.status.offences - max(int(quiet // settings.forget_seconds), 0), 0)


def _seconds(reason: str, offences: int, settings: QuarantineSettings) -> int:
    doubled: int = settings.first_seconds << min(max(offences - 1, 0), 32)
    return settings.frequent_seconds if reason == FREQUENT else min(doubled, settings.longest_seconds)


def _with(
    known: NodeQuarantine,
    *,
    spec: dict[str, object] | None = None,
    status: dict[str, object] | None = None,
    once: bool = False,
) -> NodeQuarantine:
    """Return the quarantine with other fields; `once`: unchanged where the state is the same already."""
    if once and status is not None and known.status.state is status.get("state"):
        return known
    return known.model_copy(
        update={
            "spec": known.spec.model_copy(update=spec or {}),
            "status": known.status.model_copy(update=status or {}),
        }
    )


# ------------------------------------------------------------------------------------------------- the words


def name_of(fact: ClusterFact) -> str:
    """Return a fault's name in `spec.faults`."""
    code = fact.code or (fact.level.value if fact.level is not None else fact.kind.value)
    return f"{fact.device}/{code}" if fact.device else code


def _names(facts: Collection[ClusterFact]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name_of(fact) for fact in facts))


def _joined(before: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*before, *names)))[-MAX_FAULTS:]


def _why(facts: Sequence[ClusterFact]) -> dict[str, object]:
    """Return source, reason and message of the worst fault."""
    worst = max(facts, key=lambda fact: (fact.frequent, SEVERITY[fact.level] if fact.level is not None else 0))
    reason = FREQUENT if worst.frequent else worst.level or worst.kind
    told = "; ".join(dict.fromkeys(fact.message for fact in facts if fact.message))
    return {"source": worst.source.value, "reason": str(reason), "message": told[:MESSAGE_LIMIT]}


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds // 1000, UTC)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
