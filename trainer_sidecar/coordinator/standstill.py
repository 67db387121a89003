"""What is remembered of a training that stands still. Only this module changes it; hang.py decides by it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Standstill:
    """No step has ended for too long. Before it is told, the ranks are asked where they stand."""

    since: float  # the end of the last step
    asked: float
    ranks: frozenset[int]
    stacks: dict[int, str] = field(default_factory=dict)
    told: bool = False


@dataclass(slots=True)
class StandstillWatch:
    """Since when steps are expected, and the standstill that was found."""

    since: float | None = None
    found: Standstill | None = None

    def rest(self) -> None:
        """No step is expected."""
        self.since = self.found = None

    def expect(self, now: float) -> float:
        """Steps are expected; since when. What held the training up until then was no hang."""
        self.since = now if self.since is None else self.since
        return self.since

    def find(self, since: float, now: float, ranks: Iterable[int]) -> Standstill:
        """These ranks are asked where they stand."""
        self.found = Standstill(since, now, frozenset(ranks))
        return self.found

    def take_stack(self, ranks: Iterable[int], stack: str) -> None:
        """Where ranks stand; late answers are in their kept output only."""
        if self.found is not None and not self.found.told:
            self.found.stacks.update(dict.fromkeys(ranks, stack))

    def tell(self) -> None:
        """It is told once."""
        if self.found is not None:
            self.found.told = True
