"""Lines of output that mean trouble, counted by rules of the job.

A pattern must never delay the notice of an exit, nor the lease: lines are cut, RE2 takes linear time, and all rules
together take no more than a share of the agent's processor. docs/protocols/launcher.md#log-rules
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hajob.domain.patterns import LinePattern, PatternError
from trainer_sidecar.agent.clock import SECOND
from trainer_sidecar.launcher.protocol import ProcessName

# A pattern is searched in every line: a long one must not cost more than printing it does.
LINE_CHARACTERS = 500
SHARE = 4
"""The rules take at most a quarter of the time in which lines are printed: ten usual rules, 1,000 lines a second."""
BURST_SECONDS = 1.0
"""Processor time that they may take at once: a program's start prints thousands of lines in a moment."""
TOLD_SECONDS = 600
"""For so long after a line was left out that is told: what happened at the start says nothing of today."""


@dataclass(frozen=True)
class Rule:
    """One rule of the job."""

    name: str
    pattern: str
    threshold: int = 1
    start_delay_seconds: int = 0
    window_seconds: int = 60


@dataclass(frozen=True)
class Match:
    """A rule has been met by one process, for the `count`-th time."""

    rule: str
    rank: int
    name: ProcessName
    count: int
    line: str


@dataclass
class _Counter:
    times: deque[int] = field(default_factory=deque)
    met: int = 0


class LogRules:
    """Counts matching lines by rule and process. Times are nanoseconds of the agent's clock."""

    def __init__(self, processor_seconds: Callable[[], float] = time.thread_time) -> None:
        self._processor_seconds = processor_seconds  # no wall clock: a rule is not slow because the machine is busy
        self._rules: tuple[Rule, ...] = ()
        self._patterns: dict[str, LinePattern] = {}
        self._counters: dict[tuple[str, int, ProcessName], _Counter] = {}
        self._started: dict[tuple[int, ProcessName], int] = {}
        self._allowance, self._refilled = BURST_SECONDS, 0
        self._taken: dict[str, float] = {}
        self.switched_off: dict[str, str] = {}
        self.costliest = ""  # of the rules, after a line was left out because of what they cost
        self._left_out = 0  # when that was the last time

    @property
    def is_empty(self) -> bool:
        """Whether no line needs to be looked at."""
        return not self._patterns

    def replace_rules(self, rules: Iterable[Rule]) -> None:
        """Take other rules; the same ones go on counting. Those refused are in `switched_off`, with the reason."""
        wanted = tuple(rules)
        if wanted == self._rules:
            return
        self._rules, self._patterns, self._counters, self.switched_off = wanted, {}, {}, {}
        self._allowance, self._taken, self.costliest = BURST_SECONDS, {}, ""
        for rule in wanted:
            try:
                self._patterns[rule.name] = LinePattern(rule.pattern)
            except PatternError as problem:
                self.switched_off[rule.name] = str(problem)

    def note_started_process(self, rank: int, name: ProcessName, now: int) -> None:
        """Start the start delay of the rules for this process."""
        self._started.setdefault((rank, name), now)

    def begin_launch(self) -> None:
        """Forget the processes of the launch before: those of this one reuse their names, and start only now."""
        for counter in self._counters.values():
            counter.times.clear()
        self._started.clear()

    def match_line(self, rank: int, name: ProcessName, text: str, now: int) -> list[Match]:
        """Return the rules that this line completes; none where earlier lines have used up the rules' share of time."""
        self._refill_allowance(now)
        if self._allowance <= 0:
            self.costliest = self.costliest or max(self._taken, key=self._taken.__getitem__)
            self._left_out = now
            return []
        if now - self._left_out >= TOLD_SECONDS * SECOND:
            self.costliest = ""
        matches = []
        for rule in self._rules:
            pattern = self._patterns.get(rule.name)
            if pattern is None or not self._is_past_start_delay(rule, rank, name, now):
                continue
            if self._search_timed(rule, pattern, text[:LINE_CHARACTERS]):
                counter = self._counters.setdefault((rule.name, rank, name), _Counter())
                if self._count_match(rule, counter, now):
                    matches.append(Match(rule.name, rank, name, counter.met, text[:LINE_CHARACTERS]))
        return matches

    def _refill_allowance(self, now: int) -> None:
        passed = max(0, now - self._refilled) / SECOND
        self._allowance, self._refilled = min(BURST_SECONDS, self._allowance + passed / SHARE), max(now, self._refilled)

    def _is_past_start_delay(self, rule: Rule, rank: int, name: ProcessName, now: int) -> bool:
        started = self._started.setdefault((rank, name), now)
        return now - started >= rule.start_delay_seconds * SECOND

    def _search_timed(self, rule: Rule, pattern: LinePattern, text: str) -> bool:
        before = self._processor_seconds()
        found = pattern.matches_line(text)
        seconds = self._processor_seconds() - before
        self._allowance -= seconds
        self._taken[rule.name] = self._taken.get(rule.name, 0.0) + seconds
        return found

    def _count_match(self, rule: Rule, counter: _Counter, now: int) -> bool:
        counter.times.append(now)
        while rule.window_seconds and now - counter.times[0] > rule.window_seconds * SECOND:
            counter.times.popleft()
        if len(counter.times) < max(rule.threshold, 1):
            return False
        counter.times.clear()
        counter.met += 1
        return True
