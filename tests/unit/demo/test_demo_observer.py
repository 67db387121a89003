"""Logs are read on from where the last look ended; a wait ends when it must, and says why."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.rest import ApiError
from e2e.demo.acts import EXAMPLE, STEPS, VOLUME
from e2e.demo.observer import DemoError, Observer
from e2e.demo.screen import Screen
from e2e.harness.job import Job

RUNNING = {"summary": {"state": "Running"}}
FAILED = {
    "summary": {"state": "Failed"},
    "conditions": [{"type": "Failed", "status": "True", "reason": "ImageMissing", "message": "no such image"}],
}


def line(step: int) -> str:
    return json.dumps({"rank": 0, "pid": 1, "event": "step_end", "step": step, "t": step})


class FakeJob:
    """A job whose API server answers what it is told to; an error is raised."""

    def __init__(self, logs: Path, answer: dict[str, Any] | ApiError) -> None:
        self.logs = logs
        self.answer = answer
        self.plane = SimpleNamespace(api=SimpleNamespace(items=lambda _path: []))

    def status(self) -> dict[str, Any]:
        if isinstance(self.answer, ApiError):
            raise self.answer
        return self.answer


def observer(tmp_path: Path, answer: dict[str, Any] | ApiError) -> Observer:
    (tmp_path / "events-rank0.jsonl").write_text(line(7) + "\n")
    screen = Screen(Console(file=io.StringIO()))
    return Observer(cast("Job", FakeJob(tmp_path, answer)), screen, goal=9)


def test_what_was_waited_for_is_shown(tmp_path: Path) -> None:
    board = observer(tmp_path, RUNNING).wait("step 7", lambda board: board.step == 7, 10)
    assert board.state == "Running"


def test_a_request_that_fails_leaves_the_rest_to_be_seen(tmp_path: Path) -> None:
    watching = observer(tmp_path, ApiError(503, "ServiceUnavailable", "try again"))
    assert watching.look().step == 7


def test_a_killed_process_is_shown_until_its_successor_comes(tmp_path: Path) -> None:
    watching = observer(tmp_path, RUNNING)
    watching.lost[1] = "killed"
    assert watching.look().ranks[0].does == "killed"
    successor = json.dumps({"rank": 0, "pid": 2, "event": "exec", "t": 9})
    (tmp_path / "events-rank0.jsonl").write_text(line(7) + "\n" + successor + "\n")
    assert watching.look().ranks[0].does == "starting"


def test_a_failed_job_ends_every_wait(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="waiting for the end: ImageMissing: no such image"):
        observer(tmp_path, FAILED).wait("the end", lambda _: False, 10)


def test_a_wait_in_vain_says_how_far_the_job_came(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="for the end; the operator has not said a word about the job, at step 0"):
        observer(tmp_path, RUNNING).wait("the end", lambda _: True, 0)


def test_the_demo_knows_its_example() -> None:
    assert f"path: {VOLUME}" in EXAMPLE.read_text()
    assert f"--train-iters ${{TRAIN_ITERS:-{STEPS}}}" in (CHECKOUT / "e2e/trainer/image/train.sh").read_text()
