"""A CRD of another version: what only one side knows is named."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from hajob.api.crd_difference import CrdDifference, compare_crd
from hajob.api.job import HATrainingJob
from release.generate.crd_schema import custom_resource_definition, quarantine_definition

EXAMPLE = Path(__file__).parents[3] / "examples/quickstart.yaml"


def crd() -> Any:
    return copy.deepcopy(custom_resource_definition())


def spec(definition: Any) -> Any:
    return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]


def test_its_own_crds_differ_in_nothing() -> None:
    assert compare_crd(crd()) == CrdDifference()
    assert compare_crd(quarantine_definition()) == CrdDifference()


def test_the_other_crds_places_are_told_with_its_kind() -> None:
    installed = copy.deepcopy(quarantine_definition())
    schema = installed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    del schema["spec"]["properties"]["reason"]
    assert compare_crd(installed).lacking == ("NodeQuarantine.spec.reason",)


def test_of_an_older_crd_fields_and_words_are_named() -> None:
    installed = crd()
    del spec(installed)["output"]
    del spec(installed)["recovery"]["properties"]["hang"]["properties"]["stepTimeMultiple"]
    spec(installed)["recovery"]["properties"]["mode"]["enum"].remove("Hold")
    assert compare_crd(installed) == CrdDifference(
        lacking=("spec.output", "spec.recovery.hang.stepTimeMultiple", "spec.recovery.mode: Hold")
        if list(spec(crd())).index("output") < list(spec(crd())).index("recovery")
        else ("spec.recovery.mode: Hold", "spec.recovery.hang.stepTimeMultiple", "spec.output")
    )


def test_of_a_newer_crd_too_also_within_lists() -> None:
    installed = crd()
    spec(installed)["wings"] = {"type": "integer"}
    spec(installed)["recovery"]["properties"]["actions"]["items"]["properties"]["speed"] = {"type": "string"}
    found = compare_crd(installed)
    assert found.lacking == ()
    assert set(found.unknown) == {"spec.wings", "spec.recovery.actions[].speed"}


def test_a_crd_without_this_version_lacks_everything() -> None:
    installed = crd()
    installed["spec"]["versions"][0]["name"] = "v9"
    assert compare_crd(installed).lacking == ("version v1alpha1",)
    assert compare_crd({}).lacking == ("version v1alpha1",)


def test_fields_of_a_newer_operators_job_are_named() -> None:
    raw = yaml.safe_load(EXAMPLE.read_text())
    assert HATrainingJob.from_object(raw).unread_fields == ()
    raw["spec"]["wings"] = 2
    raw["spec"]["recovery"] = {"actions": [{"name": "Retry", "speed": "high"}], "hang": {"doze": 1}}
    raw["spec"]["template"]["spec"]["anything"] = "is the user's"
    found = HATrainingJob.from_object(raw).unread_fields
    assert set(found) == {"spec.wings", "spec.recovery.actions[0].speed", "spec.recovery.hang.doze"}
