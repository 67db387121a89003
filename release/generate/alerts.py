"""The alerts: rules for Prometheus, and the page that says what to do about each.

Written from one table: `charts/hajob/files/alerts/rules.yaml`, which the chart puts into a PrometheusRule, and
`docs/admin/alerts.md`, where each alert has the heading that its `runbook_url` names.
Run as `python -m release.generate.alerts [--check]`.
"""

from __future__ import annotations

import sys
from typing import Final, Literal, NamedTuple

import yaml

from hajob.api.base import Json
from release.generate.files import write_or_check

PAGE: Final = "docs/admin/alerts.md"
RULES: Final = "charts/hajob/files/alerts/rules.yaml"

Severity = Literal["critical", "warning", "info"]


class Alert(NamedTuple):
    """One alert.

    Attributes:
        name: without the prefix.
        severity: critical: a training is lost or stands, and nobody but a person helps; warning: it goes on, but less
            well, or would not survive what comes next.
        expression: in PromQL, with a series for each job, node or nothing.
        lasts: how long it has to be so.
        summary: one line, with the labels.
        meaning: what is so, and why it matters.
        remedy: what to do.
    """

    name: str
    severity: Severity
    expression: str
    lasts: str
    summary: str
    meaning: str
    remedy: str


def by_job(metric: str) -> str:
    """Return an expression for a metric of jobs that names the job, whichever replica tells it."""
    return f"max by (namespace, job) ({metric})"


RUNS: Final = 'hajob_job_condition{type="Running",status="True"}'
ON_NODES: Final = 'bucket!~"Suspended|Paused|Scheduling|WaitingForCapacity"'
"""Time in which a job has nodes and shall train; what it should have trained."""
_TRAINED: Final = 'sum by (namespace, job) (increase(hajob_job_goodput_seconds_total{bucket="Training"}[6h]))'
_SPENT: Final = f"sum by (namespace, job) (increase(hajob_job_goodput_seconds_total{{{ON_NODES}}}[6h]))"
_READY, _DESIRED = (f'hajob_job_spare_nodes{{kind="{kind}"}}' for kind in ("ready", "desired"))
_JOB: Final = "{{ $labels.namespace }}/{{ $labels.job }}"

ALERTS: Final = (
    Alert(
        "JobFailed",
        "critical",
        # The offset ends it after a day: whoever keeps a failed job has seen it by then.
        'max by (namespace, job, reason) (hajob_job_state{state="Failed"})\n'
        "unless on (namespace, job)\n"
        '  max by (namespace, job) (hajob_job_state{state="Failed"} offset 1d)',
        "0m",
        f"{_JOB} has failed: {{{{ $labels.reason }}}}.",
        "The job is over and holds no nodes. The alert ends after a day, or once the job is started again or deleted.",
        "`kubectl hajob why JOB` says what failed, and `kubectl hajob logs JOB --failed` shows the output of the rank "
        "that failed first. Remove the cause, then `kubectl hajob restart JOB`.",
    ),
    Alert(
        "JobUnprotected",
        "warning",
        by_job('hajob_job_condition{type="Recoverable",status="False"}') + " == 1",
        "10m",
        f"{_JOB} trains, but some recovery actions would not work.",
        "A precondition of recovery is missing, so that the next fault costs more than it has to: a restart in place "
        "of seconds, or steps that are done again.",
        "`kubectl hajob doctor JOB` names each missing precondition, the actions that it stops, and what to change.",
    ),
    Alert(
        "JobStandsStill",
        "critical",
        f"({by_job('hajob_job_step')} == {by_job('hajob_job_step offset 10m')})\n"
        f"and on (namespace, job) {by_job(RUNS)}\n"
        f"and on (namespace, job) {by_job(f'{RUNS} offset 10m')}\n"
        "unless on (namespace, job)\n"
        f"  {by_job('hajob_job_step_seconds')} > 200",
        "2m",
        f"{_JOB} is said to train, but has ended no step for ten minutes.",
        "The job counts as running and its step does not grow. Jobs whose steps take longer than 200 s are left out.",
        "`kubectl hajob stacks JOB` shows where each rank stands. A long evaluation or save is no fault; otherwise "
        "`kubectl hajob restart JOB` starts the job again from its newest checkpoint.",
    ),
    Alert(
        "JobRestartLoop",
        "critical",
        # Prometheus extrapolates to the ends of the hour: of two restarts it makes a little more.
        "sum by (namespace, job) (increase(hajob_job_restarts_total[1h])) > 2.5",
        "0m",
        f'{_JOB} was restarted {{{{ $value | printf "%.0f" }}}} times within an hour.',
        "Each restart loads a checkpoint and does steps again. The same fault probably comes back each time.",
        "`kubectl hajob timeline JOB` shows the causes side by side. If one node is in all of them, cordon it "
        "(`kubectl hajob drain NODE`); if one rank is, read `kubectl hajob logs JOB --failed`.",
    ),
    Alert(
        "JobGoodputLow",
        "warning",
        f"{_TRAINED}\n/\n{_SPENT} < 0.8\nand on (namespace, job)\n  {_SPENT} > 3600",
        "30m",
        f"{_JOB} has trained for only {{{{ $value | humanizePercentage }}}} of its time on nodes in six hours.",
        "Start-ups, recoveries and steps that are done again take more than a fifth of the time for which the job "
        "holds its nodes. Pauses, suspension and waiting for nodes are not counted.",
        "`kubectl hajob report JOB --since 6h` says where the time went, and `kubectl hajob timeline JOB` why "
        "([buckets](../user/goodput.md)).",
    ),
    Alert(
        "JobOutageLong",
        "critical",
        f"{by_job('hajob_job_open_incident_seconds')} > 300\nunless on (namespace, job)\n  {by_job(RUNS)}",
        "0m",
        f"{_JOB} has stood for {{{{ $value | humanizeDuration }}}} after a fault.",
        "An incident is open and the training does not go on: no node is free, old pods do not end, or the fault is "
        "held back (`spec.recovery.mode`, the breaker).",
        "`kubectl hajob status JOB` says what it waits for, `kubectl hajob why JOB` why smaller actions were refused.",
    ),
    Alert(
        "JobWaitsForNodes",
        "warning",
        "max by (namespace, job, reason) (hajob_job_waiting_seconds) > 3600",
        "0m",
        f"{_JOB} has waited for {{{{ $value | humanizeDuration }}}} to be started: {{{{ $labels.reason }}}}.",
        "The job holds no nodes and waits: for nodes, a quota, an image, a volume.",
        "`kubectl hajob status JOB` says what is missing and who has it; `kubectl hajob nodes` shows free, sick and "
        "quarantined nodes.",
    ),
    Alert(
        "JobSparesMissing",
        "warning",
        f"{by_job(_READY)}\n< on (namespace, job)\n{by_job(_DESIRED)}\nand on (namespace, job) {by_job(RUNS)}",
        "15m",
        f"{_JOB} has only {{{{ $value }}}} of its spare nodes.",
        "The next lost node is replaced only if another one happens to be free.",
        "Condition `SparesReady` says why (`kubectl hajob status JOB`): free or add nodes that fit the job, or lower "
        "`spec.scheduling.numSpareNodes`.",
    ),
    Alert(
        "JobCheckpointTooOld",
        "warning",
        f"time() - {by_job('hajob_job_last_checkpoint_timestamp_seconds')} > 6 * 3600\n"
        f"and on (namespace, job) {by_job(RUNS)}\n"
        f"and on (namespace, job) {by_job(f'{RUNS} offset 6h')}",
        "10m",
        f"{_JOB} has trained for six hours, and its newest checkpoint is {{{{ $value | humanizeDuration }}}} old.",
        "A fault that no copy survives throws the training back by that much. The age counts from when the operator "
        "saw the checkpoint first.",
        "Look whether the volume is full or read-only (`kubectl hajob doctor JOB`), and whether `--save-interval` fits "
        "the time of a step ([checkpoints](../user/checkpoints.md)).",
    ),
    Alert(
        "NodeOffends",
        "warning",
        "max by (node) (hajob_node_offences) >= 3",
        "0m",
        "{{ $labels.node }} was isolated {{ $value }} times within days.",
        "Hardware that fails, recovers and fails again costs every job on it an outage each time.",
        "`kubectl hajob quarantine` shows its faults. Keep it out until it is repaired: "
        "`kubectl hajob quarantine add NODE`; afterwards `kubectl hajob quarantine release NODE` forgets the offences.",
    ),
    Alert(
        "BreakerOpen",
        "critical",
        "max(hajob_breaker_open) == 1",
        "2m",
        "The breaker is open: faults of nodes and chips are not believed.",
        "Too many faults at once, a silent writer or a clock jump. Trainings go on, but nothing is decided from "
        "reported faults of nodes and chips until it closes.",
        "`kubectl hajob breaker` says why; if the faults are real, `kubectl hajob breaker --believe` "
        "([the breaker](faults.md#the-breaker)).",
    ),
    Alert(
        "NoLeader",
        "critical",
        "(max(hajob_leader) or vector(0)) == 0",
        "2m",
        "No operator leads, or none is scraped.",
        "Trainings go on, and coordinators recover lost processes by their standing orders. Nobody replaces nodes or "
        "starts jobs.",
        "`kubectl -n hajob-system get pods,lease`; `kubectl hajob doctor` says who holds the Lease "
        "([without an operator](operations.md#the-operator-is-away)).",
    ),
    Alert(
        "OperatorCutOff",
        "critical",
        "max(hajob_operator_cut_off) == 1",
        "2m",
        "The leader does not reach most coordinators.",
        "It decides nothing from their silence, so a job whose coordinator is really lost waits.",
        "Look at the network of the leader's node and the NetworkPolicies "
        "([cut off](operations.md#the-operator-is-cut-off)).",
    ),
    Alert(
        "JobsOnHold",
        "warning",
        "max by (reason) (hajob_jobs_on_hold) > 0",
        "5m",
        "{{ $value }} jobs are left untouched: {{ $labels.reason }}.",
        "The operator cannot read their journal or spec. They train on without it.",
        "Condition `Accepted` of these jobs says what to do; often an older operator leads after a roll-back "
        "([upgrades](operations.md#the-operator-is-upgraded)).",
    ),
    Alert(
        "CRDDiffers",
        "warning",
        "max by (crd) (hajob_crd_differences) > 0",
        "10m",
        "{{ $labels.crd }} differs from the operator in {{ $value }} fields.",
        "Fields that the CRD lacks are dropped by the API server; fields that only the CRD knows are ignored.",
        "`kubectl apply --server-side -f crds/` with the files of the operator's version "
        "([versions](operations.md#the-crd-is-of-another-version)).",
    ),
)
"""All alerts, in the order of the page."""


def name_of_alert(alert: Alert) -> str:
    """Return the name under which Prometheus knows an alert."""
    return f"Hajob{alert.name}"


def build_rules() -> Json:
    """Return the rules as Prometheus reads them: one group."""
    rules = [
        {
            "alert": name_of_alert(alert),
            "expr": alert.expression,
            **({"for": alert.lasts} if alert.lasts != "0m" else {}),
            "labels": {"severity": alert.severity},
            "annotations": {
                "summary": alert.summary,
                "description": alert.meaning,
                "runbook_url": f"{PAGE}#{name_of_alert(alert).lower()}",
            },
        }
        for alert in ALERTS
    ]
    return {"groups": [{"name": "hajob", "rules": rules}]}


class _Blocks(yaml.SafeDumper):
    """Writes a text of several lines as such, so that an expression can be read."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Blocks.add_representer(str, _represent_text)


def rendered_rules() -> str:
    """Return the text of the rules' file."""
    head = "# Generated by `python -m release.generate.alerts`; each alert is explained in docs/admin/alerts.md.\n"
    return head + yaml.dump(build_rules(), Dumper=_Blocks, sort_keys=False, allow_unicode=True, width=110)


_HEAD: Final = """\
# Alerts, and what to do

Generated by `python -m release.generate.alerts`. With the Prometheus operator the chart installs these alerts
(`--set metrics.rules.enabled=true`, beside a ServiceMonitor or PodMonitor); without it, give Prometheus
`charts/hajob/files/alerts/rules.yaml`. Each alert links here: `metrics.rules.runbookBase` says where this directory is
served.

Metrics of a job have labels `namespace` and `job`. Prometheus keeps them only with `honor_labels: true`, which the
chart's monitors set; else it calls them `exported_job`, and no alert of a job ever fires.

Two boards for Grafana, of the fleet and of one job, come with `--set metrics.dashboards.enabled=true`: a ConfigMap with
the label by which Grafana's sidecar finds it. Without a sidecar, import the files of `charts/hajob/files/dashboards`.

| alert | severity | it says |
| --- | --- | --- |
"""


def rendered_page() -> str:
    """Return the text of the page."""
    rows = "".join(
        f"| [{name_of_alert(alert)}](#{name_of_alert(alert).lower()}) | {alert.severity} | {_in_words(alert)} |\n"
        for alert in ALERTS
    )
    return _HEAD + rows + "".join(_section_of(alert) for alert in ALERTS)


def _in_words(alert: Alert) -> str:
    """Return the summary without Prometheus' templates."""
    told = alert.summary.replace(_JOB, "a job")
    for label in ("reason", "node", "crd"):
        told = told.replace(f"{{{{ $labels.{label} }}}}", f"({label})")
    while "{{" in told:
        before, _, rest = told.partition("{{")
        told = f"{before}…{rest.partition('}}')[2]}"
    return told[0].upper() + told[1:]


def _section_of(alert: Alert) -> str:
    lasting = f", for {alert.lasts}" if alert.lasts != "0m" else ""
    return (
        f"\n## {name_of_alert(alert)}\n\n{alert.meaning}\n\n**Do:** {alert.remedy}\n\n"
        f"```promql\n{alert.expression}\n```\n\n{alert.severity}{lasting}.\n"
    )


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or say whether they are current."""
    return write_or_check("release.generate.alerts", {RULES: rendered_rules(), PAGE: rendered_page()}, arguments)


if __name__ == "__main__":
    sys.exit(main())
