"""Finished steps: the last one all ranks had in common, the newest, and the time without any.

One dictionary entry per step that not everybody has finished, so a step costs the same whether the job has eight
ranks or a thousand.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

KEPT_STEPS = 64
KEPT_TIMES = 101
TOLD_AT_ONCE_SECONDS = 0.25  # a step this long is told as soon as it is finished; launchers gather quicker ones


@dataclass
class _Finish:
    ranks: set[int]
    latest: float


class Steps:
    """What agents told of finished steps; times in seconds of the coordinator's clock."""

    def __init__(self) -> None:
        self._open: dict[int, _Finish] = {}
        self._common: tuple[int, float] | None = None
        self._times: deque[float] = deque(maxlen=KEPT_TIMES)
        self._last: dict[int, int] = {}
        self._unheard: set[int] = set()
        self.newest = -1
        self.latest: float | None = None

    def finished(self, rank: int, step: int, at: float, num_ranks: int) -> None:
        """`rank` finished `step` at `at`; `num_ranks` take part."""
        self.newest = max(self.newest, step)
        self._last[rank] = step
        self._unheard.discard(rank)
        self.latest = at if self.latest is None else max(self.latest, at)
        finish = self._open.setdefault(step, _Finish(set(), at))
        finish.ranks.add(rank)
        finish.latest = max(finish.latest, at)
        if len(finish.ranks) >= num_ranks:
            del self._open[step]
            if self._common is not None and step == self._common[0] + 1:
                self._times.append(finish.latest - self._common[1])
            if self._common is None or step > self._common[0]:
                self._common = (step, finish.latest)
        elif len(self._open) > KEPT_STEPS:
            del self._open[min(self._open)]

    @property
    def common(self) -> tuple[int, float] | None:
        """The last step that every rank finished, and when the last one did."""
        return self._common

    def lose_sight(self, ranks: Iterable[int]) -> None:
        """Nobody is left who could tell of these ranks' last steps."""
        self._unheard.update(ranks)

    def leave_out(self, ranks: Iterable[int]) -> None:
        """These ranks take part no longer."""
        self._unheard.difference_update(ranks)

    def last_common(self, num_ranks: int) -> tuple[int, float] | None:
        """The last step that every rank finished, as far as those out of sight can have, and when the last one did."""
        found = self._common
        for step, finish in self._open.items():
            if (found is None or step > found[0]) and self._may_be_common(step, finish.ranks, num_ranks):
                found = (step, finish.latest)
        return found

    def _may_be_common(self, step: int, finished: set[int], num_ranks: int) -> bool:
        """Whether no rank is known not to have finished `step`.

        Silence of one out of sight tells that, where steps are long enough to be told at once and its agent was heard
        up to the step before: the others cannot be two steps ahead, so of an earlier silence it is the way to here
        that was lost.
        """
        heard = finished - self._unheard
        if not heard or len(heard) < num_ranks - len(self._unheard):
            return False
        median = self.median_seconds
        if median is None or median < TOLD_AT_ONCE_SECONDS:
            return True
        return all(self._last.get(rank) != step - 1 for rank in self._unheard - finished)

    @property
    def median_seconds(self) -> float | None:
        """Of the last hundred steps; None before the second one."""
        return statistics.median(self._times) if self._times else None

    def behind(self, ranks: Iterable[int]) -> set[int]:
        """Those of `ranks` that have not finished the newest step that one of them has."""
        steps = {rank: self._last.get(rank, -1) for rank in ranks}
        newest = max(steps.values(), default=-1)
        return {rank for rank, step in steps.items() if step < newest}

    def roll_back(self) -> None:
        """Steps will be repeated: what only some had finished does not count."""
        self._open.clear()
        if self._common is not None:
            self.newest = self._common[0]

    def go_back(self, step: int) -> None:
        """Every rank goes on from the checkpoint of `step`."""
        self._open.clear()
        self._last.clear()
        self._common, self.newest = None, step

    def begin_again(self) -> None:
        """A new attempt may go on from an older checkpoint."""
        self._open.clear()
        self._times.clear()
        self._last.clear()
        self._unheard.clear()
        self._common, self.newest, self.latest = None, -1, None
