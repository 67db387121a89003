"""A training that has finished under a script that ended with an error: complete, and the difference is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hajob.api.job import HATrainingJob
from hajob.job.status.build import Snapshot, build_status
from hajob.plan.state import JobPhase, JobState
from hajob.sources.pod import PodView, pod_view_of

QUICKSTART = Path(__file__).parents[4] / "examples" / "quickstart.yaml"

LAST_WORD = "the training has finished; the start script ended with 1 after it\ntee: logs/x: No such file or directory"


def pod(code: int, message: str, container: str = "trainer") -> dict[str, Any]:
    ended = {"exitCode": code, "message": message}
    return {
        "status": {"phase": "Succeeded", "containerStatuses": [{"name": container, "state": {"terminated": ended}}]}
    }


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (pod(0, LAST_WORD), LAST_WORD),
        (pod(0, ""), ""),
        (pod(1, "Traceback"), ""),
        (pod(0, "bye", "helper"), ""),
    ],
)
def test_what_a_finished_container_left(raw: dict[str, Any], word: str) -> None:
    assert pod_view_of(raw).last_word == word


@pytest.mark.parametrize(("word", "reason"), [(LAST_WORD, "ScriptDisagrees"), ("", "AllRanksFinished")])
def test_a_complete_job_tells_what_its_script_said(word: str, reason: str) -> None:
    job = HATrainingJob.model_validate(yaml.safe_load(QUICKSTART.read_text(encoding="utf-8")))
    pods = [PodView("default", "one", "uid", "job", "rank", 0, 1, phase="Succeeded", last_word=word)]
    status = build_status(Snapshot(job, JobState(phase=JobPhase.COMPLETE), 1, 1_000, pods=pods))
    complete = next(each for each in status.conditions if each.type == "Complete")
    assert (complete.status, complete.reason) == ("True", reason)
    assert word in complete.message
