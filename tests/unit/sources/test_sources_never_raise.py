"""Whatever is in an object, a parser answers: damaged objects of real shape, and anything at all.

HAJOB_FUZZ_EXAMPLES says how many of each are tried (`make fuzz`).
"""

from __future__ import annotations

import copy
import json
import os
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hajob.domain.facts import Source
from hajob.sources import registry
from hajob.sources.check_code import check_codes
from hajob.sources.reading import Reading, Terms
from tests.rigs import hardware_objects as objects

TERMS = Terms(objects.NOW_MS)
EXAMPLES = int(os.environ.get("HAJOB_FUZZ_EXAMPLES", "300"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=20,
)
KEYS = st.sampled_from(
    [
        "DeviceInfoCfg",
        "SwitchInfoCfg",
        "ManuallySeparateNPU",
        "UpgradeFaultReason",
        "NodeInfo",
        "updateTime",
        "PublicFault",
    ]
)
NAMES = st.sampled_from(
    ["mindx-dl-deviceinfo-node-1", "mindx-dl-nodeinfo-node-1", "cluster-info-device-0", "cluster-info-node-cm", "x"]
)
REAL = [
    objects.device_info(),
    objects.switch_info(objects.switch_event()),
    objects.node_info(objects.hardware()),
    objects.public(objects.public_fault()),
    objects.node(ready="False", NPULost="True"),
]


def check(reading: Reading) -> None:
    assert all(fact.node and fact.source in set(Source) for fact in reading.facts)
    assert all(len(one.found) <= 81 and one.rejection_message for one in reading.rejected)


@given(name=NAMES, data=st.dictionaries(KEYS | st.text(max_size=10), st.text(max_size=200) | JSON, max_size=4))
@settings(max_examples=EXAMPLES)
def test_any_text_under_any_key(name: str, data: dict[str, Any]) -> None:
    raw = {"kind": "ConfigMap", "metadata": {"name": name, "labels": {"mc-consumer-publicfault": "true"}}, "data": data}
    check(registry.read_object(raw, TERMS))


@given(name=NAMES, key=KEYS, value=JSON)
@settings(max_examples=EXAMPLES)
def test_any_json_under_any_key(name: str, key: str, value: Any) -> None:
    data = {key: json.dumps(value), name: json.dumps({"mindx-dl-deviceinfo-n": value, "mindx-dl-nodeinfo-n": value})}
    check(registry.read_object({"kind": "ConfigMap", "metadata": {"name": name}, "data": data}, TERMS))


@given(raw=st.sampled_from(REAL), data=st.data())
@settings(max_examples=EXAMPLES)
def test_a_real_object_with_one_value_replaced(raw: dict[str, Any], data: st.DataObject) -> None:
    damaged = copy.deepcopy(raw)
    for key, value in list(damaged.get("data", {}).items()):
        damaged["data"][key] = _damage(value, data)
    if "data" not in damaged:
        damaged["status"] = data.draw(JSON)
    check(registry.read_object(damaged, TERMS))


def _damage(value: str, data: st.DataObject) -> str:
    try:
        content = json.loads(value)
    except ValueError:
        return value[: data.draw(st.integers(0, len(value)))]
    place = content
    while isinstance(place, dict) and place:
        key = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[key], dict) or data.draw(st.booleans()):
            place[key] = data.draw(JSON)
            break
        place = place[key]
    if isinstance(content, dict) and isinstance(content.get("DeviceInfo"), dict):
        content["CheckCode"] = check_codes(content["DeviceInfo"])[0]  # so that the inside is reached
    return json.dumps(content)


@given(raw=JSON)
def test_what_is_no_object_at_all(raw: Any) -> None:
    check(registry.read_object(raw if isinstance(raw, dict) else {"data": raw}, TERMS))
    check(registry.read_object({"kind": "Node", "metadata": {"name": "n"}, "status": raw, "spec": raw}, TERMS))
