"""What MindCluster's device plugin leaves out in its Volcano mode is written by Hajob, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.job.policies.chip_notes import PATIENCE_SECONDS, want_chip_notes
from hajob.job.snapshot import JobSnapshot
from hajob.job.wants import Patch
from hajob.plan.state import JobPhase, JobState
from hajob.sources.base_devices import parse_base_devices
from hajob.sources.node import NodeView
from hajob.sources.pod import chip_numbers
from tests.rigs.snapshots import NOW, RUNNING, rank, snapshot

CHIP = names.DEFAULT_RESOURCE_NAME
WALL_SECONDS = 1_795_255_200.0
DEVICES = json.dumps({"Ascend910-1": {"IP": "10.0.0.2"}, "Ascend910-0": {"IP": "10.0.0.1", "SuperDeviceID": 7}})


def made(
    *,
    age: float = 60.0,
    devices: str = DEVICES,
    chips: int = 2,
    scheduling: Any = None,
    network: Any = None,
    state: JobState = RUNNING,
    **pod: Any,
) -> JobSnapshot:
    node = NodeView("node-0", all_chips={CHIP: chips}, chips={CHIP: chips}, address="192.0.2.1", devices=devices)
    started = int((WALL_SECONDS - age) * 1000)
    whole = rank(0, **{"requests": ((CHIP, 2),), "started_ms": started, **pod})
    spec = {"scheduling": scheduling or {}, "network": network or {}}
    return snapshot(spec, pods=[whole], nodes=[node], state=state)


def test_chips_of_a_whole_node_are_noted_as_the_plugin_would() -> None:
    (patch,) = want_chip_notes(made()).changes
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    annotations = patch.body["metadata"]["annotations"]
    assert annotations[names.ANNOTATION_REAL_CHIPS] == "Ascend910-0,Ascend910-1"
    assert json.loads(annotations[names.ANNOTATION_CONFIGURATION]) == {
        "pod_name": "job-0",
        "server_id": "uid-of-job-0",
        "host_ip": "192.0.2.1",
        "super_pod_id": -1,
        "devices": [
            {"device_id": "0", "device_ip": "10.0.0.1", "super_device_id": "7"},
            {"device_id": "1", "device_ip": "10.0.0.2", "super_device_id": "-1"},
        ],
    }
    assert chip_numbers(annotations) == ("0", "1")


def test_a_plugin_has_time_to_write_them_itself() -> None:
    wants = want_chip_notes(made(age=10.0))
    assert (wants.changes, wants.again_at) == ((), NOW + PATIENCE_SECONDS - 10.0)


@pytest.mark.parametrize("table", ["Disabled", "Enabled"])
def test_a_start_writes_them_only_for_a_rank_table(table: str) -> None:
    starting = replace(RUNNING, phase=JobPhase.STARTING)
    changes = want_chip_notes(made(state=starting, network={"rankTablePolicy": table})).changes
    assert len(changes) == (1 if table == "Enabled" else 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"chips": 8},
        {"devices": ""},
        {"devices": "{"},
        {"devices": json.dumps({"Ascend910-0": {"IP": "10.0.0.1"}})},
        {"phase": "Pending"},
        {"deleting": True},
        {"scheduling": {"gangPolicy": "Volcano"}},
    ],
    ids=["a part of the node", "nothing told", "no JSON", "another number", "not started", "going", "Volcano writes"],
)
def test_of_other_pods_nothing_is_noted(fields: dict[str, Any]) -> None:
    wants = want_chip_notes(made(**fields))
    assert (wants.changes, wants.again_at) == ((), inf)


@pytest.mark.parametrize("written", ["[]", '{"x y": {"IP": "a"}}', '{"Ascend910-0": 3}', '{"Ascend910-0": {"IP": 3}}'])
def test_what_is_no_list_of_chips_is_none(written: str) -> None:
    assert parse_base_devices(written) == ()
