"""For how long something has been observed without a break."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hajob.clock import Clock


class SeenSince:
    """The first sightings of things by name. A thing that is missing at one look begins anew.

    Args:
        clock: of the machine.
        wake: called when something that is new at a look comes to one of its limits.
    """

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self._clock, self._wake = clock, wake
        self._since: dict[str, float] = {}

    def look(self, names: Iterable[str], *limits: float) -> Mapping[str, float]:
        """Return the seconds since each of them was first seen; limits are seconds, too."""
        now = self._clock.monotonic()
        known, self._since = self._since, {name: self._since.get(name, now) for name in names}
        if self._since.keys() - known.keys():
            for seconds in limits:
                self._clock.call_later(seconds, self._wake)
        return {name: now - since for name, since in self._since.items()}
