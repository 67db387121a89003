"""Logs are read on from where the last look ended, whatever the writer is at."""

from __future__ import annotations

import json
from pathlib import Path

from e2e.bootstrap.paths import CHECKOUT
from e2e.demo.acts import EXAMPLE, STEPS, VOLUME
from e2e.demo.witness import RankLogs


def line(step: int) -> str:
    return json.dumps({"rank": 0, "pid": 1, "event": "step_end", "step": step})


def test_a_line_that_is_being_written_is_read_once_it_is_whole(tmp_path: Path) -> None:
    logs = RankLogs(tmp_path)
    assert logs.read() == {}
    path = tmp_path / "events-rank0.jsonl"
    whole, half = line(1) + "\n", line(2)
    path.write_text(whole + half[:9])
    assert logs.read()[0].step == 1
    path.write_text(whole + half + "\n")
    assert logs.read()[0].step == 2


def test_the_demo_knows_its_example() -> None:
    assert f"path: {VOLUME}" in EXAMPLE.read_text()
    assert f"TRAIN_ITERS:-{STEPS}}}" in (CHECKOUT / "e2e/trainer/image/train.sh").read_text()
