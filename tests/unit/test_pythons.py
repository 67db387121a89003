"""`make pythons`: each Python runs what it must, and those that are not here are named and counted."""

from __future__ import annotations

import pytest

from tests.unit import pythons


def played(found: dict[int, str], monkeypatch: pytest.MonkeyPatch, last: str = "3 passed in 1s") -> list[list[str]]:
    calls: list[list[str]] = []

    def run(command: list[str]) -> tuple[int, str]:
        calls.append(command)
        return "failed" in last, last

    monkeypatch.setattr(pythons, "interpreter", found.get)
    monkeypatch.setattr(pythons, "run", run)
    return calls


def test_each_python_runs_what_it_must(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls = played({8: "/p/3.8", 12: "/p/3.12"}, monkeypatch)
    assert pythons.main([]) == 0
    by_itself = [call for call in calls if call[0] == "/p/3.12"]
    assert [call[1:6] for call in by_itself] == [["-m", "e2e.bootstrap", "--python-only", "-m", "pytest"]]
    assert [call[call.index("-k") + 1] for call in calls if "-k" in call] == ["3.8", "3.12"]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1:4] for line in lines if line.startswith("| 3.8 ")] == [
        [" 3.8 ", " not supported ", " 3 passed "]
    ]
    assert lines[-1] == "2 of 8 Pythons are here; not run: 3.7, 3.9, 3.10, 3.11, 3.13, 3.14"


def test_a_test_that_fails_with_one_python_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    played({12: "/p/3.12"}, monkeypatch, "1 failed, 2 passed in 1s")
    assert pythons.main([]) == 1


def test_no_version_is_the_beginning_of_another_ones_name() -> None:
    names = [f"3.{minor}" for minor in pythons.MINORS]
    assert [(one, other) for one in names for other in names if one != other and one in other] == []
