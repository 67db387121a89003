"""The alerts speak of metrics that there are, and each leads to the heading that says what to do."""

from __future__ import annotations

import re

from e2e.bootstrap.paths import CHECKOUT
from hajob.app.cluster_metrics import CLUSTER_METRICS
from hajob.app.job_metrics import JOB_METRICS
from hajob.metrics import REGISTRY
from release.generate import alerts
from release.generate.alerts import ALERTS


def names_of_metrics() -> set[str]:
    """All names under which something is scraped, without buckets."""
    shared = ((one.name, one.type) for one in REGISTRY.collect())
    of_jobs = ((one.name, one.kind) for one in JOB_METRICS)
    told = {f"{name}_total" if kind == "counter" else name for name, kind in (*shared, *of_jobs)}
    return told | {name for name, _, _ in CLUSTER_METRICS}


def test_the_rules_and_the_page_are_current() -> None:
    assert alerts.main(["--check"]) == 0


def test_each_runbook_is_a_heading_of_the_page() -> None:
    page = (CHECKOUT / alerts.PAGE).read_text(encoding="utf-8")
    headings = {line.removeprefix("## ").lower() for line in page.splitlines() if line.startswith("## ")}
    rules = alerts.build_rules()["groups"][0]["rules"]
    assert len(rules) == len(ALERTS) >= 12
    for rule in rules:
        file, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert file == alerts.PAGE
        assert anchor in headings, rule["alert"]


def test_every_metric_of_an_alert_is_told() -> None:
    for alert in ALERTS:
        used = set(re.findall(r"\bhajob_\w+", alert.expression))
        assert used
        assert used <= names_of_metrics(), alert.name


def test_every_alert_says_what_to_do_with_a_command_or_a_page() -> None:
    for alert in ALERTS:
        assert "`kubectl" in alert.remedy or ".md#" in alert.remedy, alert.name
