"""The fuzzer reaches the inside of objects, and finds what it looks for."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from e2e import fuzz
from hajob.sources import registry
from hajob.sources.reading import Reading, Terms


def test_every_parser_answers_a_few_hundred_damaged_objects(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--inputs", "400", "--seed", "7", "--jobs", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(fuzz.seeds())
    reached = [int(line.split(", ")[1].split()[0]) for line in lines if not line.startswith("settings")]
    assert min(reached) > 20


def test_damage_never_ties_an_object_into_itself() -> None:
    strange = json.dumps(fuzz.STRANGE)
    nested = {"a": [{"b": [[], {}]}, {"": {"c": [1]}}], "d": {"e": [{}]}}
    fuzzer = fuzz.Fuzzer([nested], lambda _: (0,), random.Random(7))
    for _ in range(5000):
        json.dumps(fuzzer.damaged())  # "Circular reference detected", where it would
    assert json.dumps(fuzz.STRANGE) == strange


def test_a_parser_that_raises_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def read(raw: dict[str, Any], _: object) -> Any:
        if not isinstance(raw.get("status"), dict):
            raise KeyError("status")
        return Reading(Terms(0))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "read_object", read)
    assert fuzz.main(["--inputs", "2000", "--seed", "7", "--parser", "node"]) == 1
    assert "KeyError" in (tmp_path / "fuzz-findings/node-7.txt").read_text()
