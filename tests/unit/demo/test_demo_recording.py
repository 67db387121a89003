"""The recording is an SVG of the moments that matter, in their order, which loads nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from e2e.demo.board import Board, ShownNode, ShownRank
from e2e.demo.recording import LAST_SHOWN, SECONDS_SHOWN, Moment, Recording, chosen_moments, moving_picture

BOARD = Board(
    state="Running",
    nodes=(ShownNode("node-0", 2, (), 0), ShownNode("node-1", 2, (), 1)),
    ranks={number: ShownRank(number, 100 + number, 57, "training") for number in range(4)},
    goal=400,
)
STANDS = replace(BOARD, state="Recovering")
MOMENTS = [
    Moment(1, "starting", BOARD),
    Moment(2, "killing rank 3", BOARD),
    Moment(3, "killing rank 3", STANDS),
    Moment(4, "killing rank 3", STANDS),
    Moment(5, "killing rank 3", STANDS),
    Moment(6, "killing rank 3", BOARD),
]


def test_of_each_deed_the_standstill_and_the_end_are_chosen() -> None:
    assert [moment.seconds for moment in chosen_moments(MOMENTS)] == [1, 4, 6]


def test_the_standstill_that_shows_most_is_chosen() -> None:
    lost = {**BOARD.ranks, 2: ShownRank(2, 102, 57, "lost"), 3: ShownRank(3, 103, 57, "starting")}
    telling = Moment(3.5, "killing rank 3", replace(STANDS, ranks=lost))
    moments = sorted([*MOMENTS, telling], key=lambda moment: moment.seconds)
    assert [moment.seconds for moment in chosen_moments(moments)] == [1, 3.5, 6]


def test_before_there_is_a_training_nothing_is_kept() -> None:
    recording = Recording()
    recording.add_moment(1, "building", Board())
    recording.add_moment(1, "waiting for ranks", replace(BOARD, ranks={}))
    recording.add_moment(2, "starting", BOARD)
    assert [moment.doing for moment in recording.moments] == ["starting"]


def test_it_is_one_picture_that_loads_nothing(tmp_path: Path) -> None:
    recording = Recording()
    for moment in MOMENTS:
        recording.add_moment(*moment)
    path = tmp_path / "pictures" / "demo.svg"
    recording.write(path, "weights equal: yes")
    drawn = path.read_text(encoding="utf-8")
    assert len(ElementTree.fromstring(drawn).findall("{http://www.w3.org/2000/svg}g")) == 4
    assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "").replace("https://www.textualize.io", "")
    assert all(word in drawn for word in ("killing&#160;rank&#160;3", "57", "weights&#160;equal:&#160;yes"))


def test_each_moment_has_its_turn() -> None:
    picture = '<svg viewBox="0 0 10 20"></svg>'
    drawn = moving_picture([picture] * 3)
    whole = 2 * SECONDS_SHOWN + LAST_SHOWN
    begins = [float(found) for found in re.findall(r"\}([\d.]+)%\{opacity:1\}", drawn)]
    assert begins == [round(100 * SECONDS_SHOWN * place / whole, 2) for place in range(3)]
    assert drawn.count(f"{whole:.1f}s infinite") == 3
