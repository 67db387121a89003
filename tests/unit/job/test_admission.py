"""A template with nonsense in it is refused when it is applied, or named in a condition, and breaks nothing."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.server import MemoryServer
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.conditions import Reason
from hajob.api.job import HATrainingJob
from hajob.job.admission import evaluate_pods
from hajob.pods.settings import PodSettings
from tests.rigs.fake_clock import FakeClock
from tests.rigs.malformed_templates import (
    KNOWN_TO_THE_CRD_ONLY,
    MALFORMED,
    SETTINGS,
    check_refused_in_words,
    job_with,
    shown,
)
from tests.rigs.unserved_jobs import BY_THE_OPERATOR, edited


@pytest.mark.parametrize("case", MALFORMED, ids=shown)
async def test_nonsense_in_a_template_is_refused_in_words(case: Any) -> None:
    await check_refused_in_words(MemoryKube(MemoryServer(FakeClock())), case)


@pytest.mark.parametrize("case", [case for case in MALFORMED if case[0][-1] not in KNOWN_TO_THE_CRD_ONLY], ids=shown)
async def test_nonsense_that_is_stored_already_is_told_all_the_same(case: Any) -> None:
    """By an operator that is newer than the CRD, or than the job."""
    kube = MemoryKube(MemoryServer(FakeClock()))
    body = job_with(*case)
    body["metadata"] = {"name": "job", "namespace": "default", "uid": "u"}
    reason, message = await evaluate_pods(kube, HATrainingJob.from_object(body), SETTINGS)
    assert reason in {Reason.INVALID, Reason.POD_REFUSED}
    assert message


async def test_the_quickstart_is_accepted() -> None:
    kube = MemoryKube(MemoryServer(FakeClock()))
    stored = await kube.create_object(names.PLURAL, "default", job_with(("nodeSelector",), {"a": "b"}))
    assert await evaluate_pods(kube, HATrainingJob.from_object(stored), SETTINGS) == (Reason.VALID, "")


async def evaluated(settings: PodSettings = SETTINGS, **spec: Any) -> tuple[list[Json], Reason, str]:
    """The pods that are asked about for a quickstart with this in its spec, and the answer."""
    server = MemoryServer(FakeClock())
    kube = MemoryKube(server)
    body = edited(lambda job: job["spec"].update(spec))
    stored = await kube.create_object(names.PLURAL, "default", body)
    reason, message = await evaluate_pods(kube, HATrainingJob.from_object(stored), settings)
    asked = [request for request in server.log if request.dry_run]
    assert all(request.strict for request in asked)
    return [request.body for request in asked if isinstance(request.body, dict)], reason, message


@pytest.mark.parametrize("case", BY_THE_OPERATOR)
async def test_what_no_rule_can_say_is_told_in_words(case: str) -> None:
    edit, sentence = BY_THE_OPERATOR[case]
    kube = MemoryKube(MemoryServer(FakeClock()))
    stored = await kube.create_object(names.PLURAL, "default", edited(edit))
    reason, message = await evaluate_pods(kube, HATrainingJob.from_object(stored), SETTINGS)
    assert reason in {Reason.INVALID, Reason.POD_REFUSED}
    assert sentence in message


async def test_the_pods_asked_about_are_those_to_be_made() -> None:
    work = {"requestTime": "2026-11-22T22:00:00Z", "template": {"spec": {"containers": [{"name": "t", "image": "i"}]}}}
    asked, reason, _ = await evaluated(pause=work, scheduling={"numSpareNodes": 1, "spareMode": "Warm"})
    assert reason is Reason.VALID
    roles = [pod["metadata"]["labels"][names.LABEL_ROLE] for pod in asked]
    assert roles == [names.ROLE_RANK, names.ROLE_COORDINATOR, names.ROLE_SPARE, names.ROLE_HOOK]
    assert asked[0]["spec"]["schedulingGates"] == [{"name": names.GATE}]
    ungated, _, _ = await evaluated(scheduling={"gangPolicy": "None"})
    assert "schedulingGates" not in ungated[0]["spec"]


async def test_a_job_of_volcano_needs_an_operator_that_serves_it() -> None:
    scheduling = {"gangPolicy": "Volcano"}
    _, reason, message = await evaluated(scheduling=scheduling)
    assert (reason, "whoever installs it sets volcano.enabled" in message) == (Reason.INVALID, True)
    asked, reason, told = await evaluated(replace(SETTINGS, serves_volcano=True), scheduling=scheduling)
    assert reason is Reason.VALID, told
    assert [one["kind"] for one in asked] == ["PodGroup", "Pod", "Pod"]
    assert names.ANNOTATION_GROUP_NAME not in asked[1]["metadata"]["annotations"], "the group is not there yet"


async def test_a_refusal_names_the_fields_of_the_template() -> None:
    template = copy.deepcopy(job_with(("nodeSelector",), {})["spec"]["template"])
    template["spec"]["initContainers"] = [{"name": "first", "image": "i"}, {"name": "second"}]
    _, reason, message = await evaluated(template=template)
    assert reason is Reason.POD_REFUSED
    assert "spec.template.spec.initContainers[1].image: Required value" in message
