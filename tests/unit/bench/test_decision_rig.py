"""The rig of the rows about decisions: an operator's core, scripted coordinators, one fault and the order about it."""

from __future__ import annotations

import pytest

from e2e.bench import decision
from e2e.cluster.run import Run


def test_a_fault_is_decided_on_the_rig_of_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "OTHER_JOBS", 1)
    with Run.start("a test of the benchmark's rig") as run:
        (seconds,) = decision.decisions(run, rounds=1)
    assert seconds > 0
