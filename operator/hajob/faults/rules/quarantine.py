"""The NodeQuarantine that a node should have: a function of the present one, the standing faults, and the time.

A fault that isolates keeps its node out for as long as it stands, and then for a time that doubles with every offence;
a quiet day takes an offence away. An admin's decision is never reverted: a quarantine of their own ends when they
said, and a release pardons what stands: it harms nobody until it is over, and only another fault keeps the node out
again, as its first offence (docs/admin/faults.md, "Quarantine").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
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

# The time doubles only up to its cap, so a higher number would change nothing; it bounds the field.
MOST_OFFENCES: Final = 1000
ALL_FAULTS: Final = "*"
"""Stands in `spec.faults` of a released node for more faults than the list holds."""
FREQUENT: Final = "FrequentFault"
"""Reason of a quarantine for a fault that comes again and again (hajob.faults.rules.filters)."""


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
        idle_chips: whether a fault of a chip that no pod has begins a quarantine, and counts as a recurrence.
    """

    first_seconds: int = 600
    longest_seconds: int = 86_400
    frequent_seconds: int = 48 * 3600
    forget_seconds: int = 86_400
    share: int = 20
    minimum: int = 3
    idle_chips: bool = False

    def most_nodes(self, num_nodes: int) -> int:
        """Return how many of these nodes the operator may keep out by itself."""
        return max(self.minimum, num_nodes * self.share // 100)


def next_quarantine(
    node: str,
    known: NodeQuarantine | None,
    facts: Sequence[ClusterFact],
    now_ms: int,
    settings: QuarantineSettings,
    *,
    counts: Callable[[ClusterFact], bool] = lambda _: True,
) -> NodeQuarantine | None:
    """Return the quarantine that the node should have; the known one itself where nothing changes, None for none.

    Args:
        node: its name.
        known: the one that it has.
        facts: that isolate it or a chip of it now, or harm a job there.
        now_ms: wall time.
        settings: for how long.
        counts: whether a fault that isolates begins a quarantine; any prolongs one.
    """
    now = _to_datetime(now_ms)
    isolating = [fact for fact in facts if fact.isolates]
    offends = any(counts(fact) for fact in isolating)
    if known is None:
        return _begin_quarantine(_empty_quarantine(node), isolating, now, 1) if offends else None
    spec, status = known.spec, known.status
    if _is_release_in_force(known, now):
        return _after_release(known, facts, now)
    if spec.source == BY_HAND:
        return known if known.keeps_out(now) else None
    is_kept_out = status.state is QuarantineState.ACTIVE and spec.expire_time is None
    if not isolating or not (offends or is_kept_out):
        return _wane_quarantine(known, now, settings)
    if not is_kept_out:
        return _begin_quarantine(known, isolating, now, _counting_offences(known, now, settings) + 1)
    names = _names_of_faults(isolating)
    if set(names) <= set(spec.faults):
        return known
    return _with_fields(known, spec={"faults": _joined_names(spec.faults, names), **_describe_worst(isolating)})


def pardoned_faults(known: NodeQuarantine | None, now_ms: int) -> Collection[str]:
    """Return the names of the faults that harm nobody on the node, because an admin has released it."""
    return known.spec.faults if known is not None and _is_release_in_force(known, _to_datetime(now_ms)) else ()


def is_pardoned(fact: ClusterFact, names: Collection[str]) -> bool:
    """Return whether a fault is one of those that `pardoned_faults` names."""
    return bool(names) and fact.level is not None and (name_of_fault(fact) in names or ALL_FAULTS in names)


def keeps_node_out(known: NodeQuarantine | None, now_ms: int) -> bool:
    """Return whether the node is kept out now."""
    return known is not None and known.keeps_out(_to_datetime(now_ms))


def counting_offences(known: NodeQuarantine, now_ms: int, settings: QuarantineSettings) -> int:
    """Return the offences of a node that count now: each quiet day has taken one away."""
    return _counting_offences(known, _to_datetime(now_ms), settings)


def next_change_ms(known: NodeQuarantine, settings: QuarantineSettings) -> int | None:
    """Return when `next_quarantine` would next change by time alone; None: never."""
    spec, status = known.spec, known.status
    if status.state is QuarantineState.ACTIVE:
        return min(
            (_to_milliseconds(at) for at in (spec.expire_time, spec.release_time) if at is not None), default=None
        )
    if status.last_offence_time is None:
        return 0
    return _to_milliseconds(status.last_offence_time) + 1000 * settings.forget_seconds * max(status.offences, 1)


# ------------------------------------------------------------------------------------------------- the steps


def _begin_quarantine(
    known: NodeQuarantine, facts: Sequence[ClusterFact], now: datetime, offences: int
) -> NodeQuarantine:
    """Begin a quarantine."""
    spec = {
        "node_name": known.spec.node_name,
        "faults": _names_of_faults(facts)[:MAX_FAULTS],
        "start_time": now,
        **_describe_worst(facts),
    }
    return known.model_copy(
        update={
            "spec": NodeQuarantineSpec.model_validate(spec),
            "status": NodeQuarantineStatus(offences=min(offences, MOST_OFFENCES), last_offence_time=now),
        }
    )


def _empty_quarantine(node: str) -> NodeQuarantine:
    return NodeQuarantine(metadata=NodeMetadata(name=node), spec=NodeQuarantineSpec(node_name=node))


def _wane_quarantine(known: NodeQuarantine, now: datetime, settings: QuarantineSettings) -> NodeQuarantine | None:
    """Continue after the last fault: kept out for a while, then over, then forgotten."""
    spec, status = known.spec, known.status
    if status.state is not QuarantineState.ACTIVE:
        return known if _counting_offences(known, now, settings) > 0 else None
    if spec.expire_time is None:
        until = now + timedelta(seconds=_seconds_kept_out(spec.reason, status.offences, settings))
        return _with_fields(known, spec={"expire_time": until}, status={"last_offence_time": now})
    return known if now < spec.expire_time else _with_fields(known, status={"state": QuarantineState.OVER})


def _is_release_in_force(known: NodeQuarantine, now: datetime) -> bool:
    """Whether an admin's release holds; it does until everything that stood then is over."""
    released = known.spec.release_time
    return released is not None and released <= now and known.status.state is not QuarantineState.OVER


def _after_release(known: NodeQuarantine, facts: Sequence[ClusterFact], now: datetime) -> NodeQuarantine | None:
    """An admin has let it in: all that stands then is pardoned until it is over, and counting begins at 0.

    Any other fault that isolates is a first offence, and ends the pardon; without a fault there is nothing to remember.
    """
    names = _names_of_faults(facts)
    if known.status.state is QuarantineState.ACTIVE:
        faults = names if len(names) <= MAX_FAULTS else (ALL_FAULTS,)
        status = {"state": QuarantineState.RELEASED, "offences": 0, "last_offence_time": now}
        return _with_fields(known, spec={"faults": faults}, status=status) if faults else None
    others = [fact for fact in facts if fact.isolates and not is_pardoned(fact, known.spec.faults)]
    if others:
        return _begin_quarantine(known, others, now, 1)
    still = tuple(name for name in known.spec.faults if name in names or (name == ALL_FAULTS and names))
    if still == known.spec.faults:
        return known
    return _with_fields(known, spec={"faults": still}) if still else None


def _counting_offences(known: NodeQuarantine, now: datetime, settings: QuarantineSettings) -> int:
    """Return the offences that still count: each quiet `forget_seconds` takes one away."""
    last = known.status.last_offence_time
    quiet = (now - last).total_seconds() if last is not None else 0.0
    return max(known.status.offences - max(int(quiet // settings.forget_seconds), 0), 0)


def _seconds_kept_out(reason: str, offences: int, settings: QuarantineSettings) -> int:
    # The shift is bounded, or a node with many offences would make a number of many digits before it is cut to the cap.
    doubled: int = settings.first_seconds << min(max(offences - 1, 0), 32)
    return settings.frequent_seconds if reason == FREQUENT else min(doubled, settings.longest_seconds)


def _with_fields(
    known: NodeQuarantine,
    *,
    spec: dict[str, object] | None = None,
    status: dict[str, object] | None = None,
) -> NodeQuarantine:
    """Return the quarantine with other fields."""
    return known.model_copy(
        update={
            "spec": known.spec.model_copy(update=spec or {}),
            "status": known.status.model_copy(update=status or {}),
        }
    )


# ------------------------------------------------------------------------------------------------- the words


def name_of_fault(fact: ClusterFact) -> str:
    """Return a fault's name in `spec.faults`."""
    code = fact.code or (fact.level.value if fact.level is not None else fact.kind.value)
    return f"{fact.device}/{code}" if fact.device else code


def _names_of_faults(facts: Collection[ClusterFact]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name_of_fault(fact) for fact in facts))


def _joined_names(before: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*before, *names)))[-MAX_FAULTS:]


def _describe_worst(facts: Sequence[ClusterFact]) -> dict[str, object]:
    """Return source, reason and message of the worst fault."""
    worst = max(facts, key=lambda fact: (fact.frequent, SEVERITY[fact.level] if fact.level is not None else 0))
    reason = FREQUENT if worst.frequent else worst.level or worst.kind
    told = "; ".join(dict.fromkeys(fact.message for fact in facts if fact.message))
    return {"source": worst.source.value, "reason": str(reason), "message": told[:MESSAGE_LIMIT]}


def _to_datetime(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds // 1000, UTC)


def _to_milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
