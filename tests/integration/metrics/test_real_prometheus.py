"""A real Prometheus scrapes the operators of a local cluster, whose jobs train, recover, wait and fail."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from e2e.cluster.prometheus import Prometheus, Series
from e2e.harness.rig import Rig, RigLayout
from hajob.app.job_metrics import JOB_METRICS
from release.generate.alerts import ALERTS, name_of_alert
from release.generate.dashboards import VALUE, rendered_boards
from tests.integration.metrics.promtool import located, promtool

Json = dict[str, Any]
SMALL: Json = {"tensor": 1, "nodes": 2, "chips": 1, "iterations": 100_000}
SAVES = ["--save-interval", "10"]
FAILS = ["--fault", "rank=1 at=startup do=exit always=1"]
SEEN_SECONDS = 30.0
SHOWN_SECONDS = 180
QUIET = {
    "Unprotected jobs, and why", "Missing preconditions", "Steps done again, an hour", "Restarts an hour",
    "Nodes that offend", "Refused checkpoints", "Lost controllers and standing orders",
    "Refused input, restarted controllers",
}  # fmt: skip
"""Panels of what did not happen here; every other one has data."""


class Query(NamedTuple):
    """A query of a board, with the variables filled."""

    board: str
    panel: Json
    expression: str
    legend: str

    @property
    def title(self) -> str:
        return str(self.panel["title"])


def queries_of_boards(namespace: str, job: str) -> Iterator[Query]:
    """Each query of both boards."""
    for path, text in rendered_boards().items():
        for panel in json.loads(text)["panels"]:
            for target in panel.get("targets", ()):
                expression = target["expr"].replace("$namespace", namespace).replace("$job", job)
                yield Query(Path(path).stem, panel, expression, target.get("legendFormat", ""))


def problems_of_legends(told: Iterable[tuple[Query, Sequence[Series]]]) -> Iterator[str]:
    """What is wrong with names: a label that a line or column lacks, or two lines of a panel with one name."""
    known: set[tuple[str, str, str]] = set()
    for query, found in told:
        if query.panel["type"] == "table":
            columns = query.panel["transformations"][0]["options"]["renameByName"].keys() - {VALUE}
            # A label that is empty is none to Prometheus: a row may lack a column.
            unnamed = sorted({label for labels, _ in found for label in labels.keys() - columns})
            yield from (f"{query.title}: column {label} has no heading" for label in unnamed)
        if query.panel["type"] != "timeseries":
            continue
        for labels, _ in found:
            if missing := set(re.findall(r"\{\{(\w+)\}\}", query.legend)) - labels.keys():
                yield f"{query.title}: {query.legend} names {missing}, and the series has {sorted(labels)}"
            name = query.legend
            for label, value in labels.items():
                name = name.replace(f"{{{{{label}}}}}", value)
            if not name or (query.board, query.title, name) in known:
                yield f"{query.title}: two lines are called {name!r}"
            known.add((query.board, query.title, name))


def keep_answers(told: Iterable[tuple[Query, Sequence[Series]]], directory: Path) -> None:
    """Keep what the panels show, for whoever draws them: in `$HAJOB_PICTURES`, or else in the test's directory."""
    directory = Path(os.environ.get("HAJOB_PICTURES") or directory)
    names = ("board", "panel", "expression", "legend", "series")
    kept = [dict(zip(names, (*query, found), strict=True)) for query, found in told]
    (directory / "boards.json").write_text(json.dumps(kept))


def addresses_of_operators(rig: Rig) -> list[str]:
    """Where its operators serve metrics."""
    found = rig.plane.api.get(f"/api/v1/namespaces/{rig.operator_namespace}/pods")["items"]
    return [f"{one['status']['podIP']}:8080" for one in found if one["metadata"]["name"].startswith("hajob-operator")]


def scraped(address: str) -> str:
    """What an operator tells."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


@dataclass(frozen=True)
class Watched:
    """A cluster, and the Prometheus that watches it."""

    rig: Rig
    prometheus: Prometheus

    def wait_firing(self, alert: str, job: str = "") -> None:
        """Wait until an alert fires."""
        wanted = (f"Hajob{alert}", job)
        self.rig.plane.wait(f"{wanted} to fire", lambda: wanted in self.prometheus.firing(), SEEN_SECONDS)

    def wait_data(self, expression: str) -> None:
        """Wait until an expression has a series."""
        self.rig.plane.wait(expression, lambda: self.prometheus.query(expression), SEEN_SECONDS)


def test_boards_and_alerts_on_a_cluster(start_rig: Callable[[RigLayout], Rig], tmp_path: Path) -> None:
    located("prometheus")
    rig = start_rig(RigLayout(chip_nodes=5, chips=1, operators=2))
    targets = addresses_of_operators(rig)
    with Prometheus(rig.plane.run, tmp_path / "prometheus", targets) as prometheus:
        watched = Watched(rig, prometheus)
        broken = rig.submit("broken", **SMALL, arguments=FAILS, spec={"recovery": {"maxProgramFailures": 0}})
        broken.wait_condition("Failed")
        watched.wait_firing("JobFailed", "broken")
        spare = {"scheduling": {"numSpareNodes": 1}}
        job = rig.submit("healthy", **SMALL, arguments=SAVES, spec=spare)
        job.wait_condition("SparesReady")
        job.wait_step(20)
        rig.nodes.control.kill(namespace=rig.namespace, rank=1)
        job.wait_incident(2)
        rig.submit("waits", **SMALL | {"nodes": 4})
        watched.wait_data('hajob_job_waiting_seconds{job="waits",reason="NoCapacity"} > 0')
        watched.wait_data('hajob_job_last_checkpoint_step{job="healthy"} > 0')
        watched.wait_data("increase(hajob_incidents_total[1h]) > 0")

        assert prometheus.problems_of_targets() == []
        assert_every_metric_is_told(targets)
        for alert in ALERTS:
            prometheus.query(alert.expression)
        queries = list(queries_of_boards(rig.namespace, "healthy"))
        told = [(query, prometheus.query_range(query.expression, SHOWN_SECONDS)) for query in queries]
        keep_answers(told, tmp_path)
        assert list(problems_of_legends(told)) == []
        assert {query.title for query in queries if not prometheus.query(query.expression)} <= QUIET
        assert {name for name, of_job in prometheus.firing() if of_job == "healthy"} == set()
        assert {name for name, of_job in prometheus.firing() if not of_job} == set()

        job.patch({"spec": {"scheduling": {"numSpareNodes": 3}}})
        watched.wait_firing("JobSparesMissing", "healthy")
        rig.plane.kubectl("-n", rig.operator_namespace, "scale", "deployment/hajob-operator", "--replicas=0")
        watched.wait_firing("NoLeader")
        known = {(name_of_alert(alert), of_job) for alert in ALERTS for of_job in ("", "broken", "waits", "healthy")}
        assert prometheus.firing() <= known


def assert_every_metric_is_told(targets: Sequence[str]) -> None:
    """Each metric of jobs has a family, and names and help follow Prometheus' rules."""
    told = [scraped(target) for target in targets]
    families = set(re.findall(r"^# TYPE (\w+?)(?:_total)? ", "".join(told), re.MULTILINE))
    assert {one.name for one in JOB_METRICS} <= families
    for each in told:
        done = promtool("check", "metrics", said=each)
        assert done.returncode == 0, done.stdout + done.stderr
