"""Lines, grid and table from fixed pictures and accounts."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from e2e.demo.acts import ACTIONS, STEP_MILLISECONDS, Outcome, Switches
from e2e.demo.board import Board, ShownIncident, ShownNode, ShownRank
from e2e.demo.grid import picture
from e2e.demo.lines import changes
from e2e.demo.screen import Screen
from e2e.demo.table import last_line, report
from e2e.harness.account import Recovery

INCIDENT = ShownIncident(2, "SIGKILL, rank 3", "InPlace", "Open", (("Detection", 53), ("Stop", 18)))
BOARD = Board(
    state="Running",
    nodes=(
        ShownNode("node-0", 2, (), 0),
        ShownNode("node-1", 2, (), 1),
        ShownNode("node-2", 2),
        ShownNode("node-cpu", 0, ("operator", "coordinator")),
    ),
    ranks={number: ShownRank(number, 100 + number, 57, "training") for number in range(4)},
    goal=400,
)
PROMISES: dict[str, list[str]] = {"steps never went back": [], "no checkpoint opened": []}
RECOVERY = Recovery(
    fault="rank 3 killed",
    action="InPlace",
    noticed=0.053,
    stopped=0.071,
    decided=0.072,
    restored=0.4,
    outage=0.5761,
    startup=0.35,
    writes={"patch hatrainingjobs/status": 4, "create events": 1},
    promises=PROMISES,
)


def drawn(what: RenderableType, width: int = 80) -> list[str]:
    output = io.StringIO()
    Console(file=output, width=width, color_system=None).print(what)
    return [line.rstrip() for line in output.getvalue().splitlines()]


def test_a_long_line_goes_on_between_two_words() -> None:
    said = "  " + " ".join(["recovered"] * 30)
    for is_terminal, number in ((True, 4), (False, 1)):
        output = io.StringIO()
        screen = Screen(Console(file=output, width=100, force_terminal=is_terminal, color_system=None))
        screen.say(said)
        lines = output.getvalue().splitlines()
        assert len(lines) == number
        assert max(map(len, lines)) <= (100 if is_terminal else 400)
        assert " ".join(lines).split()[2:] == said.split()
        assert {len(line) - len(line.lstrip()) for line in lines[1:]} <= {14}


def test_the_first_picture_says_where_the_ranks_are() -> None:
    assert changes(Board(), BOARD) == [
        "the job is Running",
        "step 57 of 400",
        "node-0 gets ranks 0 to 1",
        "node-1 gets ranks 2 to 3",
    ]


def test_the_same_picture_says_nothing() -> None:
    assert changes(BOARD, BOARD) == []


def test_steps_are_told_now_and_then_and_at_the_end() -> None:
    def at(step: int) -> Board:
        return replace(BOARD, ranks={0: ShownRank(0, 1, step)})

    assert changes(at(51), at(99)) == []
    assert changes(at(99), at(151)) == ["step 151 of 400"]
    assert changes(at(390), at(400)) == ["step 400 of 400"]


def test_an_incident_is_told_when_it_opens_and_when_it_ends() -> None:
    during = replace(BOARD, incidents=(INCIDENT,))
    after = replace(BOARD, incidents=(replace(INCIDENT, outcome="Recovered"),))
    assert changes(BOARD, during) == ["SIGKILL, rank 3: InPlace, Open"]
    assert changes(during, after) == ["SIGKILL, rank 3: InPlace, Recovered; Detection 53 ms + Stop 18 ms = 71 ms"]


def test_a_failed_job_says_why_in_its_line() -> None:
    failed = replace(BOARD, state="Failed", problem="ImageMissing: no such image")
    assert changes(BOARD, failed) == ["the job is Failed: ImageMissing: no such image"]


def test_the_grid_shows_nodes_ranks_step_and_incident() -> None:
    ranks = dict(BOARD.ranks) | {3: ShownRank(3, 103, 57, "killed")}
    text = "\n".join(drawn(picture(replace(BOARD, ranks=ranks, incidents=(INCIDENT,)), "fault 1")))
    words = (
        "node-0",
        "0: 57",
        "3: killed",
        "free",
        "coordinator",
        "57/400",
        "Running",
        "Open",
        "fault 1",
        "1 incident,",
    )
    for word in words:
        assert word in text
    assert "▇" not in text, "the phases of an open incident are not its length"
    over = replace(BOARD, incidents=(replace(INCIDENT, outcome="Recovered"),) * 2)
    text = "\n".join(drawn(picture(over, "")))
    assert all(word in text for word in ("71 ms ▇", "2 incidents, 2 recovered"))


def test_no_column_moves_where_there_is_room() -> None:
    at_rest = drawn(picture(BOARD, ""), 120)
    ranks = {number: ShownRank(number, 100 + number, 57, "rejoining") for number in range(4)}
    assert drawn(picture(replace(BOARD, ranks=ranks), ""), 120)[0] == at_rest[0]


def test_seven_nodes_fit_on_eighty_characters() -> None:
    nodes = tuple(ShownNode(f"node-{number}", 2, (), number) for number in range(4))
    plain = (
        ShownNode("node-4", 2, (), -1),
        *(ShownNode(f"node-cpu-{n}", 0, ("operator", "coordinator")) for n in (0, 1)),
    )
    ranks = {number: ShownRank(number, number, 57, "training") for number in range(8)}
    ranks[7] = ShownRank(7, 7, 57, "resuming")
    board = replace(BOARD, nodes=(*nodes, *plain), ranks=ranks)
    lines = drawn(picture(board, ""))
    assert max(len(line) for line in lines) <= 80
    assert any("7: resuming" in line for line in lines)


def test_the_picture_is_as_high_with_many_incidents() -> None:
    many = replace(BOARD, incidents=tuple(replace(INCIDENT, number=number) for number in range(9)))
    assert len(drawn(picture(BOARD, "x"))) == len(drawn(picture(many, "x")))
    assert max(map(len, drawn(picture(many, "x")))) <= 80


def test_a_node_is_called_what_it_is() -> None:
    nodes = (
        ShownNode("node-0", 2, (), 0),
        ShownNode("node-1", 2, trouble="sick 40F84E00"),
        ShownNode("node-2", 2, trouble="cordoned"),
        ShownNode("node-3", 2, other_job="nlp"),
        ShownNode("node-4", 2, ("spare",), is_reserved=True),
        ShownNode("node-5", 2),
    )
    assert [node.vacancy for node in nodes[1:]] == ["sick 40F84E00", "cordoned", "job nlp", "reserved", "free"]
    text = "\n".join(drawn(picture(replace(BOARD, nodes=nodes), "")))
    assert all(word in text for word in ("sick", "40F84E00", "cordoned", "nlp", "reserved", "free"))


def test_an_endless_training_has_no_goal() -> None:
    endless = replace(BOARD, goal=0, ranks={0: ShownRank(0, 1, 5001, "training")})
    before = replace(endless, ranks={0: ShownRank(0, 1, 4999, "training")})
    assert changes(before, endless) == ["step 5001"]
    assert "5001/" not in "\n".join(drawn(picture(endless, "")))


def test_the_table_has_a_column_per_fault() -> None:
    other = replace(RECOVERY, fault="node-0 powered off", action="Replace", outage=4.0, startup=0.6)
    lines = report([RECOVERY, other]).splitlines()
    told = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "control share" in line]
    assert told == [["control share", "0.226 s", "3.400 s"]]
    assert [line.count("yes") for line in lines if "checkpoint" in line] == [2]


def test_a_broken_promise_is_in_the_table() -> None:
    broken = replace(RECOVERY, promises=PROMISES | {"no checkpoint opened": ["rank 3 opened /ckpt/iter_5"]})
    assert [line.split("|")[2].strip() for line in report([broken]).splitlines() if "checkpoint" in line] == ["no"]
    assert Outcome(2, [broken]).recovered == 0


@pytest.mark.parametrize(("equal", "word"), [(True, "yes"), (False, "no"), (None, "not compared")])
def test_the_last_line(equal: bool | None, word: str) -> None:
    assert last_line(2, 2, equal) == f"demo: 2 faults, 2 recovered, weights equal: {word}"


def test_success_is_six_promised_recoveries_and_equal_weights() -> None:
    every = [replace(RECOVERY, action=action) for action in ACTIONS]
    assert Outcome(6, every, []).is_success
    assert not Outcome(6, every, ["rank 0: differs"]).is_success
    assert not Outcome(6, every, None).is_success
    assert not Outcome(6, [RECOVERY, RECOVERY, *every[2:]], []).is_success  # the second one was to be a replacement
    assert not Outcome(6, every[:5], []).is_success


def test_only_the_pace_is_set_unless_more_is_asked_for() -> None:
    assert Switches(stays=True).environment() == {}
    pace = {"STEP_TIME_MS": str(STEP_MILLISECONDS)}
    assert Switches().environment() == pace
    flipped = {"TRAIN_ITERS": "80", "TOY_FLIP_RESTORED_BYTE": "1"}
    assert Switches(80, flip_restored_byte=True).environment() == pace | flipped


def test_six_faults_fit_on_eighty_characters() -> None:
    every = [replace(RECOVERY, action=action, fault="node-2 off, no spare", outage=12.345) for action in ACTIONS]
    lines = report(every).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(all(action in line for action in ACTIONS) for line in lines)
