"""Each alert on made-up series, by promtool: one set fires it, each of the others does not."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from release.generate import alerts
from release.generate.alerts import ALERTS, Alert, name_of_alert
from tests.integration.metrics.promtool import RULES, promtool

JOB = 'namespace="team",job="qwen",pod="operator-a"'
RUNS = f'hajob_job_condition{{{JOB},type="Running",status="True",reason="Training"}}'
READY, DESIRED = (f'hajob_job_spare_nodes{{{JOB},kind="{kind}"}}' for kind in ("ready", "desired"))
TRAINING, RECOVERY, SUSPENDED = (
    f'hajob_job_goodput_seconds_total{{{JOB},bucket="{bucket}"}}' for bucket in ("Training", "Recovery", "Suspended")
)
STEP, STEP_SECONDS = f"hajob_job_step{{{JOB}}}", f"hajob_job_step_seconds{{{JOB}}}"
FAILED = f'hajob_job_state{{{JOB},state="Failed",reason="ProgramFailed"}}'
UNMET = f'hajob_job_condition{{{JOB},type="Recoverable",status="False",reason="PreconditionsUnmet"}}'
RESTARTS = f'hajob_job_restarts_total{{{JOB},cause="infrastructure"}}'
OPEN = f"hajob_job_open_incident_seconds{{{JOB}}}"
WAITS = f'hajob_job_waiting_seconds{{{JOB},reason="NoCapacity"}}'
CHECKPOINT = f"hajob_job_last_checkpoint_timestamp_seconds{{{JOB}}}"
OF_JOB = {"namespace": "team", "job": "qwen"}

Series = dict[str, str]


class Case(NamedTuple):
    """Series of an alert, a value each minute.

    Attributes:
        minute: at which it is looked.
        fires: series that fire it.
        labels: of what fires.
        summary: what is said then.
        quiet: sets of series that do not fire it.
    """

    minute: int
    fires: Series
    labels: dict[str, str]
    summary: str
    quiet: tuple[Series, ...]


CASES = {
    "JobFailed": Case(
        1_500,
        {FAILED: "_x1400 1x200"},
        {**OF_JOB, "reason": "ProgramFailed"},
        "team/qwen has failed: ProgramFailed.",
        ({FAILED: "1x1600"}, {FAILED: "1x1490 _x100"}),
    ),
    "JobUnprotected": Case(
        15,
        {UNMET: "1x20"},
        OF_JOB,
        "team/qwen trains, but some recovery actions would not work.",
        ({UNMET: "1x8 _x20"}, {UNMET: "_x8 1x20"}),
    ),
    "JobStandsStill": Case(
        22,
        {STEP: "0+1x10 10x20", RUNS: "1x30", STEP_SECONDS: "1.4x30"},
        OF_JOB,
        "team/qwen is said to train, but has ended no step for ten minutes.",
        (
            {STEP: "0+1x30", RUNS: "1x30"},
            {STEP: "10x30", RUNS: "_x18 1x12"},
            {STEP: "10x30", RUNS: "1x30", STEP_SECONDS: "300x30"},
            {STEP: "10x30"},
        ),
    ),
    "JobRestartLoop": Case(
        60,
        {RESTARTS: "0x10 1x10 2x10 3x40"},
        OF_JOB,
        "team/qwen was restarted 3 times within an hour.",
        ({RESTARTS: "5x10 6x10 7x50"}, {RESTARTS: "7x70"}),
    ),
    "JobGoodputLow": Case(
        420,
        {TRAINING: "0+30x500", RECOVERY: "0+30x500"},
        OF_JOB,
        "team/qwen has trained for only 50% of its time on nodes in six hours.",
        (
            {TRAINING: "0+60x500"},
            {TRAINING: "0+30x500", SUSPENDED: "0+30x500"},
            {TRAINING: "_x400 0+30x50", RECOVERY: "_x400 0+30x50"},
        ),
    ),
    "JobOutageLong": Case(
        6,
        {OPEN: "0+60x10"},
        OF_JOB,
        "team/qwen has stood for 6m 0s after a fault.",
        ({OPEN: "0+60x10", RUNS: "1x10"}, {OPEN: "0+30x10"}),
    ),
    "JobWaitsForNodes": Case(
        65,
        {WAITS: "0+60x70"},
        {**OF_JOB, "reason": "NoCapacity"},
        "team/qwen has waited for 1h 5m 0s to be started: NoCapacity.",
        ({WAITS: "0+30x70"},),
    ),
    "JobSparesMissing": Case(
        20,
        {READY: "0x30", DESIRED: "1x30", RUNS: "1x30"},
        OF_JOB,
        "team/qwen has only 0 of its spare nodes.",
        ({READY: "1x30", DESIRED: "1x30", RUNS: "1x30"}, {READY: "0x30", DESIRED: "1x30"}),
    ),
    "JobCheckpointTooOld": Case(
        420,
        {CHECKPOINT: "0x500", RUNS: "1x500"},
        OF_JOB,
        "team/qwen has trained for six hours, and its newest checkpoint is 7h 0m 0s old.",
        ({CHECKPOINT: "0+60x500", RUNS: "1x500"}, {CHECKPOINT: "0x500", RUNS: "_x400 1x100"}),
    ),
    "NodeOffends": Case(
        5,
        {'hajob_node_offences{node="node-7",pod="operator-a"}': "3x10"},
        {"node": "node-7"},
        "node-7 was isolated 3 times within days.",
        ({'hajob_node_offences{node="node-7"}': "2x10"},),
    ),
    "BreakerOpen": Case(
        4,
        {'hajob_breaker_open{pod="a"}': "1x9", 'hajob_breaker_open{pod="b"}': "0x9"},
        {},
        "The breaker is open: faults of nodes and chips are not believed.",
        ({'hajob_breaker_open{pod="a"}': "0x9"}, {'hajob_breaker_open{pod="a"}': "0x3 1x9"}),
    ),
    "NoLeader": Case(
        4,
        {'hajob_leader{pod="a"}': "0x9", 'hajob_leader{pod="b"}': "0x9"},
        {},
        "No operator leads, or none is scraped.",
        ({'hajob_leader{pod="a"}': "1x9", 'hajob_leader{pod="b"}': "0x9"},),
    ),
    "OperatorCutOff": Case(
        4,
        {'hajob_operator_cut_off{pod="a"}': "1x9"},
        {},
        "The leader does not reach most coordinators.",
        ({'hajob_operator_cut_off{pod="a"}': "0x9"},),
    ),
    "JobsOnHold": Case(
        7,
        {'hajob_jobs_on_hold{reason="JournalNewer"}': "2x9"},
        {"reason": "JournalNewer"},
        "2 jobs are left untouched: JournalNewer.",
        ({'hajob_jobs_on_hold{reason="JournalNewer"}': "0x9"},),
    ),
    "CRDDiffers": Case(
        15,
        {'hajob_crd_differences{crd="hatrainingjobs"}': "4x20"},
        {"crd": "hatrainingjobs"},
        "hatrainingjobs differs from the operator in 4 fields.",
        ({'hajob_crd_differences{crd="hatrainingjobs"}': "0x20"},),
    ),
}


def asked(alert: Alert, case: Case) -> list[dict[str, object]]:
    """promtool's tests of one alert."""
    name = name_of_alert(alert)
    (rule,) = [one for one in alerts.build_rules()["groups"][0]["rules"] if one["alert"] == name]
    fired = {
        "exp_labels": {**case.labels, "severity": alert.severity},
        "exp_annotations": {**rule["annotations"], "summary": case.summary},
    }
    expected = [(case.fires, [fired]), *((series, []) for series in case.quiet)]
    return [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "alert_rule_test": [{"eval_time": f"{case.minute}m", "alertname": name, "exp_alerts": fires}],
        }
        for series, fires in expected
    ]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_it_fires_when_it_should_and_only_then(alert: Alert, tmp_path: Path) -> None:
    tests = tmp_path / "test.yaml"
    tests.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": asked(alert, CASES[alert.name])}))
    done = promtool("test", "rules", str(tests))
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_operator_at_all_is_no_leader(tmp_path: Path) -> None:
    (alert,) = [one for one in ALERTS if one.name == "NoLeader"]
    tests = tmp_path / "test.yaml"
    nothing = Case(4, {}, {}, CASES["NoLeader"].summary, ())
    tests.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": asked(alert, nothing)}))
    done = promtool("test", "rules", str(tests))
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr
