"""`kubectl hajob doctor`: which components of MindCluster there are, and what follows for jobs of Hajob."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from hajob.cli.components import COMPONENTS, findings_of_components, words_of_workload
from hajob.cli.diagnosis import Finding, Grade

REAL_MANIFESTS = os.environ.get("HAJOB_SAMPLES", "")


def workload(name: str, image: str, command: str = "", namespace: str = "mindx-dl") -> dict[str, Any]:
    container = {"name": "main", "image": image, "command": ["/bin/bash", "-c", "--"], "args": [command]}
    spec = {"template": {"spec": {"containers": [container]}}}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


PLUGIN = workload("plugin", "registry:5000/ascend-k8sdeviceplugin:v7", "device-plugin -volcanoType=false")
CLUSTERD = workload("renamed", "team/own-image:1", "/usr/local/bin/clusterd -logLevel=0")
NODED = workload("noded", "noded@sha256:00", "noded")


def job(launcher: str = "Hajob", command: str = "bash train.sh", **scheduling: str) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "trainer", "command": ["bash", "-c", command]}]}}
    spec = {"launcher": launcher, "scheduling": scheduling, "template": template}
    return {"metadata": {"name": "qwen", "namespace": "team"}, "spec": spec}


def said(*workloads: dict[str, Any], jobs: tuple[dict[str, Any], ...] = ()) -> list[Finding]:
    return list(findings_of_components(workloads, jobs))


def only(found: list[Finding], word: str) -> Finding:
    (one,) = [one for one in found if one.message.startswith(word)]
    return one


def test_components_are_known_by_image_or_program() -> None:
    found = said(PLUGIN, CLUSTERD, NODED)
    assert only(found, "device plugin").message.startswith("device plugin (mindx-dl/plugin) needed")
    assert "each fault counts once" in only(found, "ClusterD (mindx-dl/renamed)").message
    assert only(found, "NodeD (mindx-dl/noded)").grade is Grade.FINE
    assert len(found) == 3


def test_an_absent_noded_is_told_with_what_follows() -> None:
    assert "are not known" in only(said(PLUGIN), "NodeD was not found").message


@pytest.mark.parametrize(
    ("name", "image"), [("Resilience Controller", "resilience-controller:v5"), ("DRA driver", "ascend-dra:v0.1.0")]
)
def test_what_must_keep_off_is_told_with_what_to_do(name: str, image: str) -> None:
    found = only(said(NODED, workload("one", image)), name)
    assert (found.grade, "must keep off" in found.message, bool(found.do)) == (Grade.NOTE, True, True)


def test_two_schedulers_are_a_note_where_jobs_have_another() -> None:
    volcano = workload("volcano-scheduler", "volcanosh/vc-scheduler:v1.9.0", namespace="volcano-system")
    assert only(said(NODED, volcano), "Volcano's").grade is Grade.FINE
    assert only(said(NODED, volcano, jobs=(job(gangPolicy="Volcano"),)), "Volcano's").grade is Grade.FINE
    note = only(said(NODED, volcano, jobs=(job(),)), "Volcano's")
    assert (note.grade, "1 job of" in note.message) == (Grade.NOTE, True)


def test_a_job_that_starts_taskd_under_hajobs_launcher_is_told() -> None:
    starts = job(command="python taskd_manager.py & bash train.sh")
    told = only(said(NODED, jobs=(starts,)), "job team/qwen")
    assert (told.grade, "keep off" in told.message) == (Grade.NOTE, True)
    assert not [one for one in said(NODED, jobs=(job("TaskD", "taskd"), job())) if "TaskD" in one.message]


def test_odd_objects_are_nobodys() -> None:
    odd: list[dict[str, Any]] = [{}, {"spec": {"template": {"spec": {"containers": [{}, 7]}}}}, {"metadata": None}]
    assert [words_of_workload(one) for one in odd] == [frozenset()] * 3
    assert [one.grade for one in said(*odd)] == [Grade.NOTE]


@pytest.mark.skipif(not REAL_MANIFESTS, reason="HAJOB_SAMPLES names no directory of real manifests")
def test_the_projects_own_manifests_are_known() -> None:
    known = {
        component.name
        for path in Path(REAL_MANIFESTS).rglob("*.yaml")
        if "build" in path.parts
        for raw in yaml.safe_load_all(path.read_text())
        if isinstance(raw, dict) and raw.get("kind") in {"Deployment", "DaemonSet"}
        for component in COMPONENTS
        if words_of_workload(raw) & component.words
    }
    assert known >= {
        "device plugin",
        "NodeD",
        "ClusterD",
        "Ascend Operator",
        "Infer Operator",
        "NPU exporter",
        "DRA driver",
    }
