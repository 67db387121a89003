"""Whatever the API server and Hajob accept, pods can be made from, and they keep what the user wrote."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings

from e2e.harness.odd_templates import jobs
from e2e.memory_api.client import MemoryKube
from e2e.memory_api.server import MemoryServer
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.conditions import Reason
from hajob.api.job import HATrainingJob
from hajob.job.admission import evaluate_pods
from hajob.pods.rank_pod import OWN_INIT_CONTAINERS, build_rank_pod
from hajob.pods.review import notes_on_spec, refusals_of_spec
from hajob.sources.pod import pod_view_of
from tests.rigs.example_jobs import SETTINGS, pods_of_every_kind
from tests.rigs.fake_clock import FakeClock

odd = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


async def accepted(job: Json) -> HATrainingJob:
    """The job, stored; each of its pods is accepted, with every field that is written."""
    kube = MemoryKube(MemoryServer(FakeClock()))
    stored = HATrainingJob.from_object(await kube.create_object(names.PLURAL, "default", job))
    assert await evaluate_pods(kube, stored, SETTINGS) == (Reason.VALID, "")
    for pod in pods_of_every_kind(stored):
        await kube.create_object("pods", "default", pod, dry_run=True)
    return stored


@odd
@given(jobs())
def test_every_pod_of_what_is_accepted_can_be_made(job: Json) -> None:
    asyncio.run(accepted(job))


def named(listed: list[Json]) -> dict[str, Json]:
    return {one["name"]: one for one in listed}


PUT_TOGETHER = {"command", "args", "env", "resources", "volumeMounts", "ports"}
"""Fields of the trainer to which Hajob adds."""
OVERRULED = {"restartPolicy", "schedulingGates", "containers", "initContainers", "volumes", "affinity", "tolerations"}


@odd
@given(jobs())
def test_a_pod_keeps_what_the_user_wrote(job: Json) -> None:
    made = HATrainingJob.from_object(job)
    pod, template = build_rank_pod(made, 0, 1, SETTINGS, ["node-1"]), job["spec"]["template"]
    spec, wrote = pod["spec"], template["spec"]
    assert {name: spec.get(name) for name in wrote.keys() - OVERRULED} == {
        name: wrote[name] for name in wrote.keys() - OVERRULED
    }
    own = len(OWN_INIT_CONTAINERS)
    assert [one["name"] for one in spec["initContainers"][:own]] == list(OWN_INIT_CONTAINERS)
    assert spec["initContainers"][own:] == wrote.get("initContainers", [])
    assert spec["volumes"][: len(wrote["volumes"])] == wrote["volumes"]
    assert [one["name"] for one in spec["containers"]] == [one["name"] for one in wrote["containers"]]
    assert [one for one in spec["containers"] if one["name"] != "trainer"] == [
        one for one in wrote["containers"] if one["name"] != "trainer"
    ]
    keeps_trainer(named(spec["containers"])["trainer"], named(wrote["containers"])["trainer"])
    metadata: Json = template.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    assert labels.items() - pod["metadata"]["labels"].items() <= {(names.LABEL_PLAIN_JOB_NAME, "mine")}
    assert annotations.items() <= pod["metadata"]["annotations"].items()
    kept_tolerations = [one for one in wrote.get("tolerations", []) if "node.kubernetes.io" not in one.get("key", "")]
    assert spec["tolerations"][: len(kept_tolerations)] == kept_tolerations


def keeps_trainer(container: Json, wrote: Json) -> None:
    """What stands in front of, behind or beside the user's own in the container that trains."""
    assert {name: container.get(name) for name in wrote.keys() - PUT_TOGETHER} == {
        name: wrote[name] for name in wrote.keys() - PUT_TOGETHER
    }
    words = [*wrote["command"], *wrote.get("args", [])]
    assert container["command"][-len(words) :] == words
    theirs = [entry for entry in wrote.get("env", []) if entry["name"] not in {"HAJOB_DIR", "POD_IP"}]
    assert container["env"][len(container["env"]) - len(theirs) :] == theirs
    assert container["volumeMounts"][: len(wrote["volumeMounts"])] == wrote["volumeMounts"]
    for side, amounts in wrote.get("resources", {}).items():
        if side != "claims":
            assert {name: str(amount) for name, amount in amounts.items()}.items() <= {
                name: str(amount) for name, amount in container["resources"][side].items()
            }.items()


@odd
@given(jobs())
def test_nothing_is_found_by_its_place(job: Json) -> None:
    """Containers, mounts and volumes in another order come to the same pods, refusals and notes."""

    def turned(body: Json) -> Json:
        spec = body["spec"]["template"]["spec"]
        lists = {part: list(reversed(spec[part])) for part in ("containers", "volumes")}
        found: Any = {**body["spec"]["template"], "spec": {**spec, **lists}}
        return {**body, "spec": {**body["spec"], "template": found}}

    one, other = HATrainingJob.from_object(job), HATrainingJob.from_object(turned(job))
    assert list(refusals_of_spec(one.spec)) == list(refusals_of_spec(other.spec)) == []
    assert list(notes_on_spec(one)) == list(notes_on_spec(other))
    first, second = (build_rank_pod(each, 0, 1, SETTINGS)["spec"] for each in (one, other))
    for part in ("containers", "volumes"):
        assert sorted(first[part], key=lambda each: str(each["name"])) == sorted(
            second[part], key=lambda each: str(each["name"])
        )
    assert first["initContainers"] == second["initContainers"]
    assert pod_view_of({"spec": first}) == pod_view_of({"spec": second})
