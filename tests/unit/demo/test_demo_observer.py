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
        self.uid = "one"
        self.nodes: list[dict[str, Any]] = []
        self.pods: list[dict[str, Any]] = []
        lists = {"/api/v1/nodes": lambda: self.nodes, "/api/v1/pods": lambda: self.pods}
        read = SimpleNamespace(items=lambda path: lists.get(path, list)(), find=lambda _path: None)
        self.plane = SimpleNamespace(api=read)
        self.name, self.namespace = "quickstart", "default"

    def get(self) -> dict[str, Any]:
        if isinstance(self.answer, ApiError):
            raise self.answer
        return {"metadata": {"uid": self.uid}, "status": self.answer}


def watched(tmp_path: Path, answer: dict[str, Any] | ApiError) -> tuple[FakeJob, Observer]:
    (tmp_path / "events-rank0.jsonl").write_text(line(7) + "\n")
    job = FakeJob(tmp_path, answer)
    return job, Observer(cast("Job", job), Screen(Console(file=io.StringIO())), goal=9)


def observer(tmp_path: Path, answer: dict[str, Any] | ApiError) -> Observer:
    return watched(tmp_path, answer)[1]


def rank_pod(name: str, node: str, incarnation: int) -> dict[str, Any]:
    labels = {f"training.hajob.io/{key}": value for key, value in {"role": "rank", "node-rank": "0"}.items()}
    labels["training.hajob.io/incarnation"] = str(incarnation)
    return {"metadata": {"name": name, "labels": labels}, "spec": {"nodeName": node}}


def recovering(outcome: str = "Open", action: str = "Replace", ranks: int = 1) -> dict[str, Any]:
    cause = {"code": "PodLost", "firstRank": 0 if ranks else -1, "numRanks": ranks}
    incident = {"incarnation": 2, "cause": cause, "action": action, "outcome": outcome}
    return {"summary": {"state": "Recovering"}, "incidents": [incident]}


def test_ranks_stand_lost_or_still_while_a_job_recovers(tmp_path: Path) -> None:
    job, watching = watched(tmp_path, RUNNING)
    job.nodes = [{"metadata": {"name": name}, "status": {"capacity": {}}} for name in ("node-0", "node-1")]
    job.pods = [rank_pod("a", "node-0", 1)]
    (tmp_path / "events-rank1.jsonl").write_text(line(7).replace('"rank": 0, "pid": 1', '"rank": 1, "pid": 2') + "\n")
    assert {rank.does for rank in watching.look().ranks.values()} == {"training"}
    job.answer = recovering()
    assert [watching.look().ranks[number].does for number in (0, 1)] == ["lost", "waits"]
    job.pods.append(rank_pod("b", "node-1", 2))
    assert [watching.look().ranks[number].does for number in (0, 1)] == ["starting", "starting"]
    assert watching.board.step == 7, "frozen"


def test_who_trains_again_before_its_incident_is_not_lost(tmp_path: Path) -> None:
    """While an operator or a coordinator takes over, an incident is opened late."""
    job, watching = watched(tmp_path, RUNNING)
    began = {"rank": 0, "pid": 2, "t": 1_767_225_600_900_000_000}
    lines = [{**began, "event": "exec"}, {**began, "event": "step_end", "step": 8}]
    with (tmp_path / "events-rank0.jsonl").open("a") as log:
        log.writelines(json.dumps(each) + "\n" for each in lines)
    watching.look()
    job.answer = recovering(action="InPlace")
    job.answer["incidents"][0]["startTime"] = "2026-01-01T00:00:00Z"
    assert watching.look().ranks[0].does == "waits"
    job.answer = RUNNING
    assert watching.look().ranks[0].does == "training"


def test_a_planned_move_loses_no_rank(tmp_path: Path) -> None:
    job, watching = watched(tmp_path, RUNNING)
    watching.look()
    job.answer = recovering(action="Migrate") | {"summary": {"state": "Migrating"}}
    assert watching.look().ranks[0].does == "training"


def test_another_job_of_the_same_name_begins_anew(tmp_path: Path) -> None:
    job, watching = watched(tmp_path, RUNNING)
    assert watching.look().step == 7
    job.uid = "two"
    assert watching.look().ranks == {}


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
