"""The chart on a real API server: installed, upgraded, rolled back, uninstalled, with a job that outlives it all."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from e2e.cluster.control_plane import ControlPlane
from tests.integration.chart.chart_release import PATHS_OF_POLICIES, TAKE, Release
from tests.integration.chart.helm import CHART, CHART_TESTS, SETS_OF_VALUES, Object, helm, rendered_with_tests
from tests.rigs.jobs_on_server import QUICKSTART

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


def monitoring_crd(kind: str) -> Object:
    """As much of the Prometheus operator's CRD as lets its objects be made."""
    plural, group = f"{kind.lower()}s", "monitoring.coreos.com"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**crd, "metadata": {"name": f"{plural}.{group}"}, "spec": spec}


@pytest.fixture
def monitored_plane(control_plane: ControlPlane) -> ControlPlane:
    """A cluster that knows monitors."""
    kinds = ("ServiceMonitor", "PodMonitor")
    control_plane.apply(*map(monitoring_crd, kinds))

    def served() -> bool:
        return all(control_plane.api.find(f"/apis/monitoring.coreos.com/v1/{kind.lower()}s") for kind in kinds)

    control_plane.wait("monitors to be served", served)
    return control_plane


@pytest.mark.parametrize("name", SETS_OF_VALUES)
def test_the_server_takes_what_is_rendered(monitored_plane: ControlPlane, name: str) -> None:
    """A dry run of every object: CRDs, monitors and the pod of `helm test`, too."""
    for needs, path in PATHS_OF_POLICIES.items():
        if name == needs and not monitored_plane.api.find(path):
            pytest.skip(f"this server has no {path}")
    objects = rendered_with_tests("--values", str(CHART_TESTS / "values" / f"{name}.yaml"))
    places = sorted({each["metadata"]["namespace"] for each in objects if "namespace" in each["metadata"]})
    for place in places:
        monitored_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}})
    # a pod is taken only where its account is
    monitored_plane.apply(*(each for each in objects if each["kind"] == "ServiceAccount"))
    arguments = ("apply", "--dry-run=server", "--server-side", "--force-conflicts", "-o", "name", "-f", "-")
    taken = monitored_plane.kubectl(*arguments, stdin=yaml.safe_dump_all(objects)).stdout.split()
    assert len(taken) == len(objects)


def test_the_sets_render_every_template() -> None:
    def sources(*arguments: str) -> set[str]:
        return set(
            re.findall(r"^# Source: hajob/(\S+)$", helm("template", str(CHART), *arguments).stdout, re.MULTILINE)
        )

    found = set().union(*(sources("--values", str(CHART_TESTS / "values" / f"{name}.yaml")) for name in SETS_OF_VALUES))
    assert found == {str(path.relative_to(CHART)) for path in (CHART / "templates").rglob("*.yaml")}


def test_a_quota_of_memory_admits_the_pods(control_plane: ControlPlane, namespace: str) -> None:
    metadata = {"name": "memory", "namespace": namespace}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": {"hard": {"limits.memory": "4Gi"}},
    }
    control_plane.apply(quota)
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/memory"
    control_plane.wait("the quota to count", lambda: control_plane.api.get(path).get("status", {}).get("used"))
    objects = rendered_with_tests(namespace=namespace)
    (test,) = [each for each in objects if each["kind"] == "Pod"]
    (deployment,) = [each for each in objects if each["kind"] == "Deployment"]
    metadata = {"name": "operator", "namespace": namespace}
    operator: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    operator["spec"] = deployment["spec"]["template"]["spec"]
    for pod in (test, operator):
        pod["spec"] |= {"serviceAccountName": "default", "priorityClassName": ""}
        control_plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))
