"""What cannot be served is refused when it is applied, and what was stored before the rule stays manageable."""

from __future__ import annotations

from copy import deepcopy

import pytest

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.schema import completed, job_schema
from e2e.memory_api.server import MemoryServer
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.kube.client import ApiError
from tests.rigs.fake_clock import FakeClock
from tests.rigs.unserved_jobs import BY_A_RULE, BY_THE_OPERATOR, MUTABLE, Edit, edited

STATUS = {"fence": 1, "incarnation": 1}


@pytest.fixture
def kube() -> MemoryKube:
    return MemoryKube(MemoryServer(FakeClock()))


async def stored(kube: MemoryKube, edit: Edit) -> Json:
    """A suspended job with this edit, as an operator and a CRD before the rule have left it."""
    good = await kube.create_object(names.PLURAL, "default", edited(lambda job: job["spec"].update(suspend=True)))
    spec = completed(job_schema()["properties"]["spec"], edited(edit)["spec"]) | {"suspend": True}
    return kube.server.history.put(names.PLURAL, {**good, "spec": spec, "status": STATUS})


async def patched(kube: MemoryKube, body: Json, subresource: str = "") -> Json:
    return await kube.patch_object(names.PLURAL, "default", "job", body, subresource=subresource)


def good(_: Json) -> None:
    """No edit."""


@pytest.mark.parametrize("case", BY_A_RULE)
async def test_a_new_job_is_refused_with_the_field_and_what_to_do(kube: MemoryKube, case: str) -> None:
    edit, sentence = BY_A_RULE[case]
    with pytest.raises(ApiError) as refused:
        await kube.create_object(names.PLURAL, "default", edited(edit))
    assert (refused.value.status, sentence in refused.value.message) == (422, True), refused.value.message


@pytest.mark.parametrize("case", BY_THE_OPERATOR)
async def test_what_no_rule_can_say_is_stored(kube: MemoryKube, case: str) -> None:
    """The operator says it a moment later (tests.unit.runtime.test_admission)."""
    await kube.create_object(names.PLURAL, "default", edited(BY_THE_OPERATOR[case][0]))


@pytest.mark.parametrize("case", BY_A_RULE)
async def test_a_job_from_before_the_rule_stays_manageable(kube: MemoryKube, case: str) -> None:
    await stored(kube, BY_A_RULE[case][0])
    await patched(kube, {"status": {"fence": 2, "incarnation": 2}}, "status")
    await patched(kube, {"metadata": {"finalizers": [names.FINALIZER], "labels": {"a": "b"}}})
    await patched(kube, {"spec": {"suspend": False}})
    await patched(kube, {"spec": {"recovery": {"mode": "Observe"}}})
    await patched(kube, {"metadata": {"finalizers": []}})
    await kube.delete_object(names.PLURAL, "default", "job")
    assert kube.server.history.all(names.PLURAL) == []


@pytest.mark.parametrize("case", MUTABLE)
async def test_an_edit_brings_in_none_of_it(kube: MemoryKube, case: str) -> None:
    before = deepcopy(await stored(kube, good))
    edit, sentence = BY_A_RULE[case]
    edit(before)
    with pytest.raises(ApiError) as refused:
        await kube.replace_object(names.PLURAL, "default", before)
    assert (refused.value.status, sentence in refused.value.message) == (422, True), refused.value.message


async def test_an_edit_may_take_it_out(kube: MemoryKube) -> None:
    await stored(kube, BY_A_RULE["queueName without Volcano"][0])
    await patched(kube, {"spec": {"scheduling": {"queueName": ""}}})


async def test_a_field_that_nobody_knows_is_refused(kube: MemoryKube) -> None:
    path = f"/apis/{names.API_VERSION}/namespaces/default/{names.PLURAL}"
    body = edited(good)
    body["spec"]["template"]["metadata"] = {"name": "x", "labels": {"a": "b"}, "creationTimestamp": None}
    body["spec"]["numNode"] = 3
    with pytest.raises(ApiError) as refused:
        await kube.transport.send_request("POST", path, query={"fieldValidation": "Strict"}, body=body)
    told = 'strict decoding error: unknown field "spec.template.metadata.name", unknown field "spec.numNode"'
    assert (refused.value.status, told in refused.value.message) == (400, True)
