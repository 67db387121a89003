"""What the pods of a pod set ask for, counted as Kueue counts it. Pure; amounts are thousandths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

_SUFFIXES: Final = {"m": 1, "k": 10**6, "M": 10**9, "G": 10**12, "T": 10**15} | {
    f"{letter}i": 1000 * 1024**power for power, letter in enumerate("KMGT", 1)
}


def thousandths(quantity: object) -> int:
    """Return a quantity in thousandths."""
    written = str(quantity)
    suffix = written.lstrip("0123456789.")
    number = float(written.removesuffix(suffix) if suffix else written)
    return round(number * (_SUFFIXES[suffix] if suffix else 1000))


def requests_of_pod(spec: Mapping[str, Any]) -> Counter[str]:
    """Return what one pod asks for: sidecars beside the containers, other init containers as their maximum.

    A request that is missing is taken from the limit.
    """
    staying, most = Counter[str](), Counter[str]()
    for container in spec.get("initContainers") or []:
        asked = _of_container(container)
        most |= staying + asked
        if container.get("restartPolicy") == "Always":
            staying += asked
    return most | sum((_of_container(one) for one in spec.get("containers") or []), staying)


def _of_container(container: Mapping[str, Any]) -> Counter[str]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return Counter({name: thousandths(amount) for name, amount in asked.items()})
