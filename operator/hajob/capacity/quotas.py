"""How many more pods the ResourceQuotas of a namespace allow. Pure.

A job that grows takes all of its missing pods at once: where a quota has no room for all, none of them is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from hajob.sources.quota import Quota, Use


@dataclass(frozen=True, slots=True)
class Ask:
    """Quota use of one more pod, and its namespace.

    Attributes:
        namespace: of the job.
        use: of one pod, as the server counts it.
        priority_class: of the pod; empty for none.
    """

    namespace: str = ""
    use: Use = ()
    priority_class: str = ""


NOTHING: Final = Ask()


@dataclass(frozen=True, slots=True)
class Allowed:
    """Number of further pods, and the quota that limits it, in words."""

    pods: int
    told: str


@dataclass(slots=True)
class Quotas:
    """All quotas, by namespace and name."""

    known: dict[str, dict[str, Quota]] = field(default_factory=dict)

    def store_quota(self, quota: Quota) -> None:
        """Record a quota as it is now."""
        self.known.setdefault(quota.namespace, {})[quota.name] = quota

    def remove_quota(self, namespace: str, name: str) -> None:
        """Remove a quota that is gone."""
        there = self.known.get(namespace, {})
        there.pop(name, None)
        if not there:
            self.known.pop(namespace, None)

    def allowed_pods(self, ask: Ask, promised: Counter[str] | None = None) -> Allowed | None:
        """Return how many such pods are allowed beside the existing ones; None: no quota applies.

        Args:
            ask: what one of them uses.
            promised: what other jobs of this namespace will use before them, in thousandths.
        """
        found = list(self._limits_by_quota(ask, promised or Counter()))
        return min(found, key=lambda one: (one.pods, one.told)) if found else None

    def _limits_by_quota(self, ask: Ask, promised: Counter[str]) -> Iterator[Allowed]:
        use = dict(ask.use)
        for quota in self.known.get(ask.namespace, {}).values():
            if not quota.counts_pod(ask.use, ask.priority_class):
                continue
            used = dict(quota.used)
            for name, hard in quota.hard:
                if (each := use.get(name, 0)) > 0:
                    # A limit may have been lowered below what is used: then nothing more is allowed, and nothing is
                    # taken away.
                    pods = max((hard - used.get(name, 0) - promised[name]) // each, 0)
                    yield Allowed(pods, f"ResourceQuota {quota.name} allows {pods} more such pods ({name})")
