from pathlib import Path

from e2e.proof import report
from e2e.proof.cells import cells
from e2e.proof.chance import Fault, Round
from e2e.proof.verdict import Result


def ledger(path: Path) -> report.Ledger:
    made = report.read(path / "none.json")
    good = [Result("InPlace/two/update", [], "InPlace", "OptimizerCopy", 2.0, 1.5, share) for share in (0.5, 0.3, 0.4)]
    bad = Result("Replace/node/save", ["rank 3 has processes [1, 2]"])
    report.enter(made, {"InPlace/two/update": good, "Replace/node/save": [bad]}, defaults=False, seed=7)
    rounds = [Round(2, [Fault("kill", 3, 1.25), Fault("freeze", 0, 4.0)], [True], ["InPlace"], ["it broke"], 20)]
    report.enter_rounds(made, 7, rounds, defaults=True)
    return made


def test_the_page_has_every_cell_and_says_what_was_wrong(tmp_path: Path) -> None:
    page = tmp_path / "proof.md"
    report.write(ledger(tmp_path), tmp_path / "proof.json", page)
    text = page.read_text()
    assert "| 0.40 s " in text
    assert "(1 or 3 each)" in text
    assert "own timers" not in text.split("Options go")[0]
    assert text.count(report.FAILED) == 2
    assert "- Replace/node/save: rank 3 has processes [1, 2]" in text
    assert "- round 2: it broke" in text
    assert "kill 3 at 1.2 s, (freeze 0 at 4.0 s)" in text
    assert text.count(report.NOT_PLAYED) > len(cells()) - 4


def test_a_later_run_replaces_only_what_it_has_played(tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    report.write(ledger(tmp_path), path, None)
    again = report.read(path)
    good = {"Replace/node/save": [Result("Replace/node/save", control=1.0)]}
    report.enter(again, good, defaults=True, seed=7)
    assert len(report.failures(again)) == 2, "played with other timers"
    report.enter(again, good, defaults=False, seed=7)
    assert report.failures(again) == ["round 2: it broke"]
    assert set(again[report.SHORT]) == {"InPlace/two/update", "Replace/node/save"}
    report.enter_rounds(again, 8, [], defaults=False)
    assert report.failures(again) == []
