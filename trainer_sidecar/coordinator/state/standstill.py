"""What is remembered of a training that stands still. Only this module changes it; watch/hang.py decides by it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

COMPARED_LINES = 4
"""Innermost frames by which two ranks stand at the same place."""


@dataclass(slots=True)
class Place:
    """Ranks that stand at the same place, and the stack of the lowest of them."""

    lowest: int
    stack: str
    ranks: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Standstill:
    """No step has ended for too long. Before it is told, the ranks are asked where they stand."""

    since: float  # the end of the last step
    asked: float
    ranks: frozenset[int]
    answered: set[int] = field(default_factory=set)
    places: dict[str, Place] = field(default_factory=dict)
    busy: bool = False  # a rank saves or evaluates
    told: bool = False

    def add_stack(self, rank: int, stack: str, *, busy: bool) -> None:
        """Add where a rank stands; of thousands, each answer is looked at when it comes."""
        self.answered.add(rank)
        self.busy = self.busy or busy
        place = self.places.setdefault("\n".join(stack.splitlines()[-COMPARED_LINES:]), Place(rank, stack))
        if rank < place.lowest:
            place.lowest, place.stack = rank, stack
        place.ranks.append(rank)


@dataclass(slots=True)
class StandstillWatch:
    """Since when steps are expected, how long they have taken at most, and the standstill that was found."""

    found: Standstill | None = None
    longest: float = 0.0  # seconds without a step that ended before they were told
    patience: float = 0.0  # seconds that this standstill is given, whatever the rule says
    _begin: float | None = None
    _since: float | None = None

    @property
    def since(self) -> float | None:
        """Since when a step is expected; None while none is."""
        return self._since

    def stop_watching(self) -> None:
        """Stop the watch: no step is expected."""
        self.found = self._begin = self._since = None
        self.patience = 0.0

    def expect_step_since(self, now: float, last_step: float | None) -> float:
        """Return since when a step is expected; what held the training up before any was expected was no hang."""
        self._begin = now if self._begin is None else self._begin
        since = max(last_step or 0.0, self._begin)
        if self._since is not None and since > self._since:
            told = self.found is not None and self.found.told
            self.longest, self.patience = max(self.longest, 0.0 if told else since - self._since), 0.0
        self._since = since
        return since

    def wait_for_slow_work(self, seconds: float) -> None:
        """Wait this many seconds for ranks that do slow work; if it takes longer, they are asked anew."""
        self.found, self.patience = None, seconds

    def begin_standstill(self, since: float, now: float, ranks: Iterable[int]) -> Standstill:
        """Begin a standstill: these ranks are asked where they stand."""
        self.found = Standstill(since, now, frozenset(ranks))
        return self.found

    def add_stacks(self, ranks: Iterable[int], stack: str, *, busy: bool) -> None:
        """Take in where ranks stand, and whether they save or evaluate; late answers are in their kept output only."""
        if self.found is not None and not self.found.told:
            for rank in ranks:
                self.found.add_stack(rank, stack, busy=busy)

    def mark_told(self) -> None:
        """Note that the standstill is told; it is told once."""
        if self.found is not None:
            self.found.told = True
