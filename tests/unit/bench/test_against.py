"""Two revisions are played in turns and compared by medians, with the interval of their ratio."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.bench import __main__ as bench
from e2e.bench import against
from e2e.bench.against import Comparison, PlayerEndedError, Turn
from e2e.bootstrap.paths import CHECKOUT

SHARE = "InPlace: control share"


class Sides:
    """Two players that note who plays when; each has values of its own."""

    def __init__(self, ours: float = 0.2, theirs: float = 0.4) -> None:
        self.heard: list[str] = []
        self.play = [self._side("ours", ours), self._side("theirs", theirs)]

    def _side(self, name: str, value: float) -> against.Play:
        def play(section: str, rounds: int) -> Turn:
            self.heard.append(f"{name} {section} {rounds}")
            return Turn({SHARE: [value] * rounds}, {SHARE: "s"})

        return play


def turn(*values: float, name: str = SHARE) -> Turn:
    return Turn({name: values}, {name: "s"})


def test_the_order_changes_from_pair_to_pair() -> None:
    sides = Sides()
    against.play_alternately(["in-place"], 4, sides.play, lambda _: None)
    assert [each.partition(" ")[0] for each in sides.heard] == [
        *("ours", "theirs", "theirs", "ours"),
        *("ours", "theirs", "theirs", "ours"),
    ]


def test_a_turn_has_the_rounds_of_its_section() -> None:
    sides = Sides()
    against.play_alternately(["replace", "overhead"], 1, sides.play, lambda _: None)
    assert sides.heard == ["ours replace 4", "theirs replace 4", "ours overhead 1", "theirs overhead 1"]


def test_what_was_played_before_a_side_broke_is_kept() -> None:
    sides = Sides()

    def breaks(section: str, rounds: int) -> Turn:
        if sides.heard[-1].startswith("theirs"):
            raise PlayerEndedError("killed")
        return sides.play[1](section, rounds)

    ours, theirs = against.play_alternately(["in-place"], 4, [sides.play[0], breaks], lambda _: None)
    assert [len(ours), len(theirs)] == [1, 2]
    assert theirs[-1].problems == ["theirs: killed"]
    assert against.compare(ours, theirs)[SHARE].ratio == 0.5


def test_an_interrupted_comparison_keeps_its_turns() -> None:
    def interrupted(section: str, rounds: int) -> Turn:
        raise KeyboardInterrupt

    ours, theirs = against.play_alternately(["in-place"], 2, [Sides().play[0], interrupted], lambda _: None)
    assert len(ours) == 1
    assert theirs[0].problems == ["interrupted"]


def test_a_problem_says_whose_it_is() -> None:
    def lacking(section: str, rounds: int) -> Turn:
        return Turn(problems=["operator-scale: not a section of this revision's benchmark"])

    _, theirs = against.play_alternately(["operator-scale"], 1, [Sides().play[0], lacking], lambda _: None)
    assert theirs[0].problems == ["theirs: operator-scale: not a section of this revision's benchmark"]


def test_medians_and_ratio() -> None:
    found = against.compare([turn(1, 2, 9), turn(3, 2)], [turn(4, 4, 4), turn(5, 1)])
    assert found[SHARE] == Comparison("s", 2, 4, 0.5, found[SHARE].interval)


def test_the_interval_holds_the_true_ratio_and_narrows() -> None:
    draw = random.Random(7)

    def pairs(number: int) -> list[tuple[list[float], list[float]]]:
        return [([draw.gauss(3, 0.3) for _ in range(5)], [draw.gauss(4, 0.3) for _ in range(5)]) for _ in range(number)]

    few, many = against.interval(pairs(3)), against.interval(pairs(30))
    assert few is not None
    assert many is not None
    assert few[0] < 0.75 < few[1]
    assert many[0] < 0.75 < many[1]
    assert many[1] - many[0] < few[1] - few[0]


def test_a_machine_that_grows_slower_does_not_widen_the_interval() -> None:
    drifting = [([scale * 3.0] * 5, [scale * 4.0] * 5) for scale in (1, 1, 1, 2, 2, 2, 2)]
    assert against.interval(drifting) == (0.75, 0.75)


def test_the_same_values_have_the_same_interval() -> None:
    pairs = [([1.0, 2.0, 3.0], [2.0, 3.0, 5.0]), ([1.0, 4.0], [2.0, 3.0])]
    assert against.interval(pairs) == against.interval(pairs)


def test_few_values_have_no_interval() -> None:
    found = against.compare([turn(1, 2), turn(1, 2)], [turn(2, 3), turn(2, 4)])[SHARE]
    assert found.ratio is not None
    assert found.interval is None


@pytest.mark.parametrize("values", [(0.0,) * 6, (-1.0,) * 6])
def test_figures_that_are_not_above_zero_have_no_ratio(values: tuple[float, ...]) -> None:
    assert against.compare([turn(*values)], [turn(*(1.0,) * 6)])[SHARE] == Comparison("s", values[0], 1.0)


def test_a_figure_of_one_side_only_is_shown() -> None:
    found = against.compare([turn(1, name="new")], [turn(2, name="old")])
    assert found == {"new": Comparison("s", 1, None), "old": Comparison("s", None, 2)}
    assert [line.split()[1:9:2] for line in against.table(found).splitlines() if "new" in line or "old" in line] == [
        ["new", "1", "-", "s"],
        ["old", "-", "2", "s"],
    ]


def test_scripts_read_one_line() -> None:
    found = {SHARE: Comparison("s", 0.2, 0.4, 0.5, (0.4, 0.6))}
    line = against.line_for_scripts("866d0287", found, ["ours: broken"])
    assert "\n" not in line
    assert json.loads(line) == {
        "against": "866d0287",
        "figures": {SHARE: {"unit": "s", "ours": 0.2, "theirs": 0.4, "ratio": 0.5, "interval": [0.4, 0.6]}},
        "problems": ["ours: broken"],
    }


def test_sections_that_cannot_be_compared_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, list[str], int]] = []

    def measure(revision: str, sections: list[str], turns: int, output: Path, say: Callable[[str], None]) -> int:
        asked.append((revision, sections, turns))
        return 0

    monkeypatch.setattr(against, "measure", measure)
    arguments = ["--against", "HEAD~3", "--turns", "2", "--only", "in-place", "--only", "frozen"]
    assert bench.main(arguments) == 0
    assert asked == [("HEAD~3", ["in-place"], 2)]
    assert "not played against another revision: frozen" in capsys.readouterr().err


def test_an_unknown_revision_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--against", "no-such-revision", "--only", "in-place"]) == 1
    assert "no-such-revision" in capsys.readouterr().err


def test_every_section_that_is_compared_is_one_of_the_benchmark() -> None:
    assert set(against.ROUNDS_OF_A_TURN) <= set(bench.SECTIONS)


def test_a_player_answers_until_its_input_ends() -> None:
    """The real process, with sections that need no cluster: one that does not exist, and after it another."""
    given = json.dumps({"section": "no-such-section", "rounds": 1}) + "\n"
    command = [sys.executable, "-m", "e2e.bench.player"]
    done = subprocess.run(command, cwd=CHECKOUT, input=2 * given, capture_output=True, text=True, check=True)
    answer = {
        "values": {},
        "units": {},
        "problems": ["no-such-section: not a section of this revision's benchmark"],
    }
    assert [json.loads(line) for line in done.stdout.splitlines()] == [answer, answer]
