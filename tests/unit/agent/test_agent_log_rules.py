"""Lines that become facts: thresholds, windows, start delays, and patterns that must not run away."""

from __future__ import annotations

import pytest

from tests.unit.agent.fakes import FakeClock
from trainer_sidecar.agent.log_rules import LINE_CHARACTERS, LogRules, PatternError, Rule, compile_pattern
from trainer_sidecar.launcher.protocol import ProcessName

FIRST = ProcessName(1, 0)


class Rig:
    """Rules and a clock."""

    def __init__(self, *rules: Rule) -> None:
        self.clock = FakeClock()
        self.rules = LogRules(stopwatch=lambda: 0.0)
        self.rules.set_rules(rules)

    def say(self, text: str, *, rank: int = 0, name: ProcessName = FIRST, after: float = 0) -> list[int]:
        self.clock.pass_seconds(after)
        return [match.count for match in self.rules.line(rank, name, text, self.clock.now())]


def test_the_threshold_in_the_window_meets_the_rule_and_resets() -> None:
    rig = Rig(Rule("nan", "loss: nan", threshold=3, window_seconds=60))
    assert [rig.say("lm loss: nan", after=10) for _ in range(6)] == [[], [], [1], [], [], [2]]


def test_lines_further_apart_than_the_window_do_not_add_up() -> None:
    rig = Rig(Rule("nan", "nan", threshold=2, window_seconds=60))
    assert [rig.say("nan", after=61) for _ in range(5)] == [[]] * 5


def test_ranks_and_processes_are_counted_apart() -> None:
    rig = Rig(Rule("nan", "nan", threshold=2))
    assert rig.say("nan", rank=0) == []
    assert rig.say("nan", rank=1) == []
    assert rig.say("nan", rank=0, name=ProcessName(2, 0)) == []
    assert rig.say("nan", rank=1) == [1]


def test_lines_soon_after_the_start_do_not_count() -> None:
    rig = Rig(Rule("nan", "nan", start_delay_seconds=300))
    rig.rules.process_started(0, FIRST, rig.clock.now())
    assert rig.say("nan", after=299) == []
    assert rig.say("nan", after=1) == [1]


def test_the_same_rules_again_go_on_counting() -> None:
    rule = Rule("nan", "nan", threshold=2)
    rig = Rig(rule)
    rig.say("nan")
    rig.rules.set_rules([rule])
    assert rig.say("nan") == [1]


def test_only_the_beginning_of_a_line_is_looked_at() -> None:
    assert Rig(Rule("end", "end$")).say("x" * LINE_CHARACTERS + "end") == []


@pytest.mark.parametrize(
    "pattern",
    [
        r"loss: nan", r"(?i)error.*HCCL", r"[Ee]rror \d+(\.\d+)?", r"^a{3}b$", r"\(a+\)+", r"[(a+)]+", r"(?P<x>a|b)c",
        r"(a|b)*c", r"(ab{2,5}c)*", r"a\+\+", r"\\1",
    ],
)  # fmt: skip
def test_ordinary_patterns_are_accepted(pattern: str) -> None:
    assert compile_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"(?=a)b", "not in RE2"),
        (r"(?<!a)b", "not in RE2"),
        (r"(a)\1", "not in RE2"),
        (r"(?P<x>a)(?P=x)", "not in RE2"),
        (r"a++b", "not in RE2"),
        (r"(a+)+b", "repeat of a repeat"),
        (r"((a*)b)*c", "repeat of a repeat"),
        (r"(a{2,})*b", "repeat of a repeat"),
        (r"(a+){10,}", "repeat of a repeat"),
        (r".*.*.*.*.*x", "at most 4"),
        (r"(a", "no regular expression"),
        (r"[z-a]", "no regular expression"),
    ],
)
def test_others_are_refused_with_a_reason(pattern: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        compile_pattern(pattern)


def test_a_refused_rule_is_off_and_the_others_work() -> None:
    rig = Rig(Rule("bad", "(a+)+"), Rule("good", "nan"))
    assert set(rig.rules.switched_off) == {"bad"}
    assert rig.say("nan") == [1]


def test_a_slow_rule_is_switched_off_and_says_so() -> None:
    seconds = iter([0.0, 0.2, 1.0, 1.0])
    rules = LogRules(stopwatch=lambda: next(seconds))
    rules.set_rules([Rule("slow", "a.*b.*c"), Rule("fast", "x")])
    rules.line(0, FIRST, "x", 0)
    assert list(rules.switched_off) == ["slow"]
    assert "took 200 ms" in rules.switched_off["slow"]
