"""How many pods a quota has room for, counted as the server counts them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from e2e.memory_api.quota import used_by
from e2e.memory_api.resources import PODS
from hajob.api import constants as names
from hajob.capacity.quotas import Ask, Quotas
from hajob.sources.quota import Quota, parse_thousandths, quota_view_of, use_of_pod

CHIPS = names.DEFAULT_RESOURCE_NAME


def pod(**requests: str) -> dict[str, Any]:
    chips = {CHIPS: "2"}
    return {"containers": [{"name": "c", "resources": {"requests": {**requests, **chips}, "limits": chips}}]}


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> Quota:
    body = {"metadata": {"namespace": "ns", "name": "q"}, "spec": spec, "status": {"hard": hard, "used": used or {}}}
    return quota_view_of(body)


def allowed(spec: dict[str, Any], *quotas: Quota, priority_class: str = "", **promised: int) -> int | None:
    known = Quotas()
    for one in quotas:
        known.store_quota(one)
    found = known.allowed_pods(Ask("ns", use_of_pod(spec), priority_class), Counter(promised))
    return None if found is None else found.pods


@pytest.mark.parametrize(
    ("hard", "used", "pods"),
    [
        ({"pods": "5"}, {"pods": "3"}, 2),
        ({"count/pods": "5"}, {"count/pods": "9"}, 0),
        ({f"requests.{CHIPS}": "8"}, {f"requests.{CHIPS}": "5"}, 1),
        ({"cpu": "2"}, {"cpu": "500m"}, 3),
        ({"requests.memory": "3Gi"}, {"requests.memory": "1024Mi"}, 2),
        ({"limits.cpu": "1"}, {}, None),
        ({"services": "0"}, {}, None),
        ({"pods": "9", "requests.cpu": "1"}, {}, 2),
    ],
)
def test_room_of_a_quota(hard: dict[str, str], used: dict[str, str], pods: int | None) -> None:
    assert allowed(pod(cpu="500m", memory="1Gi"), quota(hard, used)) == pods


@pytest.mark.parametrize(
    ("scopes", "priority_class", "counts"),
    [
        ({"scopes": ["NotTerminating"]}, "", True),
        ({"scopes": ["Terminating"]}, "", False),
        ({"scopes": ["BestEffort"]}, "", False),
        ({"scopes": ["NotBestEffort", "NotTerminating"]}, "", True),
        ({"scopes": ["PriorityClass"]}, "", False),
        ({"scopes": ["PriorityClass"]}, "high", True),
        ({"scopes": ["Something"]}, "", False),
    ],
)
def test_a_quota_is_about_pods_of_its_scopes(scopes: dict[str, Any], priority_class: str, counts: bool) -> None:
    found = allowed(pod(cpu="1"), quota({"pods": "0"}, **scopes), priority_class=priority_class)
    assert found == (0 if counts else None)


@pytest.mark.parametrize(("operator", "found"), [("In", 1), ("NotIn", None), ("Exists", 1), ("DoesNotExist", None)])
def test_a_quota_selects_priority_classes(operator: str, found: int | None) -> None:
    terms = [{"scopeName": "PriorityClass", "operator": operator, "values": ["high"]}]
    one = quota({"pods": "1"}, scopeSelector={"matchExpressions": terms})
    assert allowed(pod(), one, priority_class="high") == found


def test_what_others_were_promised_is_used() -> None:
    assert allowed(pod(), quota({"pods": "5"}, {"pods": "3"}), pods=1000) == 1
    assert allowed(pod(), quota({"pods": "5"}, {"pods": "3"}), pods=3000) == 0


def test_a_quota_that_is_gone_limits_nothing() -> None:
    known, one = Quotas(), quota({"pods": "0"})
    known.store_quota(one)
    known.remove_quota("ns", "q")
    assert known.allowed_pods(Ask("ns", use_of_pod(pod()))) is None


@pytest.mark.parametrize(
    "init",
    [
        [],
        [{"resources": {"requests": {"cpu": "3"}}}],
        [{"restartPolicy": "Always", "resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "1"}}}],
    ],
)
def test_a_pod_is_counted_as_the_servers_stand_in_does(init: list[dict[str, Any]]) -> None:
    spec = {**pod(cpu="500m", memory="1e3"), "initContainers": init}
    counted = used_by(PODS, {"spec": spec})
    assert {name: amount for name, amount in use_of_pod(spec) if amount} == {k: v for k, v in counted.items() if v}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1000),
        ("500m", 500),
        ("1Ki", 1024_000),
        ("1e3", 10**6),
        ("1u", 1),
        (".5", 500),
        ("5.", 5000),
        ("1099511627776000m", 1099511627776000),
        ("x", None),
        ("", None),
        (".", None),
        ("1Zi", None),
    ],
)
def test_quantities_are_read_in_thousandths(text: str, value: int | None) -> None:
    assert parse_thousandths(text) == value


@pytest.mark.parametrize(
    "hostile", [{}, {"metadata": 1, "spec": [], "status": "x"}, {"status": {"hard": {"pods": []}}}]
)
def test_what_is_no_quota_limits_nothing(hostile: dict[str, Any]) -> None:
    assert quota_view_of(hostile).hard == ()


def test_the_use_of_pods_that_are_alike_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for at each event of each pod."""
    containers = [{"name": "a", "resources": {"requests": {"cpu": "17m"}, "limits": {"cpu": "18m"}}}]
    spec = {"containers": containers, "overhead": {"memory": "1Gi"}}
    counted = use_of_pod(spec)
    monkeypatch.setattr("hajob.sources.quota._count_use", None)
    assert use_of_pod({**spec, "nodeName": "node-1"}) is counted
    with pytest.raises(TypeError):
        use_of_pod({**spec, "overhead": {"memory": "2Gi"}})
