"""The chart's defaults for jobs on a real API server: where a job says nothing it has them, for everybody to see."""

from __future__ import annotations

import copy
import json
import os
from typing import Any

import pytest

from e2e.harness.operator import install_crd
from tests.integration.chart.chart_release import TAKE, Release
from tests.integration.chart.helm import CHART, helm
from tests.rigs.jobs_on_server import QUICKSTART

on_server = pytest.mark.skipif(
    not os.environ.get("HAJOB_CHART_ON_SERVER"), reason="changes what jobs of other tests are: make chart"
)
DEFAULTS: dict[str, Any] = {
    "network.interface": "enp189s0f0",
    "coordinator.tolerations": [{"key": "training", "operator": "Exists"}],
    "agent.resources": {"requests": {"cpu": "2", "memory": "256Mi"}},
    "recovery.actions": [{"name": "Retry", "maxCount": 3}],
    "template.spec.nodeSelector": {"kubernetes.io/arch": "arm64"},
    "template.spec.priorityClassName": "training",
    "ttlSecondsAfterFinished": 3600,
}


def at(spec: Any, path: str) -> Any:
    for name in path.split("."):
        spec = spec[name]
    return spec


def put(spec: Any, path: str, value: Any) -> None:
    *parents, name = path.split(".")
    for parent in parents:
        spec = spec.setdefault(parent, {})
    spec[name] = value


@on_server
def test_a_job_that_says_nothing_has_the_admins_defaults(release: Release) -> None:
    """A job that says something keeps it; one that is older than the defaults stays as it was."""
    jobs = f"/apis/training.hajob.io/v1alpha1/namespaces/{release.namespace}/hatrainingjobs"

    def made(name: str, said: dict[str, Any] | None = None, dry: str = "") -> Any:
        spec = copy.deepcopy(QUICKSTART["spec"])
        for path, value in (said or {}).items():
            put(spec, path, value)
        job = {**QUICKSTART, "metadata": {"name": name}, "spec": spec}
        return release.plane.api.create(f"{jobs}{dry}", job)["spec"]

    install_crd(release.plane)
    before = made("before")
    release.helm("install", "hajob", str(CHART), "--set-json", f"jobDefaults={json.dumps(DEFAULTS)}", *TAKE)
    release.plane.wait(
        "the defaults to hold", lambda: at(made("tried", dry="?dryRun=All"), "network.interface") == "enp189s0f0", 60
    )

    found = made("silent")
    assert {path: at(found, path) for path in DEFAULTS} == DEFAULTS
    assert found["template"]["spec"]["containers"] == before["template"]["spec"]["containers"]

    own: dict[str, Any] = {
        "network.interface": "bond0",
        "coordinator.tolerations": [],
        "agent.resources": {"requests": {"cpu": "1"}},
        "recovery.actions": [{"name": "Shrink", "maxCount": 0}],
        "template.spec.nodeSelector": {},
        "template.spec.priorityClassName": "urgent",
        "ttlSecondsAfterFinished": 60,
    }
    found = made("outspoken", own)
    assert {path: at(found, path) for path in own} == own

    patch = {"metadata": {"labels": {"team": "a"}}}
    assert release.plane.api.merge(f"{jobs}/before", patch)["spec"] == before


def refused(defaults: Any, *arguments: str) -> str:
    done = helm(
        "template", "hajob", str(CHART), "--set-json", f"jobDefaults={json.dumps(defaults)}", *arguments, check=False
    )
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("path", ["network.interfaze", "coordinators", "template.specs.nodeSelector"])
def test_a_field_that_no_job_has_is_refused(path: str) -> None:
    assert f"jobDefaults: spec.{path} is no field of a HATrainingJob" in refused({path: "x"})


def test_a_server_without_these_policies_is_refused() -> None:
    told = refused(DEFAULTS, "--kube-version", "1.35.2")
    assert "jobDefaults needs Kubernetes 1.36 or newer, which serves MutatingAdmissionPolicies; this is v1.35.2" in told
    assert refused({}, "--kube-version", "1.35.2") == ""
