"""A real Prometheus scrapes the operators of a local cluster, whose jobs train, wait and fail."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.cluster.prometheus import Prometheus
from e2e.harness.rig import Rig, RigLayout
from hajob.app.job_metrics import JOB_METRICS
from release.generate.alerts import ALERTS, name_of_alert
from release.generate.dashboards import rendered_boards
from tests.integration.metrics.promtool import located, promtool

SMALL = {"tensor": 1, "nodes": 2, "chips": 1, "iterations": 100_000, "step_milliseconds": 100}
SEEN_SECONDS = 30.0
OFTEN_EMPTY = {
    "Waiting jobs", "Incidents a day, by action and outcome", "Incidents by cause", "Steps done again, an hour",
    "Restarts an hour", "Nodes that offend", "Incidents", "Refused checkpoints", "Outage by action",
}  # fmt: skip
"""Panels that show what went wrong: empty where nothing has."""


def expressions_of_boards(namespace: str, job: str) -> Iterator[tuple[str, str]]:
    """Title and expression of each query, with the variables filled."""
    for text in rendered_boards().values():
        for panel in json.loads(text)["panels"]:
            for target in panel.get("targets", ()):
                yield panel["title"], target["expr"].replace("$namespace", namespace).replace("$job", job)


def address_of_operators(rig: Rig) -> list[str]:
    found = rig.plane.api.get(f"/api/v1/namespaces/{rig.operator_namespace}/pods")["items"]
    return [f"{one['status']['podIP']}:8080" for one in found if one["metadata"]["name"].startswith("hajob-operator")]


def scraped(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


@pytest.fixture
def prometheus_directory(tmp_path: Path) -> Path:
    located("prometheus")
    return tmp_path / "prometheus"


def test_boards_and_alerts_on_a_cluster(start_rig: Callable[[RigLayout], Rig], prometheus_directory: Path) -> None:
    rig = start_rig(RigLayout(chip_nodes=4, chips=1, operators=2))
    targets = address_of_operators(rig)
    with Prometheus(prometheus_directory, targets) as prometheus:
        rig.submit("healthy", **SMALL).wait_step(20)
        broken = rig.submit("broken", **SMALL, arguments=["--fault", "rank=1 at=startup do=exit always=1"],
                            spec={"recovery": {"maxProgramFailures": 0}})  # fmt: skip
        broken.wait_condition("Failed")
        rig.submit("waits", **{**SMALL, "nodes": 4})
        namespace = rig.namespace

        def seen(alert: str, job: str) -> Callable[[], bool]:
            return lambda: (alert, job) in prometheus.firing()

        rig.plane.wait("a failed job to fire its alert", seen("HajobJobFailed", "broken"), SEEN_SECONDS)
        waits = f'hajob_job_waiting_seconds{{namespace="{namespace}",job="waits",reason="NoCapacity"}} > 0'
        rig.plane.wait("the wait to be told", lambda: prometheus.query(waits), SEEN_SECONDS)
        assert prometheus.problems_of_targets() == []

        told = scraped(targets[0]) + scraped(targets[1])
        for target in targets:
            assert_promtool_takes(scraped(target))
        missing = {one.name for one in JOB_METRICS} - set(re.findall(r"^# TYPE (\w+?)(?:_total)? ", told, re.MULTILINE))
        assert missing == set()

        for alert in ALERTS:
            prometheus.query(alert.expression)
        empty = {title for title, expr in expressions_of_boards(namespace, "healthy") if not prometheus.query(expr)}
        assert empty <= OFTEN_EMPTY
        firing = prometheus.firing()
        assert not {name for name, job in firing if job == "healthy"} - {"HajobJobUnprotected"}
        assert firing <= {(name_of_alert(alert), job) for alert in ALERTS for job in ("", "broken", "waits", "healthy")}
        assert ("HajobNoLeader", "") not in firing


def assert_promtool_takes(told: str) -> None:
    """Names and help follow Prometheus' rules."""
    done: subprocess.CompletedProcess[str] = promtool("check", "metrics", said=told)
    assert done.returncode == 0, done.stdout + done.stderr
