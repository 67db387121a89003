"""The rank table of a job: Ascend Operator's form, from what is noted on pods; and why there is none."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from hajob.api.constants import ANNOTATION_CONFIGURATION, RANK_TABLE_VOLUME
from hajob.sources.pod import PodView, pod_view_of
from hajob.sources.rank_table import RankTable, build_rank_table
from tests.rigs.snapshots import rank


def noted(node_rank: int, *, chips: int = 2, host: str = "", address: str = "", **fields: Any) -> PodView:
    """Return a rank pod with notes of its chips."""
    devices = [
        {"device_id": str(one), "device_ip": address or f"10.0.{node_rank}.{one}", "super_device_id": str(100 + one)}
        for one in range(chips)
    ]
    told = {"server_id": f"uid-{node_rank}", "host_ip": host or f"192.0.2.{node_rank}", "devices": devices}
    return rank(node_rank, **{"address": f"10.9.0.{node_rank}", "devices": json.dumps(told), **fields})


def content(table: RankTable) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(table.content)
    return found


def test_a_table_has_the_form_of_ascend_operators() -> None:
    table = build_rank_table([noted(0), noted(1)], 2, 0)
    assert content(table) == {
        "status": "completed",
        "server_list": [
            {
                "device": [
                    {"device_id": "0", "device_ip": f"10.0.{node}.0", "rank_id": str(2 * node)},
                    {"device_id": "1", "device_ip": f"10.0.{node}.1", "rank_id": str(2 * node + 1)},
                ],
                "server_id": f"192.0.2.{node}",
                "host_ip": f"192.0.2.{node}",
                "container_ip": f"10.9.0.{node}",
            }
            for node in range(2)
        ],
        "server_count": "2",
        "version": "1.0",
    }
    assert table.pod_uids == ("uid-of-job-0", "uid-of-job-1")
    assert b'"status":"completed"' in table.content, "what scripts look for"


def test_blocks_of_super_pods_make_it_version_one_two() -> None:
    table = content(build_rank_table([noted(node) for node in range(4)], 2, 2))
    assert table["version"] == "1.2"
    assert table["server_list"][0]["device"][1]["super_device_id"] == "101"
    assert table["super_pod_list"] == [
        {"super_pod_id": "0", "server_list": [{"server_id": "192.0.2.0"}, {"server_id": "192.0.2.1"}]},
        {"super_pod_id": "1", "server_list": [{"server_id": "192.0.2.2"}, {"server_id": "192.0.2.3"}]},
    ]


def test_two_pods_of_one_machine_are_told_apart() -> None:
    table = content(build_rank_table([noted(0, host="192.0.2.9"), noted(1, host="192.0.2.9")], 2, 0))
    assert [server["server_id"] for server in table["server_list"]] == ["uid-0", "uid-1"]


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (None, ""),
        (noted(1, node_name=""), ""),
        (noted(1, address="10.0.0.9", devices=""), "waits for the chips of job-1"),
        (noted(1, devices="{"), "waits for the chips of job-1"),
        (noted(1, devices='{"devices": [{"device_id": 3}], "host_ip": "h"}'), "waits for the chips of job-1"),
        (noted(1, chips=1), "pod job-1 has 2 ranks, and on it 1 chip noted"),
        (noted(1, address="-1"), "chip 0 of pod job-1 on node-1 has no address of its own"),
    ],
)
def test_what_is_missing_is_said(second: PodView | None, told: str) -> None:
    table = build_rank_table([noted(0), second], 2, 0)
    assert not table.content
    assert told in table.missing
    assert bool(told) is bool(table.missing)


def test_a_pod_without_an_address_waits_without_a_word() -> None:
    assert build_rank_table([noted(0), replace(noted(1), address="")], 2, 0) == RankTable()


def test_within_one_super_pod_chips_need_no_address() -> None:
    pods = [noted(0, address="-1"), noted(1, address="-1")]
    assert build_rank_table(pods, 2, 2).content
    assert "no address" in build_rank_table(pods, 2, 1).missing


@pytest.mark.parametrize(("volume", "kept"), [(RANK_TABLE_VOLUME, True), ("hajob", False)])
def test_notes_are_kept_only_for_pods_with_a_table(volume: str, kept: bool) -> None:
    raw = {
        "metadata": {"name": "p", "uid": "u", "annotations": {ANNOTATION_CONFIGURATION: "{}"}},
        "spec": {"volumes": [{"name": volume}]},
    }
    assert bool(pod_view_of(raw).devices) is kept
    huge = {**raw, "metadata": {"annotations": {ANNOTATION_CONFIGURATION: "x" * 20_000}}}
    assert not pod_view_of(huge).devices
