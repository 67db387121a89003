"""The commands that read and change objects, on a real server: no stand-in knows the client's own ways."""

from __future__ import annotations

import argparse
import json
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.control_plane import ControlPlane
from hajob.cli import breaker, control, doctor, facts, inject, jobs, main, quarantine, status, timeline, why
from hajob.cli.cluster import ClusterError
from hajob.cli.objects import QUARANTINES, KubernetesObjects, path_of_config_maps, path_of_job

NOW_MS = 1_767_225_900_000
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)
Json = dict[str, Any]


@pytest.fixture
def objects(control_plane: ControlPlane) -> KubernetesObjects:
    return KubernetesObjects(str(control_plane.kubeconfig))


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    name = f"cli-{secrets.token_hex(4)}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    control_plane.api.create("/api/v1/namespaces", body)
    yield name
    control_plane.api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def node(control_plane: ControlPlane, crd: Json) -> Iterator[str]:
    """A node of this test alone."""
    assert crd
    name = f"node-{secrets.token_hex(4)}"
    control_plane.api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    yield name
    control_plane.api.delete(f"{QUARANTINES}/{name}")
    control_plane.api.delete(f"/api/v1/nodes/{name}")


def ask(*words: str) -> argparse.Namespace:
    return main.build_parser().parse_args(words)


def test_objects_are_made_found_changed_and_deleted(objects: KubernetesObjects, namespace: str) -> None:
    path = path_of_config_maps(namespace)
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "labels": {"x": "y"}},
        "data": {"k": "1"},
    }
    assert objects.find_object(f"{path}/a") is None
    made = objects.create_object(path, body)
    assert objects.replace_object(f"{path}/a", {**made, "data": {"k": "2"}})["data"] == {"k": "2"}
    with pytest.raises(ClusterError, match="the object has been modified"):
        objects.replace_object(f"{path}/a", made)
    assert objects.patch_object(f"{path}/a", {"data": {"k": None, "l": "3"}})["data"] == {"l": "3"}
    (found,) = (objects.find_object(f"{path}?labelSelector=x%3Dy") or {})["items"]
    assert found["metadata"]["name"] == "a"
    assert (objects.find_object(f"{path}?labelSelector=x%3Dz") or {})["items"] == []
    objects.delete_object(f"{path}/a")
    objects.delete_object(f"{path}/a")
    assert objects.find_object(f"{path}/a") is None
    with pytest.raises(ClusterError, match="not found"):
        objects.create_object(path_of_config_maps(f"{namespace}-no"), body)


def test_a_fault_is_injected_and_taken_back(
    objects: KubernetesObjects, control_plane: ControlPlane, node: str, crd: Json
) -> None:
    assert crd
    said: list[Any] = []
    path = f"{path_of_config_maps('kube-system')}/mindx-dl-deviceinfo-{node}"
    try:
        for words in (("chip", node, "3"), ("memory", node, "2"), ("switch", node)):
            said.append(inject.write_injection(inject.read_injection(ask("inject", *words)), objects, NOW_MS))
        found = facts.facts_of_objects([{**(objects.find_object(path) or {}), "kind": "ConfigMap"}], None, NOW_MS)
        assert found["rejected"] == []
        assert sorted(row["code"] for row in found["facts"]) == ["40F84E00", "80E01801", "[0x00f1ff06,155910,na,na]"]
        said.append(inject.write_injection(inject.read_injection(ask("inject", "recover", node)), objects, NOW_MS))
        assert (
            facts.facts_of_objects([{**(objects.find_object(path) or {}), "kind": "ConfigMap"}], None, NOW_MS)["facts"]
            == []
        )
    finally:
        control_plane.api.delete(path)


def test_a_node_is_kept_out_and_let_in(objects: KubernetesObjects, node: str) -> None:
    said: list[Any] = []
    for words in (("add", node, "--for", "2h"), ("list",), ("release", node)):
        quarantine.carry_out_action(ask("quarantine", *words), objects, NOW, said.append)
    assert any(line.startswith(node) and "ByHand" in line for line in said[1:-1])
    assert said[-1] == f"node {node} is released"


def test_the_settings_are_annotated_where_there_are_none(objects: KubernetesObjects, namespace: str) -> None:
    breaker.believe_faults(objects, namespace, NOW)
    breaker.believe_faults(objects, namespace, NOW.replace(year=2027))
    metadata = (objects.find_object(f"{path_of_config_maps(namespace)}/hajob-faults") or {})["metadata"]
    assert metadata["annotations"] == {"training.hajob.io/believe-faults": "2027-01-01T00:05:00Z"}
    assert metadata["labels"] == {"training.hajob.io/settings": "faults"}


def test_doctor_knows_nothing_of_what_its_asker_may_not_read(
    control_plane: ControlPlane, namespace: str, crd: Json, tmp_path: Path
) -> None:
    """With the token of a service account that has no right at all: nothing is fine, and nothing is a problem."""
    assert crd
    control_plane.kubectl("create", "serviceaccount", "nobody", "-n", namespace)
    token = control_plane.kubectl("create", "token", "nobody", "-n", namespace).stdout.strip()
    known = yaml.safe_load(control_plane.kubeconfig.read_text())
    known["users"][0]["user"] = {"token": token}
    mine = tmp_path / "kubeconfig"
    mine.write_text(yaml.safe_dump(known))
    said: list[Any] = []
    words = ("doctor", "--operator-namespace", namespace, "-o", "json")
    assert doctor.diagnose_and_print(ask(*words), KubernetesObjects(str(mine)), NOW_MS, said.append) == 0
    (found,) = json.loads(said[0])["findings"]
    assert found["grade"] == "unknown"
    assert found["message"].startswith("more rights are needed for 8 of 8 checks:")


def test_a_kubeconfig_with_a_plugin_gives_the_same_answers(
    objects: KubernetesObjects, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """The package kubernetes runs the plugin and makes the requests; nothing that the commands see differs."""
    control_plane.kubectl("create", "serviceaccount", "some", "-n", namespace)
    token = control_plane.kubectl("create", "token", "some", "-n", namespace).stdout.strip()
    version = "client.authentication.k8s.io/v1"
    told = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}})
    plugin = {"apiVersion": version, "command": "echo", "args": [told], "interactiveMode": "Never"}
    answers = []
    for user in ({"token": token}, {"exec": plugin}):
        known = yaml.safe_load(control_plane.kubeconfig.read_text())
        known["users"][0]["user"] = user
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(known))
        asker = KubernetesObjects(str(tmp_path / "kubeconfig"))
        refused = []
        for path in (path_of_config_maps(namespace), "/apis/absent.io/v1/things"):
            with pytest.raises(ClusterError) as refusal:
                asker.create_object(path, {"metadata": {"name": "a"}})
            refused.append((type(refusal.value), str(refusal.value)))
        answers.append((asker.find_object("/version"), refused))
    assert answers[0] == answers[1]
    assert answers[0][0] == objects.find_object("/version")


def test_doctor_looks_at_a_server_without_an_operator(objects: KubernetesObjects, namespace: str, crd: Json) -> None:
    assert crd
    said: list[Any] = []
    words = ("doctor", "--operator-namespace", namespace, "--fault-namespaces", namespace, "-o", "json")
    assert doctor.diagnose_and_print(ask(*words), objects, NOW_MS, said.append) == 1
    found = {one["about"]: one for one in json.loads(said[0])["findings"]}
    assert found["CRD"]["grade"] == "ok"
    assert "its Lease has no holder" in found["operator"]["message"]
    assert "rights" not in found
    with pytest.raises(ClusterError, match="there is no HATrainingJob qwen"):
        doctor.diagnose_and_print(ask("doctor", "qwen", "-n", namespace), objects, NOW_MS, said.append)


def test_a_job_is_listed_explained_and_steered(
    objects: KubernetesObjects, control_plane: ControlPlane, namespace: str, job: Json, crd: Json
) -> None:
    assert crd
    name, path = job["metadata"]["name"], path_of_job(namespace, job["metadata"]["name"])
    made = {**job, "metadata": {"name": name, "namespace": namespace}}
    control_plane.api.create(path.rpartition("/")[0], made)
    assert jobs.table_of_jobs(objects, namespace).data[0]["state"] == "New"
    told = why.explanation_of_job(objects, namespace, name, NOW_MS)
    assert told.data["said"][0]["message"] == "no operator has seen the job yet"
    assert "step      none yet" in status.screen_of_job(objects, namespace, name, NOW_MS).told
    assert [row["what"] for row in timeline.history_of_job(objects, namespace, name, NOW_MS).data] == ["created"]
    control.suspend_job(objects, namespace, name, NOW_MS)
    control.resume_job(objects, namespace, name, NOW_MS)
    control.restart_job(objects, namespace, name, NOW_MS)
    found = objects.find_object(path) or {}
    assert (found["spec"]["suspend"], found["spec"]["restartRequestTime"]) == (False, "2026-01-01T00:05:00Z")
    assert "kubectl-hajob" in {one["manager"] for one in found["metadata"]["managedFields"]}
    control_plane.api.delete(path)
