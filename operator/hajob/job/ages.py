"""For how long things have been observed without a break."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf


@dataclass(slots=True)
class Ages:
    """First sightings of things by name, in seconds of one clock. What is missing at one look begins anew."""

    since: dict[str, float] = field(default_factory=dict)

    def update_ages(self, names: Iterable[str], now: float) -> Mapping[str, float]:
        """Return the seconds since each of these was first seen."""
        self.since = {name: self.since.get(name, now) for name in names}
        return {name: now - since for name, since in self.since.items()}

    def next_limit_time(self, now: float, *limits: float) -> float:
        """Return when one of these comes to its next limit (seconds of age); inf: none will."""
        return min(
            (since + limit for since in self.since.values() for limit in limits if since + limit > now), default=inf
        )
