"""The chart on a real API server: installed, upgraded, rolled back, uninstalled, with a job that outlives it all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml

from e2e.cluster.control_plane import ControlPlane
from tests.integration.chart.chart_release import TAKE, Release
from tests.integration.chart.helm import CHART
from tests.integration.chart.test_chart_renders import HERE, SETS
from tests.integration.conftest import QUICKSTART

pytestmark = pytest.mark.skipif(
    not os.environ.get("HAJOB_CHART_ON_SERVER"), reason="changes the CRDs that other tests use: make chart"
)


def newer_chart(directory: Path) -> Path:
    """A later version: its CRD knows one more field."""
    made = directory / "hajob"
    shutil.copytree(CHART, made)
    path = made / "files/training.hajob.io_hatrainingjobs.yaml"
    crd = yaml.safe_load(path.read_text())
    properties = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["wings"] = {"type": "integer"}
    path.write_text(yaml.safe_dump(crd))
    chart = (made / "Chart.yaml").read_text().replace("ersion: 0.2.0", "ersion: 0.9.0")
    (made / "Chart.yaml").write_text(chart)
    return made


def test_a_job_outlives_install_upgrade_rollback_uninstall(release: Release, tmp_path: Path) -> None:
    release.helm("install", "hajob", str(CHART), *TAKE)
    assert release.deployment()["spec"]["replicas"] == 2
    jobs = f"/apis/training.hajob.io/v1alpha1/namespaces/{release.namespace}/hatrainingjobs"
    job = release.plane.api.create(jobs, {**QUICKSTART, "metadata": {"name": "lasting"}})
    path, uid = f"{jobs}/lasting", job["metadata"]["uid"]

    release.helm("upgrade", "hajob", str(newer_chart(tmp_path)), "--set", "replicas=3,logLevel=DEBUG", *TAKE)
    (container,) = release.deployment()["spec"]["template"]["spec"]["containers"]
    assert {"name": "HAJOB_LOG_LEVEL", "value": "DEBUG"} in container["env"]
    assert container["image"] == "hajob/operator:0.9.0"
    assert "wings" in release.schema(), "the chart upgrades the CRD"
    assert release.plane.api.get(path)["metadata"]["uid"] == uid

    release.helm("rollback", "hajob", "1")
    assert release.deployment()["spec"]["replicas"] == 2
    assert "wings" not in release.schema()

    release.helm("uninstall", "hajob")
    assert release.deployment() is None
    assert release.plane.api.get(path)["metadata"]["uid"] == uid, "the CRD stays, and so do the jobs"
    release.helm("install", "hajob", str(CHART))
    assert release.deployment() is not None, "what was kept is taken up again"


@pytest.mark.parametrize("name", [name for name in SETS if name != "monitored"])
def test_the_server_takes_what_is_rendered(control_plane: ControlPlane, namespace: str, name: str) -> None:
    """A dry run; ServiceMonitor's CRD is not there."""
    text = (HERE / "golden" / f"{name}.yaml").read_text()
    objects = [each for each in yaml.safe_load_all(text) if each["metadata"].get("namespace") in {None, "kube-system"}]
    rest = [each for each in yaml.safe_load_all(text) if each not in objects]
    for each in rest:
        each["metadata"]["namespace"] = namespace
    unique = {(each["kind"], each["metadata"]["name"]): each for each in [*objects, *rest]}
    whole = yaml.safe_dump_all(unique.values())
    control_plane.kubectl("apply", "--dry-run=server", "--server-side", "--force-conflicts", "-f", "-", stdin=whole)
