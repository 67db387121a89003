"""Whose fault the end of a coordinator pod is, read from the pod alone."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.pods.coordinator_pod import coordinator_pod
from hajob.pods.settings import PodSettings
from hajob.sources.pod import pod_view_of
from tests.rigs.example_jobs import example_job


def ended(reason: str = "", exit_code: int | None = None, phase: str = "Failed") -> dict[str, Any]:
    """A coordinator pod that is over."""
    status: dict[str, Any] = {"phase": phase}
    if exit_code is None:
        status["reason"] = reason
    else:
        terminated = {"exitCode": exit_code, "reason": reason}
        status["containerStatuses"] = [{"name": "controller", "state": {"terminated": terminated}}]
    return {"metadata": {"name": "job-coordinator"}, "status": status}


@pytest.mark.parametrize(
    ("pod", "by_itself"),
    [
        pytest.param(ended("ContainerCannotRun", 128), True, id="not in the image"),
        pytest.param(ended("Error", 1), True, id="exit code 1"),
        pytest.param(ended("OOMKilled", 137), False, id="killed"),
        pytest.param(ended("Evicted"), False, id="evicted"),
        pytest.param(ended("Completed", 0, phase="Succeeded"), False, id="finished"),
    ],
)
def test_only_a_program_that_failed_has_failed_by_itself(pod: dict[str, Any], by_itself: bool) -> None:
    assert pod_view_of(pod).failed_by_itself is by_itself


def test_where_it_serves_is_read_from_the_pod() -> None:
    pod = coordinator_pod(example_job("quickstart", network={"coordinatorPort": 7170}), 1, PodSettings("image"))
    assert pod_view_of(pod).port == 7170


@pytest.mark.parametrize("ports", [[], None, "7170", [None], [{"name": "coordinator"}], [{"containerPort": 7170}]])
def test_one_that_does_not_say_serves_where_all_did(ports: Any) -> None:
    """Versions up to 0.1 declared ports in the node's network only."""
    assert pod_view_of({"spec": {"containers": [{"name": "controller", "ports": ports}]}}).port == 7070


def test_why_a_container_is_started_again_and_again_is_told() -> None:
    """Between two attempts it only waits; what ended it stands in its last state."""
    ended = {"exitCode": 1, "reason": "Error", "message": "cannot serve on 10.0.0.1:7070"}
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}
    told = {"name": "coordinator", "state": {"waiting": waiting}, "lastState": {"terminated": ended}}
    pod = pod_view_of({"status": {"phase": "Pending", "initContainerStatuses": [told]}})
    assert pod.trouble == "container coordinator: Error: cannot serve on 10.0.0.1:7070"
    assert pod.exit_code is None
