"""A job that a newer operator has written about is still a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from hajob.api.job import HATrainingJob

EXAMPLE = Path(__file__).parents[3] / "examples/quickstart.yaml"


def read(**status: Any) -> HATrainingJob:
    return HATrainingJob.from_object({**yaml.safe_load(EXAMPLE.read_text()), "status": status})


def test_words_of_a_newer_operator_are_left_out_of_the_account() -> None:
    incident = {"incarnation": 2, "startTime": "2026-11-22T10:00:00Z", "cause": {"source": "Agent", "code": "X"}}
    assert read(fence=4, incidents=[incident]).status.incidents[0].incarnation == 2
    newer = {**incident, "outcome": "Postponed"}
    job = read(fence=4, journal="{}", journalVersion=3, incidents=[newer], dataParallel={"desired": "many"})
    assert (job.status.fence, job.status.journal, job.status.journal_version) == (4, "{}", 3)
    assert (job.status.incidents, job.status.data_parallel) == ((), None)


@pytest.mark.parametrize("status", [{"journal": 5}, {"fence": "x"}, {"journalVersion": {}, "incidents": 4}])
def test_what_decides_is_not_left_out(status: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        read(**status)


def test_a_spec_that_cannot_be_read_is_refused() -> None:
    raw = yaml.safe_load(EXAMPLE.read_text())
    raw["spec"]["numNodes"] = "many"
    with pytest.raises(ValidationError, match="numNodes"):
        HATrainingJob.from_object({**raw, "status": {"incidents": 4}})
