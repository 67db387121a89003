"""Finished steps: the last one all ranks had in common, the newest, and the time without any.

Two things tell of them. A *line* of output tells exactly when a step ended; Megatron prints it on one rank, MindFormers
on all. A *heartbeat* of MindIO comes from every rank, every two seconds: the step it carries and all before it have
ended by then. So a rank's level is the higher of the two, heartbeats say which steps all ranks have behind them, and
lines, where there are any, when. A line says nothing about the ranks that never print one. A step that heartbeats tell
and no line (Megatron gathers parameters in between, where a fault keeps the ranks) is taken to have ended as long after
the newest line as steps last.

One dictionary entry per step that not everybody has finished, so a step costs the same whether the job has eight
ranks or a thousand.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from hajob.domain.pace import StepTimes
from trainer_sidecar.coordinator.state.standstill import StandstillWatch

# Where a rank tells nothing no step is common to all, and the newest ones alone are of use.
KEPT_STEPS = 64
# The median of an odd number is one of them. Enough that saves and evaluations in between do not count.
KEPT_TIMES = 101
ENOUGH_TIMES = 20  # of fewer the 95th percentile is the longest one
SLOW_SHARE = 0.95
TOLD_AT_ONCE_SECONDS = 0.25  # a step this long is told as soon as it is finished; launchers gather quicker ones


@dataclass
class _Finish:
    """Who is known to have finished a step, and when: the last of those who printed it, or else the first heartbeat.

    `earliest` is the last heartbeat of before the step, of any rank that has told of it.
    """

    latest: float
    printed: bool
    earliest: float = -math.inf
    ranks: set[int] = field(default_factory=set)


class Steps:
    """What agents told of finished steps; times in seconds of the coordinator's clock."""

    def __init__(self) -> None:
        self._open: dict[int, _Finish] = {}
        self._common: tuple[int, float] | None = None
        self._is_common_printed = False
        self._line: tuple[int, float] | None = None  # the newest line since the ranks went on: its step, and when
        self._first_line: tuple[int, float] | None = None  # the newest step with a line since then, and its first one
        self._line_times: deque[float] = deque(maxlen=KEPT_TIMES)  # seconds from one step's line to the next one's
        self._times: deque[float] = deque(maxlen=KEPT_TIMES)  # seconds of a step on all ranks, by lines
        self._beat_times: deque[float] = deque(maxlen=KEPT_TIMES)  # … by the heartbeats of one rank
        self._beaten_at: dict[int, float] = {}
        self._printed: dict[int, int] = {}
        self._beaten: dict[int, int] = {}
        self._levels: dict[int, int] = {}
        self._ranks_at: Counter[int] = Counter()  # how many ranks have each level
        self._unheard: set[int] = set()
        self._first: tuple[int, float] | None = None  # the first one told of since the attempt began, and when
        self.newest = -1
        self.reached = -1  # the newest of all, also before ranks rolled back
        self.latest: float | None = None
        self.standstill = StandstillWatch()

    def note_printed_step(self, rank: int, step: int, at: float, num_ranks: int) -> None:
        """Note that `rank` has printed that it finished `step` at `at`; `num_ranks` take part."""
        self._printed[rank] = step
        self._unheard.discard(rank)
        self._time_line(step, at)
        self._line = max(self._line or (step, at), (step, at))
        self._note_newest(step, at)
        finish = self._open.get(step)
        if finish is None:
            finish = self._open[step] = _Finish(at, printed=True)
        finish.latest = max(finish.latest, at) if finish.printed else at
        finish.printed = True
        finish.ranks.add(rank)
        self._refine_common(step, at)
        self._set_level(rank, max(step, self._beaten.get(rank, step)))
        self._advance_common(num_ranks)

    def _time_line(self, step: int, at: float) -> None:
        """Take the time between the first lines of two steps: whichever rank prints, all end a step together."""
        before = self._first_line
        if before is not None and step <= before[0]:
            return
        if before is not None and at > before[1]:
            self._line_times.append((at - before[1]) / (step - before[0]))
        self._first_line = (step, at)

    def note_heartbeat_step(self, rank: int, step: int, at: float, num_ranks: int) -> None:
        """Note that `rank` had finished `step` by the time of its heartbeat, `at`."""
        before, earlier = self._beaten.get(rank, step), self._beaten_at.get(rank, -math.inf)
        if step > before:
            self._beat_times.append((at - earlier) / (step - before))
        self._beaten[rank], self._beaten_at[rank] = step, at
        self._unheard.discard(rank)
        if step > self.reached:
            self._note_newest(step, at)
            self._open.setdefault(step, _Finish(at, printed=False))
        self.newest = max(self.newest, step)
        finish = self._open.get(step)
        if finish is not None:
            finish.ranks.add(rank)
            if step > before:
                finish.earliest = max(finish.earliest, earlier)
        self._set_level(rank, max(step, self._printed.get(rank, step)))
        self._advance_common(num_ranks)

    def _note_newest(self, step: int, at: float) -> None:
        self._first = self._first or (step, at)
        self.newest = max(self.newest, step)
        self.reached = max(self.reached, step)
        self.latest = at if self.latest is None else max(self.latest, at)

    def _set_level(self, rank: int, level: int) -> None:
        before = self._levels.get(rank)
        if before is not None:
            self._ranks_at[before] -= 1
            if not self._ranks_at[before]:
                del self._ranks_at[before]
        self._levels[rank] = level
        self._ranks_at[level] += 1

    def _advance_common(self, num_ranks: int) -> None:
        """Move the common step up to the lowest level, once every rank has one."""
        if len(self._levels) < num_ranks:
            return
        step = min(self._ranks_at)
        if self._common is not None and step <= self._common[0]:
            if len(self._open) > KEPT_STEPS:
                del self._open[min(self._open)]
            return
        ended = min((one for one in self._open if one >= step), default=None)
        if ended is not None:
            self._become_common(step, self._open[ended], self._estimate_end(ended, self._open[ended]))
        for one in [one for one in self._open if one <= step]:
            del self._open[one]

    def _become_common(self, step: int, ended: _Finish, at: float) -> None:
        before, were_both_printed = self._common, self._is_common_printed and ended.printed
        if before is not None and were_both_printed and at > before[1]:
            self._times.append((at - before[1]) / (step - before[0]))
        self._common, self._is_common_printed = (step, at), ended.printed

    def _estimate_end(self, step: int, finish: _Finish) -> float:
        """When a step ended; of one without a line, as near as lines before it and heartbeats around it tell."""
        median = self.median_seconds
        if finish.printed or self._line is None or median is None:
            return finish.latest
        line, at = self._line
        expected = at + (step - line) * median
        return min(max(expected, finish.earliest), finish.latest)

    def _refine_common(self, step: int, at: float) -> None:
        """A line that comes behind the heartbeats tells better when the common step ended."""
        if self._common is not None and self._common[0] == step:
            self._common, self._is_common_printed = (step, at), True

    @property
    def common_step(self) -> tuple[int, float] | None:
        """The last step that every rank finished, and when the last one did."""
        return self._common

    def first_common_step(self, missing: Collection[int], num_ranks: int) -> tuple[int, float] | None:
        """Return a step of this attempt that every rank has ended, and when, known as early as it can be.

        No rank ends a step that another has not begun: MindIO's trainers update parameters behind a barrier of all
        ranks. So when one rank has ended a later step than the first that was told of, all have ended the first. Ranks
        that are `missing` need not have told of it: MindIO can bring back what the others have trained.
        """
        if self._common is not None or self._first is None:
            return self._common
        told = self._levels.keys() - set(missing)
        all_told = told and len(told) >= num_ranks - len(missing)
        return self._first if all_told or self.reached > self._first[0] else None

    def lose_sight_of_ranks(self, ranks: Iterable[int]) -> None:
        """Note that nobody is left who could tell of these ranks' last steps."""
        self._unheard.update(ranks)

    def leave_out_ranks(self, ranks: Iterable[int]) -> None:
        """Forget ranks that take no part."""
        for rank in ranks:
            self.forget_rank(rank)

    def forget_rank(self, rank: int) -> None:
        """Forget what is known of this rank: its process is gone."""
        self._unheard.discard(rank)
        self._printed.pop(rank, None)
        self._beaten.pop(rank, None)
        self._beaten_at.pop(rank, None)
        level = self._levels.pop(rank, None)
        if level is not None:
            self._ranks_at[level] -= 1
            if not self._ranks_at[level]:
                del self._ranks_at[level]

    def last_common_step(self) -> tuple[int, float] | None:
        """Return the last step that every rank finished, as far as those out of sight can have, and when.

        The time is that of the rank that finished last.
        """
        found = self._common
        for step, finish in self._open.items():
            if (found is None or step > found[0]) and self._may_be_common(step, finish):
                found = (step, self._estimate_end(step, finish))
        return found

    def _may_be_common(self, step: int, finish: _Finish) -> bool:
        """Whether no rank is known not to have finished `step`.

        Somebody who is heard has finished it, so all others have come to its end: no rank ends a step that another
        has not begun to end. Of those that print, silence tells that they have not, and of any rank a heartbeat of the
        step before that came a whole step later. Of one out of sight silence tells it where steps are long enough to be
        told at once and its agent was heard up to the step before: the others cannot be two steps ahead, so of an
        earlier silence it is the way to here that was lost.
        """
        printing = self._printed.keys() - self._unheard
        if not finish.ranks - self._unheard or any(self._levels[rank] < step for rank in printing):
            return False
        median = self.median_seconds
        if median is None:
            return True
        late = self._estimate_end(step, finish) + median
        if any(at > late and self._beaten[rank] < step for rank, at in self._beaten_at.items()):
            return False
        if median < TOLD_AT_ONCE_SECONDS:
            return True
        return all(self._printed.get(rank) != step - 1 for rank in self._unheard - finish.ranks)

    @property
    def median_seconds(self) -> float | None:
        """Of the last hundred steps; None before the second one."""
        times = self._times or self._beat_times
        return statistics.median(times) if times else None

    @property
    def step_times(self) -> StepTimes | None:
        """Of the last hundred steps; None before `ENOUGH_TIMES` of them."""
        times = sorted(self._line_times or self._beat_times)
        if len(times) < ENOUGH_TIMES:
            return None
        return StepTimes(statistics.median_low(times), times[math.ceil(SLOW_SHARE * len(times)) - 1])

    @property
    def hears_heartbeats(self) -> bool:
        """Whether heartbeats tell steps."""
        return bool(self._beaten)

    def told_by_heartbeat(self, rank: int) -> int | None:
        """Return the step in the rank's newest heartbeat that told one; None: there was none."""
        return self._beaten.get(rank)

    def is_repeated_step(self, step: int) -> bool:
        """Return whether a line tells the newest step a second time, as of a rank that was repaired."""
        return step == self.reached and self.hears_heartbeats

    def ranks_behind(self, ranks: Collection[int]) -> set[int]:
        """Return those of `ranks` that are known not to have finished the newest step that one of them has.

        Heartbeats are compared with heartbeats, printed lines with printed lines: a step that is skipped for an
        overflow is printed, and no heartbeat tells of it. Where heartbeats tell, a rank that only prints is not
        compared. A rank that has told nothing is not behind.
        """
        told = self._beaten if any(rank in self._beaten for rank in ranks) else self._printed
        steps = {rank: told[rank] for rank in ranks if rank in told}
        newest = max(steps.values(), default=-1)
        return {rank for rank, step in steps.items() if step < newest}

    def roll_back_to_common(self) -> tuple[int, float] | None:
        """Forget what only some had finished, because steps will be repeated; return the last common step."""
        common = self.last_common_step()
        self._open.clear()
        self._line = self._first_line = None
        if common is not None:
            self._common, self.newest = common, common[0]
        return common

    def reset_to_checkpoint(self, step: int) -> None:
        """Reset every rank to the checkpoint of `step`."""
        self._forget_all()
        self._common, self.newest, self.reached = None, step, step

    def forget_attempt(self) -> None:
        """Forget all steps: a new attempt may go on from an older checkpoint."""
        self._forget_all()
        self._line_times.clear()
        self._times.clear()
        self._beat_times.clear()
        self._unheard.clear()
        self._first = None
        self._common, self.newest, self.reached, self.latest = None, -1, -1, None

    def _forget_all(self) -> None:
        for known in (self._open, self._printed, self._beaten, self._beaten_at, self._levels, self._ranks_at):
            known.clear()
        self._line = self._first_line = None
