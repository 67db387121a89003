"""How often another MindIO controller took a lost one's place, and how long each time, as Prometheus hears it."""

from __future__ import annotations

from hajob import metrics
from hajob.job.incident_recorder import IncidentRecorder
from hajob.plan.events import ControllerTakenOver


def sample(name: str) -> float:
    return metrics.REGISTRY.get_sample_value(name) or 0.0


def test_a_takeover_is_counted_with_its_duration() -> None:
    count, seconds = sample("hajob_takeover_seconds_count"), sample("hajob_takeover_seconds_sum")
    IncidentRecorder(None).record_incident(None, ControllerTakenOver(duration_ms=1500))
    assert sample("hajob_takeover_seconds_count") == count + 1
    assert sample("hajob_takeover_seconds_sum") == seconds + 1.5
