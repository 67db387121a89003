"""The server in memory answers as a real one: objects, deletion, patches, lists and watches."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import Metadata
from hajob.kube.client import ApiError, PatchKind, is_end_of_list
from hajob.kube.events import EventType, build_event
from tests.integration.memory_api.conftest import NO_SCHEDULER, PATIENCE_SECONDS, Api
from tests.rigs.jobs_on_server import QUICKSTART

MERGE, JSON = {"content_type": str(PatchKind.MERGE)}, {"content_type": str(PatchKind.JSON)}
CONTINUE: Json = {"continue": "bm9uc2Vuc2U"}
STRANGER = "00000000-0000-0000-0000-000000000000"


def pod(name: str, **spec: Any) -> Json:
    labels = {"app": "x"}
    containers = [{"name": "c", "image": "i"}]
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers, **NO_SCHEDULER, **spec}}


def config(name: str, **metadata: Any) -> Json:
    return {"metadata": {"name": name, **metadata}}


def owned_by(owner: Json, *, block: bool = True) -> list[Json]:
    uid = owner["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": uid}
    return [{**reference, "controller": True, "blockOwnerDeletion": block}]


# --- creation and validation


async def test_a_pod_is_stored_with_defaults(api: Api) -> None:
    made = await api.kube.create_object("pods", api.namespace, {**pod("a"), "status": {"phase": "Running"}})
    assert (made["kind"], made["apiVersion"], made["metadata"]["generation"]) == ("Pod", "v1", 1)
    assert made["status"]["phase"] == "Pending"
    spec = made["spec"]
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Always", 30)
    assert [each["tolerationSeconds"] for each in spec["tolerations"]] == [300, 300]
    assert "nodeName" not in spec


async def test_a_taken_name_is_refused_also_dry(api: Api) -> None:
    await api.kube.create_object("pods", api.namespace, pod("a"))
    for query in ({}, {"dryRun": "All"}):
        refused = await api.refusal("POST", f"{api.core}/pods", pod("a"), **query)
        assert (refused.status, refused.reason, refused.message) == (409, "AlreadyExists", 'pods "a" already exists')
        assert refused.details == {"name": "a", "kind": "pods"}


async def test_a_generated_name_begins_as_asked(api: Api) -> None:
    body = {"metadata": {"generateName": "g-"}, "spec": pod("x")["spec"]}
    made = [await api.kube.create_object("pods", api.namespace, body) for _ in range(2)]
    assert [each["metadata"]["name"][:2] for each in made] == ["g-", "g-"]
    assert len({each["metadata"]["name"] for each in made}) == 2


def containers(*found: Json) -> Json:
    return {"metadata": {"name": "b"}, "spec": {"containers": list(found)}}


C = {"name": "c", "image": "i"}
MALFORMED = {
    "no containers": (containers(), 422, "spec.containers: Required value"),
    "containers": (
        containers({"name": "c"}, C, {"image": "z"}),
        422,
        (
            "[spec.containers[0].image: Required value, spec.containers[1].name: Duplicate value: "
            '"c", spec.containers[2].name: Required value]'
        ),
    ),
    "enum": (
        pod("b", restartPolicy="Sometimes"),
        422,
        'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
    ),
    "list": (
        pod("b", tolerations="text"),
        400,
        "string into Go struct field PodSpec.spec.tolerations of type []v1.Toleration",
    ),
    "map": (
        pod("b", nodeSelector=["x"]),
        400,
        "array into Go struct field PodSpec.spec.nodeSelector of type map[string]string",
    ),
    "struct": (pod("b", affinity="text"), 400, "string into Go struct field PodSpec.spec.affinity of type v1.Affinity"),
    "string": (
        containers({**C, "env": [{"name": "A", "value": 1}]}),
        400,
        "number into Go struct field EnvVar.spec.containers.env.value of type string",
    ),
    "number": (
        pod("b", terminationGracePeriodSeconds="x"),
        400,
        "string into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64",
    ),
}
BEGINNINGS = {
    422: 'Pod "b" is invalid: ',
    400: 'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal ',
}


@pytest.mark.parametrize("what", MALFORMED)
async def test_a_malformed_pod_is_refused_in_words(api: Api, what: str) -> None:
    body, status, message = MALFORMED[what]
    refused = await api.refusal("POST", f"{api.core}/pods", body)
    assert (refused.status, refused.message) == (status, BEGINNINGS[status] + message)


async def test_a_pod_without_a_name_is_refused(api: Api) -> None:
    refused = await api.refusal("POST", f"{api.core}/pods", {"metadata": {}, "spec": {"containers": [C]}})
    assert refused.message == 'Pod "" is invalid: metadata.name: Required value: name or generateName is required'


async def test_quantities_are_checked(api: Api) -> None:
    def asking(kind: str, name: str, amount: str) -> Json:
        resources = {kind: {name: amount}}
        return {
            "metadata": {"name": "b"},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
        }

    refused = await api.refusal("POST", f"{api.core}/pods", asking("requests", "cpu", "lots"))
    assert (refused.status, "quantities must match" in refused.message) == (400, True)
    refused = await api.refusal("POST", f"{api.core}/pods", asking("limits", "huawei.com/Ascend910", "1.5"))
    field = "spec.containers[0].resources.limits[huawei.com/Ascend910]"
    assert refused.details["causes"][0] == {
        "reason": "FieldValueInvalid",
        "message": 'Invalid value: "1500m": must be an integer',
        "field": field,
    }


async def test_nothing_is_made_in_a_missing_or_ending_namespace(api: Api) -> None:
    refused = await api.refusal("POST", "/api/v1/namespaces/missing/pods", pod("a"))
    assert (refused.status, refused.message) == (404, 'namespaces "missing" not found')
    name = f"{api.namespace[:40]}-two"
    await api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    path = f"/api/v1/namespaces/{name}"
    await api.ask("POST", f"{path}/configmaps", config("kept", finalizers=["x.io/y"]))
    ended = await api.ask("DELETE", path)
    assert ended["status"]["phase"] == "Terminating"
    refused = await api.refusal("POST", f"{path}/configmaps", config("a"))
    told = f"unable to create new content in namespace {name} because it is being terminated"
    assert (refused.status, refused.message) == (403, f'configmaps "a" is forbidden: {told}')
    await api.until(lambda: api.ask("GET", f"{path}/configmaps/kept"))
    await api.ask("PATCH", f"{path}/configmaps/kept", {"metadata": {"finalizers": None}}, **MERGE)
    await api.gone(path)


async def test_what_is_not_there_is_named(api: Api) -> None:
    for method, body in (("GET", None), ("DELETE", None), ("PATCH", {"metadata": {}})):
        refused = await api.refusal(method, f"{api.core}/pods/none", body, **(MERGE if body else {}))
        assert (refused.status, refused.reason, refused.message) == (404, "NotFound", 'pods "none" not found')
        assert refused.details == {"name": "none", "kind": "pods"}
    path = f"/apis/{names.API_VERSION}/namespaces/{api.namespace}/{names.PLURAL}/none"
    refused = await api.refusal("GET", path)
    assert refused.message == 'hatrainingjobs.training.hajob.io "none" not found'
    assert refused.details == {"name": "none", "group": "training.hajob.io", "kind": "hatrainingjobs"}
    refused = await api.refusal("GET", f"{api.core}/nothing/x")
    assert (refused.status, refused.message) == (404, "the server could not find the requested resource")
    refused = await api.refusal("GET", "/apis/nowhere.example/v1/things")
    assert (refused.status, refused.message, refused.details) == (404, "", {})


async def test_leases_have_microseconds_and_32_bits(api: Api) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases"

    async def told(**spec: Any) -> str:
        return (await api.refusal("POST", path, {"metadata": {"name": "l"}, "spec": spec})).message

    assert "cannot parse" in await told(renewTime="2026-11-21T09:00:00Z")
    assert (await told(leaseTransitions=3_000_000_000)).endswith("LeaseSpec.spec.leaseTransitions of type int32")
    assert (await told(leaseDurationSeconds=0)).endswith("must be greater than 0")
    assert (await told(leaseTransitions=-1)).endswith("must be greater than or equal to 0")


async def test_an_event_must_say_when_and_about_whom(api: Api) -> None:
    path = f"{api.core}/events"
    body = {"metadata": {"name": "e"}, "type": "Odd", "involvedObject": {"namespace": "elsewhere"}}
    causes = (await api.refusal("POST", path, body)).details["causes"]
    assert [cause["field"] for cause in causes] == ["involvedObject.namespace"]
    timed = {**body, "involvedObject": {"namespace": api.namespace}, "eventTime": "2026-11-21T09:00:00.000000Z"}
    causes = (await api.refusal("POST", path, timed)).details["causes"]
    assert {cause["field"] for cause in causes} == {"reportingComponent", "reportingInstance", "action", "reason"}


async def test_an_event_has_the_time_kubectl_sorts_by(api: Api) -> None:
    about = Metadata(name="job", namespace=api.namespace, uid="u")
    event = build_event(about, 1_767_225_900_123, "Recovering", "text", type_=EventType.WARNING, instance="operator-a")
    made = await api.kube.create_object("events", api.namespace, event)
    assert (made["lastTimestamp"], made["eventTime"]) == ("2026-01-01T00:05:00Z", "2026-01-01T00:05:00.123000Z")


async def test_warnings_about_an_object_are_found(api: Api) -> None:
    for number, (uid, kind) in enumerate((("u", EventType.WARNING), ("u", EventType.NORMAL), ("v", EventType.WARNING))):
        about = Metadata(name="job", namespace=api.namespace, uid=uid)
        event = build_event(about, 1_767_225_900_000 + number, "R", "text", type_=kind, instance="operator-a")
        await api.kube.create_object("events", api.namespace, event)
    asked = "involvedObject.uid=u,type=Warning"
    found = [page async for page in api.kube.list_pages("events", api.namespace, field_selector=asked)]
    ((event,),) = [page.items for page in found]
    assert (event["involvedObject"]["uid"], event["type"]) == ("u", "Warning")


async def test_a_note_is_measured_in_bytes(api: Api) -> None:
    path = f"{api.core}/events"

    def event(name: str, note: str) -> Json:
        about = {"kind": "Pod", "namespace": api.namespace, "name": "p"}
        words = {
            "reason": "R",
            "action": "A",
            "reportingComponent": "x.io/c",
            "reportingInstance": "i",
            "type": "Normal",
        }
        time = "2026-11-21T09:00:00.000000Z"
        return {"metadata": {"name": name}, "eventTime": time, "message": note, "involvedObject": about, **words}

    await api.ask("POST", path, event("a", "x" * 1024))
    refused = await api.refusal("POST", path, event("b", "x" * 1023 + "…"))
    assert refused.message == 'Event "b" is invalid: message: Invalid value: "": can have at most 1024 characters'


async def test_secrets_come_back_encoded(api: Api) -> None:
    made = await api.kube.create_object("secrets", api.namespace, {"metadata": {"name": "s"}, "stringData": {"k": "v"}})
    assert (made["data"], made["type"], "stringData" in made) == ({"k": "dg=="}, "Opaque", False)


# --- updates


async def test_an_old_version_is_refused(api: Api) -> None:
    made = await api.kube.create_object("configmaps", api.namespace, config("m"))
    await api.kube.patch_object("configmaps", api.namespace, "m", {"data": {"a": "1"}})
    refused = await api.refusal("PUT", f"{api.core}/configmaps/m", made)
    assert (refused.status, refused.reason) == (409, "Conflict")
    assert refused.message.endswith("please apply your changes to the latest version and try again")
    late = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"a": "2"}}
    assert (await api.refusal("PATCH", f"{api.core}/configmaps/m", late, **MERGE)).status == 409
    assert (await api.kube.get_object("configmaps", api.namespace, "m"))["data"] == {"a": "1"}


async def test_an_update_that_changes_nothing_makes_no_version(api: Api) -> None:
    made = await api.kube.create_object("configmaps", api.namespace, {**config("m"), "data": {"a": "1"}})
    again = await api.kube.patch_object("configmaps", api.namespace, "m", {"data": {"a": "1", "gone": None}})
    put = await api.kube.replace_object("configmaps", api.namespace, made)
    version = made["metadata"]["resourceVersion"]
    assert [each["metadata"]["resourceVersion"] for each in (again, put)] == [version, version]


async def test_a_json_patch_is_done_whole_or_not_at_all(api: Api) -> None:
    await api.kube.create_object("configmaps", api.namespace, {**config("m", labels={"a/b": "1"}), "data": {"k": "1"}})
    path = f"{api.core}/configmaps/m"
    patch = [{"op": "replace", "path": "/data/k", "value": "2"}, {"op": "test", "path": "/metadata/uid", "value": "x"}]
    refused = await api.refusal("PATCH", path, patch, **JSON)
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert refused.message == "the server rejected our request due to an error in our request"
    for broken in ({"op": "remove", "path": "/data/none"}, {"op": "replace", "path": "/none/k", "value": "1"}):
        assert (await api.refusal("PATCH", path, [broken], **JSON)).status == 422
    assert (await api.kube.get_object("configmaps", api.namespace, "m"))["data"] == {"k": "1"}
    good = [{"op": "remove", "path": "/metadata/labels/a~1b"}, {"op": "add", "path": "/data/n", "value": "3"}]
    done = await api.ask("PATCH", path, good, **JSON)
    assert (done["data"], done["metadata"].get("labels")) == ({"k": "1", "n": "3"}, None)


async def test_a_pods_status_and_spec_are_written_apart(api: Api) -> None:
    await api.kube.create_object("pods", api.namespace, pod("a", nodeName="nowhere"))
    main = await api.kube.patch_object("pods", api.namespace, "a", {"status": {"phase": "Running"}})
    assert main["status"]["phase"] == "Pending"
    body = {"status": {"phase": "Running"}, "metadata": {"labels": {"b": "2"}}, "spec": {"nodeName": "other"}}
    status = await api.kube.patch_object("pods", api.namespace, "a", body, subresource="status")
    assert (status["status"]["phase"], status["spec"]["nodeName"]) == ("Running", "nowhere")
    assert status["metadata"]["labels"] == {"app": "x", "b": "2"}


async def test_a_pod_stays_what_it_is(api: Api) -> None:
    await api.kube.create_object("pods", api.namespace, pod("a", nodeName="nowhere"))
    path = f"{api.core}/pods/a"
    refused = await api.refusal("PATCH", path, {"spec": {"nodeName": "other"}}, **MERGE)
    assert refused.message.startswith('Pod "a" is invalid: spec: Forbidden: pod updates may not change fields other')
    refused = await api.refusal("PATCH", path, {"metadata": {"uid": STRANGER}}, **MERGE)
    assert "field is immutable" in refused.message
    refused = await api.refusal("PATCH", path, {"metadata": {"labels": {"a": "!"}}}, **MERGE)
    assert refused.message.startswith('Pod "a" is invalid: metadata.labels: Invalid value: "!": a valid label must be')


async def test_gates_are_only_taken_away(api: Api) -> None:
    made = await api.kube.create_object("pods", api.namespace, pod("g", schedulingGates=[{"name": "x.io/g"}]))
    assert made["status"]["conditions"][0]["reason"] == "SchedulingGated"
    path, binding = f"{api.core}/pods/g", {"metadata": {"name": "g"}, "target": {"kind": "Node", "name": "n"}}
    refused = await api.refusal("POST", f"{path}/binding", binding)
    assert (refused.status, "non-empty .spec.schedulingGates" in refused.message) == (409, True)
    refused = await api.refusal("PATCH", path, {"spec": {"schedulingGates": [{"name": "x.io/h"}]}}, **MERGE)
    assert "only deletion is allowed, but found new scheduling gate 'x.io/h'" in refused.message
    free = await api.ask("PATCH", path, {"spec": {"schedulingGates": []}}, **MERGE)
    assert free["metadata"]["generation"] == 2
    await api.ask("POST", f"{path}/binding", binding)
    assert (await api.kube.get_object("pods", api.namespace, "g"))["spec"]["nodeName"] == "n"
    refused = await api.refusal("POST", f"{path}/binding", binding)
    assert 'pod g is already assigned to node "n"' in refused.message


# --- deletion


async def test_preconditions_protect_a_namesake(api: Api) -> None:
    made = await api.kube.create_object("pods", api.namespace, pod("a", nodeName="nowhere"))
    path, uid = f"{api.core}/pods/a", made["metadata"]["uid"]
    refused = await api.refusal("DELETE", path, {"preconditions": {"uid": STRANGER}})
    assert (refused.status, refused.reason) == (409, "Conflict")
    assert f"({STRANGER}) does not match the UID in record ({uid})" in refused.message
    refused = await api.refusal("DELETE", path, {"preconditions": {"uid": uid, "resourceVersion": "1"}})
    assert "the ResourceVersion in the precondition (1) does not match" in refused.message
    await api.kube.delete_object("pods", api.namespace, "a", uid=uid, grace_seconds=0)
    await api.gone(path)


async def test_a_pod_on_a_node_ends_in_its_own_time(api: Api) -> None:
    await api.kube.create_object("pods", api.namespace, pod("a", nodeName="nowhere"))
    path = f"{api.core}/pods/a"
    await api.ask("DELETE", path, dryRun="All")
    assert "deletionTimestamp" not in (await api.ask("GET", path))["metadata"]
    seen = [
        await api.ask("DELETE", path, {"gracePeriodSeconds": each} if each else None) for each in (None, 10, 60, None)
    ]
    assert [each["metadata"]["deletionGracePeriodSeconds"] for each in seen] == [30, 10, 10, 10]
    assert seen[0]["metadata"]["generation"] == 2
    await api.ask("DELETE", path, {"gracePeriodSeconds": 0})
    await api.gone(path)


@pytest.mark.parametrize("how", ["not placed", "ended"])
async def test_a_pod_that_no_kubelet_runs_goes_at_once(api: Api, how: str) -> None:
    await api.kube.create_object("pods", api.namespace, pod("a", **({"nodeName": "nowhere"} if how == "ended" else {})))
    if how == "ended":
        await api.kube.patch_object("pods", api.namespace, "a", {"status": {"phase": "Failed"}}, subresource="status")
    await api.ask("DELETE", f"{api.core}/pods/a")
    assert (await api.refusal("GET", f"{api.core}/pods/a")).status == 404


async def test_a_finalizer_holds_an_object(api: Api) -> None:
    await api.kube.create_object("configmaps", api.namespace, config("m", finalizers=["x.io/y"]))
    path = f"{api.core}/configmaps/m"
    first = await api.ask("DELETE", path)
    again = await api.ask("DELETE", path)
    assert first["metadata"] == again["metadata"]
    assert first["metadata"]["deletionTimestamp"]
    refused = await api.refusal("PATCH", path, {"metadata": {"finalizers": ["x.io/y", "x.io/z"]}}, **MERGE)
    assert "no new finalizers can be added if the object is being deleted" in refused.message
    assert (await api.refusal("POST", f"{api.core}/configmaps", config("m"))).reason == "AlreadyExists"
    await api.ask("PATCH", path, {"metadata": {"finalizers": None}}, **MERGE)
    assert (await api.refusal("GET", path)).status == 404


async def test_dependents_follow_their_owner(api: Api) -> None:
    owner = await api.kube.create_object("configmaps", api.namespace, config("owner"))
    await api.kube.create_object("configmaps", api.namespace, config("child", ownerReferences=owned_by(owner)))
    await api.kube.delete_object("configmaps", api.namespace, "owner")
    assert (await api.refusal("GET", f"{api.core}/configmaps/owner")).status == 404
    await api.gone(f"{api.core}/configmaps/child")


async def test_an_owner_of_another_uid_is_none(api: Api) -> None:
    owner = await api.kube.create_object("configmaps", api.namespace, config("owner"))
    owner["metadata"]["uid"] = STRANGER
    await api.kube.create_object("configmaps", api.namespace, config("child", ownerReferences=owned_by(owner)))
    await api.gone(f"{api.core}/configmaps/child")
    await api.kube.get_object("configmaps", api.namespace, "owner")


async def test_one_of_two_owners_is_enough(api: Api) -> None:
    first, second = [await api.kube.create_object("configmaps", api.namespace, config(name)) for name in ("one", "two")]
    references = [*owned_by(first), {**owned_by(second)[0], "controller": False}]
    await api.kube.create_object("configmaps", api.namespace, config("child", ownerReferences=references))
    await api.kube.delete_object("configmaps", api.namespace, "one")

    async def forgotten() -> bool:
        child = await api.kube.get_object("configmaps", api.namespace, "child")
        return [each["name"] for each in child["metadata"]["ownerReferences"]] == ["two"]

    await api.until(forgotten)


async def test_a_foreground_deletion_waits_for_dependents(api: Api) -> None:
    owner = await api.kube.create_object("configmaps", api.namespace, config("owner"))
    child = config("child", ownerReferences=owned_by(owner), finalizers=["x.io/y"])
    await api.kube.create_object("configmaps", api.namespace, child)
    path = f"{api.core}/configmaps"
    held = await api.ask("DELETE", f"{path}/owner", {"propagationPolicy": "Foreground"})
    assert held["metadata"]["finalizers"] == ["foregroundDeletion"]

    async def child_ends() -> bool:
        return "deletionTimestamp" in (await api.ask("GET", f"{path}/child"))["metadata"]

    await api.until(child_ends)
    await api.ask("GET", f"{path}/owner")
    await api.ask("PATCH", f"{path}/child", {"metadata": {"finalizers": None}}, **MERGE)
    await api.gone(f"{path}/owner")


async def test_orphans_stay_without_their_owner(api: Api) -> None:
    owner = await api.kube.create_object("configmaps", api.namespace, config("owner"))
    await api.kube.create_object("configmaps", api.namespace, config("child", ownerReferences=owned_by(owner)))
    await api.ask("DELETE", f"{api.core}/configmaps/owner", {"propagationPolicy": "Orphan"})
    await api.gone(f"{api.core}/configmaps/owner")
    child = await api.kube.get_object("configmaps", api.namespace, "child")
    assert "ownerReferences" not in child["metadata"]


# --- lists and watches


async def test_pages_show_one_moment(api: Api) -> None:
    labels = {"app": "paged"}
    for number in range(5):
        await api.kube.create_object("configmaps", api.namespace, config(f"m{number}", labels=labels))
    query: Json = {"limit": "2", "labelSelector": "app=paged"}
    first = await api.ask("GET", f"{api.core}/configmaps", **query)
    await api.kube.delete_object("configmaps", api.namespace, "m3")
    await api.kube.create_object("configmaps", api.namespace, config("m4x", labels=labels))
    found, page = [], first
    while True:
        found += [each["metadata"]["name"] for each in page["items"]]
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        if not (token := page["metadata"].get("continue")):
            break
        page = await api.ask("GET", f"{api.core}/configmaps", **{**query, "continue": token})
    assert found == ["m0", "m1", "m2", "m3", "m4"]
    assert (await api.refusal("GET", f"{api.core}/configmaps", **CONTINUE)).status == 400


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("a=1", ["one"]),
        ("a==1,b", ["one"]),
        ("a!=1", ["two", "zero"]),
        ("a in (1, 2)", ["one", "two"]),
        ("a notin (2),!c", ["one", "zero"]),
        ("!a", ["zero"]),
    ],
)
async def test_labels_select(api: Api, selector: str, found: list[str]) -> None:
    for name, labels in (("one", {"a": "1", "b": "x"}), ("two", {"a": "2"}), ("zero", {"z": "0"})):
        await api.kube.create_object("secrets", api.namespace, {"metadata": {"name": name, "labels": labels}})
    pages = [page async for page in api.kube.list_pages("secrets", api.namespace, selector)]
    assert [each["metadata"]["name"] for page in pages for each in page.items] == found


async def test_fields_select(api: Api) -> None:
    await api.kube.create_object("pods", api.namespace, pod("a", nodeName="n1"))
    await api.kube.create_object("pods", api.namespace, pod("b", nodeName="n2"))

    async def listed(selector: str) -> list[str]:
        answer = await api.ask("GET", f"{api.core}/pods", fieldSelector=selector)
        return [each["metadata"]["name"] for each in answer["items"]]

    assert await listed("spec.nodeName=n1") == ["a"]
    assert await listed("status.phase=Pending,metadata.name!=a") == ["b"]
    refused = await api.refusal("GET", f"{api.core}/pods", fieldSelector="spec.nonsense=x")
    assert (refused.status, refused.message) == (400, "field label not supported: spec.nonsense")
    assert (await api.refusal("GET", f"{api.core}/pods", labelSelector="a in (b")).status == 400


async def test_a_watch_tells_what_comes_into_and_leaves_its_sight(api: Api) -> None:
    version = (await api.ask("GET", f"{api.core}/configmaps"))["metadata"]["resourceVersion"]
    await api.kube.create_object("configmaps", api.namespace, config("m", labels={"a": "1"}))
    await api.kube.patch_object("configmaps", api.namespace, "m", {"data": {"k": "1"}})
    out = await api.kube.patch_object("configmaps", api.namespace, "m", {"metadata": {"labels": {"a": "2"}}})
    await api.kube.patch_object("configmaps", api.namespace, "m", {"metadata": {"labels": {"a": "1"}}})
    await api.kube.delete_object("configmaps", api.namespace, "m")
    events = await api.events(f"{api.core}/configmaps", 5, resourceVersion=version, labelSelector="a=1")
    assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    left = events[2].object["metadata"]
    assert (left["labels"], left["resourceVersion"]) == ({"a": "1"}, out["metadata"]["resourceVersion"])
    versions = [int(event.object["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(versions)


async def test_a_watch_without_a_version_begins_with_what_is_there(api: Api) -> None:
    await api.kube.create_object("secrets", api.namespace, config("a"))
    await api.kube.create_object("secrets", api.namespace, config("b"))
    events = await api.events(f"{api.core}/secrets", 2)
    assert [(event.type, event.object["metadata"]["name"]) for event in events] == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_streamed_list_ends_with_its_bookmark(api: Api) -> None:
    for name in ("a", "b"):
        await api.kube.create_object("secrets", api.namespace, config(name))
    listed = (await api.ask("GET", f"{api.core}/secrets"))["metadata"]["resourceVersion"]
    told: list[str] = []
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        aclosing(  # type: ignore[type-var]
            api.kube.watch_objects("secrets", api.namespace, with_list=True)
        ) as events,
    ):
        async for event in events:
            if is_end_of_list(event):
                break
            told.append(f"{event.type} {event.object['metadata']['name']}")
    assert told == ["ADDED a", "ADDED b"]
    assert int(event.object["metadata"]["resourceVersion"]) >= int(listed)


async def test_a_watch_ends_when_its_time_is_over(api: Api) -> None:
    version = (await api.ask("GET", f"{api.core}/secrets"))["metadata"]["resourceVersion"]
    watch = api.events(f"{api.core}/secrets", 1, resourceVersion=version, timeoutSeconds="1")
    assert await api.during(watch, 2.0) == []


# --- tokens


async def test_a_bound_token_dies_with_its_pod(api: Api) -> None:
    made = await api.kube.create_object("pods", api.namespace, pod("a"))
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "a", "uid": made["metadata"]["uid"]}
    request = {"spec": {"audiences": ["coordinators"], "boundObjectRef": bound}}
    token = (await api.ask("POST", f"{api.core}/serviceaccounts/default/token", request))["status"]["token"]
    assert await api.kube.pod_of_token(token, "coordinators") == made["metadata"]["uid"]
    assert await api.kube.pod_of_token(token, "somebody") is None
    assert await api.kube.pod_of_token("nonsense", "coordinators") is None
    await api.kube.delete_object("pods", api.namespace, "a", grace_seconds=0)

    async def dead() -> bool:
        return await api.kube.pod_of_token(token, "coordinators") is None

    await api.until(dead)


# --- the custom resource


KIND = {"apiVersion": names.API_VERSION, "kind": names.KIND}


def job(**spec: Any) -> Json:
    return {"metadata": {"name": "j", "namespace": "x"}, "spec": {**QUICKSTART["spec"], **spec}}


async def test_a_job_gets_defaults_and_loses_what_nobody_knows(api: Api) -> None:
    body = {**job(unknown=1), "metadata": {"name": "j"}, "status": {"fence": 3}}
    with pytest.raises(ApiError, match="must be of type HATrainingJob") as refused:
        await api.kube.create_object(names.PLURAL, api.namespace, body)
    assert refused.value.status == 400
    made = await api.kube.create_object(names.PLURAL, api.namespace, {**body, **KIND})
    assert ("unknown" in made["spec"], made["spec"]["framework"], "status" in made) == (False, "PyTorch", False)
    assert made["spec"]["template"] == QUICKSTART["spec"]["template"]
    path = f"/apis/{names.API_VERSION}/namespaces/{api.namespace}/{names.PLURAL}/j"
    changed = await api.ask("PATCH", path, {"spec": {"suspend": True}, "status": {"fence": 9}}, **MERGE)
    assert (changed["metadata"]["generation"], "status" in changed) == (2, False)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"numNodes": 0}, ("spec.numNodes", "should be greater than or equal to 1")),
        ({"numNodes": "four"}, ("spec.numNodes", 'must be of type integer: "string"')),
        ({"framework": "Other"}, ("spec.framework", 'supported values: "PyTorch", "MindSpore"')),
        ({"checkpoint": {}}, ("spec.checkpoint.path", "Required value")),
    ],
    ids=["minimum", "type", "enum", "required"],
)
async def test_a_job_outside_its_schema_is_refused(api: Api, change: Json, cause: tuple[str, str]) -> None:
    path = f"/apis/{names.API_VERSION}/namespaces/{api.namespace}/{names.PLURAL}"
    refused = await api.refusal("POST", path, {**job(**change), "metadata": {"name": "j"}, **KIND})
    assert refused.status == 422
    assert refused.message.startswith('HATrainingJob.training.hajob.io "j" is invalid:')
    field, words = cause
    assert any(each["field"] == field and words in each["message"] for each in refused.details["causes"])


async def test_a_jobs_fence_only_grows(api: Api) -> None:
    body = {**job(), "metadata": {"name": "j"}, **KIND}
    made = await api.kube.create_object(names.PLURAL, api.namespace, body)
    path = f"/apis/{names.API_VERSION}/namespaces/{api.namespace}/{names.PLURAL}/j/status"
    await api.ask("PATCH", path, [{"op": "add", "path": "/status", "value": {"fence": 4}}], **JSON)
    refused = await api.refusal("PATCH", path, [{"op": "add", "path": "/status/fence", "value": 3}], **JSON)
    assert (refused.status, refused.details["causes"][0]["field"]) == (422, "status.fence")
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": made["metadata"]["uid"]},
        {"op": "add", "path": "/status/fence", "value": 5},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        {"op": "add", "path": "/spec/suspend", "value": True},
    ]
    written = await api.ask("PATCH", path, patch, **JSON)
    assert (written["status"]["fence"], written["spec"].get("suspend", False)) == (5, False)
    assert (written["metadata"]["generation"], "labels" in written["metadata"]) == (1, False)
