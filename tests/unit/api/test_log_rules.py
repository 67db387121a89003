"""Log rules are checked before a line is printed: RE2 refuses some patterns, a healthy training meets others."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from e2e.bootstrap.paths import CHECKOUT
from hajob.api.job import HATrainingJob
from hajob.api.log_rules import log_rule_notes, log_rule_refusal
from hajob.api.spec import HATrainingJobSpec
from hajob.domain import patterns
from tests.rigs.example_jobs import smallest_spec


def ruled(pattern: str, framework: str = "PyTorch", **more: Any) -> HATrainingJobSpec:
    rule = {"name": "mine", "pattern": pattern, **more}
    return smallest_spec(framework=framework, recovery={"logRules": [{"name": "fine", "pattern": "HCCL error"}, rule]})


def test_a_rule_that_cannot_be_served_is_named_with_the_reason() -> None:
    assert log_rule_refusal(ruled("loss: nan")) == ""
    refusal = log_rule_refusal(ruled("loss: (nan"))
    assert refusal.startswith("spec.recovery.logRules, rule mine: the pattern 'loss: (nan' is no regular expression")


@pytest.mark.parametrize(
    ("pattern", "framework", "words"),
    [
        ("nan", "PyTorch", "log rule mine meets what a healthy training prints with its steps, "),
        ("nan", "PyTorch", "number of nan iterations"),
        ("(?i)inf", "PyTorch", "INFO [2026"),
        (".", "PyTorch", "let it match only what a fault prints"),
        ("WARNING", "PyTorch", "while it starts, 'WARNING: could not find"),
        ("(?i)error", "PyTorch", "set its startDelaySeconds, or"),
        ("saving", "PyTorch", "when it saves"),
        ("overflow", "MindSpore", "overflow cond: False"),
    ],
)
def test_a_rule_that_a_healthy_training_meets_is_told(pattern: str, framework: str, words: str) -> None:
    assert words in log_rule_notes(ruled(pattern, framework))


@pytest.mark.parametrize(
    ("pattern", "framework"),
    [
        ("number of nan iterations: +[1-9]", "PyTorch"),
        ("grad norm: (nan|inf)", "PyTorch"),
        ("loss: nan", "PyTorch"),
        ("(?i)nan in local (forward loss|grad norm)", "PyTorch"),
        ("loss: (nan|inf)", "MindSpore"),
        ("overflow cond: True", "MindSpore"),
        ("nan", "MindSpore"),
    ],
)
def test_a_rule_that_only_a_fault_meets_is_not(pattern: str, framework: str) -> None:
    assert log_rule_notes(ruled(pattern, framework)) == ""


def test_a_line_of_the_start_is_kept_off_by_the_start_delay() -> None:
    assert log_rule_notes(ruled("WARNING", startDelaySeconds=300)) == ""
    assert "with its steps" in log_rule_notes(ruled("nan", startDelaySeconds=300))


def test_without_the_engine_a_note_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "re2", None)
    assert log_rule_refusal(ruled("loss: (nan one")) == ""
    assert "log rule mine is not evaluated: 'loss: (nan one' cannot" in log_rule_notes(ruled("loss: (nan one"))


@pytest.mark.parametrize("path", sorted((CHECKOUT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_no_rule_of_an_example_meets_a_healthy_training(path: Any) -> None:
    for raw in yaml.safe_load_all(path.read_text()):
        if raw["kind"] == "HATrainingJob":
            job = HATrainingJob.model_validate(raw)
            assert (log_rule_refusal(job.spec), log_rule_notes(job.spec)) == ("", "")
