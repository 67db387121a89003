"""Lines of output that mean trouble, counted by rules of the job.

Patterns are written for RE2, which never takes more than linear time; the standard library's engine may. So what RE2
doesn't have is refused, what could run away is refused, lines are cut, and a rule that was slow once is switched off:
a pattern must never delay the notice of an exit. docs/protocols/launcher.md#log-rules
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from trainer_sidecar.agent.clock import SECOND
from trainer_sidecar.launcher.protocol import ProcessName

LINE_CHARACTERS = 500
OPEN_REPEATS = 4
SLOW_SECONDS = 0.05
NOT_RE2 = re.compile(r"\(\?(?:[=!>]|<[=!]|P=|\()|\\[1-9]|[*+?}]\+")


class PatternError(ValueError):
    """A pattern is not accepted; the text says why."""


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


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The pattern as Python's. PatternError: not RE2, or one that could take for ever."""
    bare = _without_literals(pattern)
    found = NOT_RE2.search(bare)
    if found is not None:
        raise PatternError(f"{found.group()!r} in {pattern!r} is not in RE2")
    repeats = _open_repeats(bare)
    if repeats > OPEN_REPEATS:
        raise PatternError(
            f"{pattern!r} has {repeats} open repeats (*, +, {{n,}}), at most {OPEN_REPEATS} are accepted"
        )
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as problem:
        raise PatternError(f"{pattern!r} is no regular expression: {problem}") from problem


def _without_literals(pattern: str) -> str:
    """Classes and escaped characters as `x`, so that what is left is structure; back references stay."""
    pattern = re.sub(r"\\[^1-9]", "x", pattern)
    return re.sub(r"\[\^?\]?[^\]]*\]", "x", pattern)


def _open_repeats(bare: str) -> int:
    """How many unbounded repeats there are. PatternError: one repeats another."""
    open_inside = [False]
    count = 0
    closed_open = False  # the group that has just ended holds an open repeat
    for position, character in enumerate(bare):
        if character == "(":
            open_inside.append(False)
        elif character == ")" and len(open_inside) > 1:
            closed_open = open_inside.pop()
            open_inside[-1] = open_inside[-1] or closed_open
            continue
        elif character in "*+" or (character == "{" and re.match(r"\{\d*,\}|\{\d{2,}", bare[position:])):
            if closed_open:
                raise PatternError(f"a repeat of a repeat in {bare!r} could take for ever")
            open_inside[-1] = True
            count += 1
        closed_open = False
    return count


class LogRules:
    """Counts matching lines by rule and process. Times are nanoseconds of the agent's clock."""

    def __init__(self, stopwatch: Callable[[], float] = time.perf_counter) -> None:
        self._stopwatch = stopwatch
        self._rules: tuple[Rule, ...] = ()
        self._patterns: dict[str, re.Pattern[str]] = {}
        self._counters: dict[tuple[str, int, ProcessName], _Counter] = {}
        self._started: dict[tuple[int, ProcessName], int] = {}
        self.switched_off: dict[str, str] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no line needs to be looked at."""
        return not self._patterns

    def set_rules(self, rules: Iterable[Rule]) -> None:
        """Take other rules; the same ones go on counting. Those refused are in `switched_off`, with the reason."""
        wanted = tuple(rules)
        if wanted == self._rules:
            return
        self._rules, self._patterns, self._counters, self.switched_off = wanted, {}, {}, {}
        for rule in wanted:
            try:
                self._patterns[rule.name] = compile_pattern(rule.pattern)
            except PatternError as problem:
                self.switched_off[rule.name] = str(problem)

    def process_started(self, rank: int, name: ProcessName, now: int) -> None:
        """The start delay counts from here."""
        self._started.setdefault((rank, name), now)

    def line(self, rank: int, name: ProcessName, text: str, now: int) -> list[Match]:
        """The rules that this line completes."""
        matches = []
        for rule in self._rules:
            pattern = self._patterns.get(rule.name)
            if pattern is None or not self._counts(rule, rank, name, now):
                continue
            if self._search(rule, pattern, text[:LINE_CHARACTERS]):
                counter = self._counters.setdefault((rule.name, rank, name), _Counter())
                if self._count(rule, counter, now):
                    matches.append(Match(rule.name, rank, name, counter.met, text[:LINE_CHARACTERS]))
        return matches

    def _counts(self, rule: Rule, rank: int, name: ProcessName, now: int) -> bool:
        started = self._started.setdefault((rank, name), now)
        return now - started >= rule.start_delay_seconds * SECOND

    def _search(self, rule: Rule, pattern: re.Pattern[str], text: str) -> bool:
        before = self._stopwatch()
        found = pattern.search(text) is not None
        seconds = self._stopwatch() - before
        if seconds > SLOW_SECONDS:
            del self._patterns[rule.name]
            self.switched_off[rule.name] = f"{rule.pattern!r} took {seconds * 1000:.0f} ms for one line"
        return found

    def _count(self, rule: Rule, counter: _Counter, now: int) -> bool:
        counter.times.append(now)
        while rule.window_seconds and now - counter.times[0] > rule.window_seconds * SECOND:
            counter.times.popleft()
        if len(counter.times) < max(rule.threshold, 1):
            return False
        counter.times.clear()
        counter.met += 1
        return True
