"""Faults that a running stress test causes itself are the test's, and nobody acts on them."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.domain.facts import FactKind, Source
from hajob.domain.hardware import ClusterFact
from hajob.job.observe import is_of_stress_test
from hajob.plan import events as e
from hajob.plan.state import JobState
from tests.rigs.plan_moments import pausing
from tests.rigs.snapshots import RUNNING, snapshot

TEST: dict[str, Any] = {"requestTime": "2026-11-22T01:00:00Z", "stressTest": {}}


def held() -> JobState:
    """Every rank waits."""
    rig = pausing()
    rig.tell(e.Stopped(2, ()))
    return rig.state


PAUSED = held()


def fault(code: str) -> ClusterFact:
    return ClusterFact("id", Source.DEVICE, FactKind.CHIP_FAULT, "node-1", code=code)


@pytest.mark.parametrize(
    ("pause", "state", "code", "own"),
    [
        (TEST, PAUSED, "80818C05", True),
        (TEST, PAUSED, "80818c06", True),
        (TEST, PAUSED, "80E01801", False),
        (TEST, RUNNING, "80818C05", False),
        ({**TEST, "stressTest": None}, PAUSED, "80818C05", False),
    ],
)
def test_only_codes_of_a_running_test_are_its_own(pause: Any, state: Any, code: str, *, own: bool) -> None:
    assert is_of_stress_test(snapshot({"pause": pause}, state=state), fault(code)) is own
