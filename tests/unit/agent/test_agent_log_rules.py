"""Lines that become facts: thresholds, windows, start delays, and what all rules together may cost."""

from __future__ import annotations

import itertools

from tests.rigs.agent_node import FakeClock
from trainer_sidecar.agent.supervise.log_rules import (
    BURST_SECONDS,
    LINE_CHARACTERS,
    SHARE,
    TOLD_SECONDS,
    LogRules,
    Rule,
)
from trainer_sidecar.launcher.protocol import ProcessName

FIRST = ProcessName(1, 0)


class Rig:
    """Rules and a clock."""

    def __init__(self, *rules: Rule, line_costs: float = 0.0) -> None:
        self.clock = FakeClock()
        ticks = itertools.count()
        self.rules = LogRules(processor_seconds=lambda: next(ticks) * line_costs)  # asked before and after
        self.rules.replace_rules(rules)

    def say(self, text: str, *, rank: int = 0, name: ProcessName = FIRST, after: float = 0) -> list[int]:
        self.clock.pass_seconds(after)
        return [match.count for match in self.rules.match_line(rank, name, text, self.clock.now())]


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
    rig.rules.note_started_process(0, FIRST, rig.clock.now())
    assert rig.say("nan", after=299) == []
    assert rig.say("nan", after=1) == [1]


def test_another_launch_counts_anew_under_other_numbers() -> None:
    """A fact's name has the number in it, and what was reported under a name is not reported again."""
    rig = Rig(Rule("nan", "nan", threshold=2))
    assert [rig.say("nan") for _ in range(3)] == [[], [1], []]
    rig.rules.begin_launch()
    assert [rig.say("nan") for _ in range(2)] == [[], [2]]


def test_the_same_rules_again_go_on_counting() -> None:
    rule = Rule("nan", "nan", threshold=2)
    rig = Rig(rule)
    rig.say("nan")
    rig.rules.replace_rules([rule])
    assert rig.say("nan") == [1]


def test_only_the_beginning_of_a_line_is_looked_at() -> None:
    assert Rig(Rule("end", "end$")).say("x" * LINE_CHARACTERS + "end") == []


def test_a_refused_rule_is_off_and_the_others_work() -> None:
    rig = Rig(Rule("bad", "(nan"), Rule("good", "nan"))
    assert set(rig.rules.switched_off) == {"bad"}
    assert rig.say("nan") == [1]


def test_a_pattern_that_would_run_away_elsewhere_costs_nothing() -> None:
    rig = Rig(Rule("bad", "a*a*a*a*b"))
    assert rig.say("a" * LINE_CHARACTERS) == []
    assert rig.rules.switched_off == {}


def test_costly_rules_leave_lines_out_and_name_the_costliest() -> None:
    rig = Rig(Rule("slow", "nan"), line_costs=BURST_SECONDS)
    assert rig.say("nan") == [1]
    assert rig.say("nan") == []
    assert rig.rules.costliest == "slow"
    assert rig.say("nan", after=SHARE * BURST_SECONDS) == [2]  # what was looked at was


def test_lines_that_were_left_out_once_are_not_told_for_ever() -> None:
    """A program's start prints more than is searched, and then a line now and then for a month."""
    rig = Rig(Rule("slow", "nan"), line_costs=BURST_SECONDS)
    rig.say("nan")
    rig.say("nan")
    rig.say("nan", after=TOLD_SECONDS - 1)
    assert rig.rules.costliest == "slow"
    rig.say("nan", after=TOLD_SECONDS)
    assert rig.rules.costliest == ""


def test_a_machine_that_stands_still_makes_no_rule_slow() -> None:
    rig = Rig(Rule("nan", "nan"))
    assert [rig.say("nan", after=3600) for _ in range(3)] == [[1], [2], [3]]
    assert rig.rules.costliest == ""
