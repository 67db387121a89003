"""The generated CRD is what Kubernetes can take, and the file in the repository is current."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hajob.api.conditions import ConditionType
from hajob.api.derived import why_not_served
from hajob.api.job import HATrainingJob
from hajob.api.spec import HATrainingJobSpec
from hajob.api.status import HATrainingJobStatus
from release.generate import crd_schema as crd

ROOT = Path(__file__).resolve().parents[3]
FORBIDDEN = {"$ref", "$defs", "anyOf", "oneOf", "allOf", "const", "title", "exclusiveMinimum", "exclusiveMaximum"}


def _nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from _nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _nodes(schema[key], f"{path}.{key}")


def test_every_node_is_structural_and_described() -> None:
    for path, node in _nodes(crd.open_api_schema()):
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path
        assert not FORBIDDEN & node.keys(), path
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if path and not path.endswith((".items", ".additionalProperties", ".apiVersion", ".kind", ".metadata")):
            assert node.get("description"), f"{path} has no description"


def test_every_rule_tells_the_fix_in_a_sentence() -> None:
    rules = [rule for _, node in _nodes(crd.open_api_schema()) for rule in node.get("x-kubernetes-validations", [])]
    assert len(rules) > 15
    for rule in rules:
        assert ":" in rule["message"] or ";" in rule["message"], rule["message"]
        assert len(rule["message"]) < 400


OF_A_POD = ("tolerationSeconds", ".template.spec.activeDeadlineSeconds", ".template.spec.terminationGracePeriodSeconds")


def test_numbers_are_negative_only_where_minus_one_means_none() -> None:
    for path, node in _nodes(crd.open_api_schema()["properties"]["spec"]):
        if node.get("type") == "integer" and not path.endswith(OF_A_POD):
            assert node["minimum"] >= 0, path


FREE_MAPS = {"requests", "limits", "nodeSelector", "labels", "annotations"}  # those of a Pod


def test_no_floats_no_free_maps_and_few_booleans() -> None:
    booleans = []
    for path, node in _nodes(crd.open_api_schema()):
        assert node.get("type") != "number", path
        if "additionalProperties" in node:
            assert path.rsplit(".", 1)[-1] in FREE_MAPS, path
        if node.get("type") == "boolean":
            booleans.append(path)
    of_a_pod = {".spec.template.spec.setHostnameAsFQDN", ".spec.template.spec.hostNetwork"}
    assert set(booleans) == {*of_a_pod, ".spec.suspend"}


def test_required_is_only_what_cannot_be_derived() -> None:
    spec = crd.open_api_schema()["properties"]["spec"]
    assert sorted(spec["required"]) == ["accelerator", "checkpoint", "numNodes", "parallelism", "template"]
    assert spec["properties"]["accelerator"]["required"] == ["product"]


def test_the_columns_and_the_conditions_are_those_of_the_api() -> None:
    assert [column["name"] for column in crd.COLUMNS] == [
        *("State", "Reason", "Size", "Step", "Step-Time", "Protected", "Goodput", "Restarts"),
        *("Recovery", "Last-Outage", "Nodes", "Spares", "Checkpoint"),
        "Age",
    ]
    wide = [column["name"] for column in crd.COLUMNS if column.get("priority")]
    assert wide == ["Recovery", "Last-Outage", "Nodes", "Spares", "Checkpoint"]
    assert [str(type_) for type_ in ConditionType] == [
        *("Accepted", "Scheduled", "Running", "Recoverable", "CoordinatorReady", "Shrunk", "SparesReady", "Degraded"),
        *("Held", "Suspended", "Complete", "Failed"),
    ]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: str(path.name))
def test_the_examples_are_jobs_and_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for content in yaml.safe_load_all(text):
        job = HATrainingJob.from_object(content)
        assert HATrainingJobSpec.model_validate(job.spec.to_json()) == job.spec
        if path.name == "full.yaml":  # for reading
            return
        assert why_not_served(job.spec) == ""
    assert max(len(part.splitlines()) for part in text.split("---")) <= 30


def test_a_status_survives_the_server() -> None:
    status = HATrainingJobStatus(fence=3, incarnation=17)
    assert HATrainingJobStatus.model_validate(status.to_json()) == status
    newer = {**status.to_json(), "somethingNew": {"of": "a later version"}}
    assert HATrainingJobStatus.model_validate(newer) == status
