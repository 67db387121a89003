"""ResourceQuotas, and what a pod uses of them: counted as the API server counts it when it admits a pod.

Amounts are thousandths: the server itself calculates with quantities such as 500m.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from hajob.sources.reading import items, mapping, text

Use = tuple[tuple[str, int], ...]
"""Names of what a quota may limit, each with an amount in thousandths."""

_COMPUTE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_KINDS: Final = ("requests", "limits")
_NUMBER: Final = re.compile(
    r"([+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30}))(?:[eE]([+-]?[0-9]{1,2}))?([a-zA-Z]{0,2})"
)
"""As Kubernetes reads quantities, `5.` and `.5` among them."""
_SUFFIXES: Final = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{letter: Fraction(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}
_WITHOUT_END: Final = "NotTerminating"


@dataclass(frozen=True, slots=True)
class Quota:
    """The part of a ResourceQuota that the operator keeps.

    Attributes:
        hard: the limits.
        used: the present use.
        scopes: what it is about, as (name, operator, values); empty: every pod of the namespace.
    """

    namespace: str
    name: str
    hard: Use = ()
    used: Use = ()
    scopes: tuple[tuple[str, str, tuple[str, ...]], ...] = ()

    def counts_pod(self, use: Use, priority_class: str) -> bool:
        """Return whether the quota counts a pod of this use and priority class, without a deadline of its own."""
        return all(_matches_scope(scope, use, priority_class) for scope in self.scopes)


def _matches_scope(scope: tuple[str, str, tuple[str, ...]], use: Use, priority_class: str) -> bool:
    name, operator, values = scope
    best_effort = not any(kind.endswith((".cpu", ".memory")) for kind, _ in use)
    match name:
        case "BestEffort":
            return best_effort
        case "NotBestEffort":
            return not best_effort
        case "PriorityClass":
            return {
                "In": priority_class in values,
                "NotIn": priority_class not in values,
                "Exists": bool(priority_class),
                "DoesNotExist": not priority_class,
            }.get(operator, False)
    return name == _WITHOUT_END


def quota_view_of(raw: Mapping[str, Any]) -> Quota:
    """Build the view of a raw ResourceQuota; before the server has counted, it limits nothing."""
    metadata, spec, status = mapping(raw.get("metadata")), mapping(raw.get("spec")), mapping(raw.get("status"))
    plain = [(text(name), "Exists", ()) for name in items(spec.get("scopes"))]
    chosen = [mapping(one) for one in items(mapping(spec.get("scopeSelector")).get("matchExpressions"))]
    told = [
        (text(one.get("scopeName")), text(one.get("operator")), tuple(map(text, items(one.get("values")))))
        for one in chosen
    ]
    hard, used = (_parse_amounts(mapping(status.get(kind))) for kind in ("hard", "used"))
    return Quota(text(metadata.get("namespace")), text(metadata.get("name")), hard, used, (*plain, *told))


def use_of_pod(spec: Mapping[str, Any]) -> Use:
    """Return the use of every resource of one pod that a quota may limit.

    It is asked for at each event of each pod, so it is counted once for all pods that are alike.
    """
    parts = [map(mapping, items(spec.get(part))) for part in ("initContainers", "containers")]
    asks = [[(one.get("resources"), one.get("restartPolicy")) for one in part] for part in parts]
    alike = repr((asks, spec.get("overhead")))
    found = _KNOWN.get(alike)
    if found is None:
        if len(_KNOWN) >= _KNOWN_LIMIT:
            _KNOWN.clear()
        found = _KNOWN[alike] = _count_use(spec)
    return found


_KNOWN: Final[dict[str, Use]] = {}
_KNOWN_LIMIT: Final = 1000  # most pods of a cluster ask alike; bounds the memory where they do not


def _count_use(spec: Mapping[str, Any]) -> Use:
    use = {"pods": 1000, "count/pods": 1000}
    for kind in _KINDS:
        for name, amount in _asked_amounts(spec, kind).items():
            use[f"{kind}.{name}"] = amount
            if kind == "requests" and (name in _COMPUTE or name.startswith("hugepages-")):
                use[name] = amount
    return tuple(sorted(use.items()))


def _asked_amounts(spec: Mapping[str, Any], kind: str) -> dict[str, int]:
    """The containers together, or the greediest of those that run before them; some of these stay beside all others."""
    staying: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for container in items(spec.get("initContainers")):
        amounts = Counter(dict(_amounts_of_container(container, kind)))
        most |= staying + amounts
        if mapping(container).get("restartPolicy") == "Always":
            staying += amounts
    together = sum(
        (Counter(dict(_amounts_of_container(container, kind))) for container in items(spec.get("containers"))), staying
    )
    most |= together
    for name, amount in _parse_amounts(mapping(spec.get("overhead"))):
        if kind == "requests" or name in most:
            most[name] += amount
    return most


def _amounts_of_container(container: object, kind: str) -> Use:
    return _parse_amounts(mapping(mapping(mapping(container).get("resources")).get(kind)))


def _parse_amounts(told: Mapping[str, Any]) -> Use:
    read = ((name, parse_thousandths(str(amount))) for name, amount in told.items())
    return tuple((name, amount) for name, amount in read if amount is not None)


@lru_cache(maxsize=4096)
def parse_thousandths(quantity: str) -> int | None:
    """Parse a quantity into thousandths, rounded up as the server does; None: it is none."""
    found = _NUMBER.fullmatch(quantity)
    if found is None or found.group(3) not in _SUFFIXES:
        return None
    exact = Fraction(found.group(1)) * Fraction(10) ** int(found.group(2) or 0) * _SUFFIXES[found.group(3)] * 1000
    return -((-exact.numerator) // exact.denominator)
