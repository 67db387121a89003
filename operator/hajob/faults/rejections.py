"""Unusable parts of fault objects: counted, logged once, and listed for an admin."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from hajob import metrics
from hajob.api.base import Json
from hajob.sources.reading import Rejection, RejectionReason

log = logging.getLogger(__name__)


class Rejections:
    """Rejections by the object that contains them."""

    def __init__(self) -> None:
        self._known: dict[str, Sequence[Rejection]] = {}

    def take(self, origin: str, rejected: Sequence[Rejection]) -> None:
        """Store the current rejections of an object; log only the new ones."""
        known = self._known.pop(origin, ())
        for one in known:
            metrics.REJECTED.labels(one.reason).dec()
        for one in rejected:
            metrics.REJECTED.labels(one.reason).inc()
            if one not in known:
                metrics.REFUSED.labels(f"fault source: {one.reason}").inc()
                log.warning("%s: %s", origin, one.message)
        if rejected:
            self._known[origin] = tuple(rejected)

    def found(self, reason: RejectionReason) -> set[str]:
        """Return the values that are rejected now for this reason."""
        return {one.found for row in self._known.values() for one in row if one.reason is reason}

    def report(self, most: int) -> Json:
        """Return how many there are by reason, and at most `most` of them."""
        rows = [
            {"object": origin, "reason": one.reason, "where": one.where, "message": one.message}
            for origin, row in self._known.items()
            for one in row
        ]
        return {"rejectedByReason": dict(Counter(one["reason"] for one in rows)), "rejected": rows[:most]}
