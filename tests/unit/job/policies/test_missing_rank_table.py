"""A rank table that cannot be made is said once that has lasted; the coordinator gets it as soon as it can be."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace

from hajob.job.orders import build_assignment
from hajob.job.policies.rank_tables import PATIENCE_SECONDS, TableMemo, want_rank_table
from hajob.job.snapshot import JobSnapshot
from hajob.sources.pod import PodView
from tests.rigs.snapshots import NOW, rank, snapshot

TABLE = {"network": {"rankTablePolicy": "Enabled"}}


def noted(node_rank: int) -> PodView:
    devices = [{"device_id": str(one), "device_ip": f"10.0.{node_rank}.{one}"} for one in range(2)]
    told = json.dumps({"host_ip": f"192.0.2.{node_rank}", "devices": devices})
    return rank(node_rank, address=f"10.9.0.{node_rank}", devices=told)


def made(*pods: PodView, now: float = NOW) -> JobSnapshot:
    return snapshot(TABLE, pods=pods, now=now)


def test_a_missing_note_is_told_after_a_while() -> None:
    memo, pods = TableMemo(), [noted(0), noted(1), noted(2), replace(noted(3), devices="")]
    assert want_rank_table(made(*pods), memo).again_at == NOW + PATIENCE_SECONDS
    assert not memo.told
    want_rank_table(made(*pods, now=NOW + PATIENCE_SECONDS), memo)
    assert "waits for the chips of job-3" in memo.told
    want_rank_table(made(*map(noted, range(4)), now=NOW + PATIENCE_SECONDS), memo)
    assert memo == TableMemo()


def test_the_assignment_has_the_table_once_it_is_whole() -> None:
    whole = build_assignment(made(*map(noted, range(4))), 1).rank_table
    assert json.loads(zlib.decompress(whole.content))["server_count"] == "4"
    assert list(whole.pod_uids) == [f"uid-of-job-{node}" for node in range(4)]
    partial = build_assignment(made(*map(noted, range(3))), 1)
    assert partial.HasField("rank_table")
    assert not partial.rank_table.version
    assert not build_assignment(snapshot(pods=map(noted, range(4))), 1).HasField("rank_table")


def test_a_new_pod_makes_another_version() -> None:
    pods = [noted(node) for node in range(4)]
    before = build_assignment(made(*pods), 1).rank_table
    again = build_assignment(made(*pods), 2).rank_table
    after = build_assignment(made(*pods[:3], replace(pods[3], uid="new")), 3).rank_table
    assert before == again
    assert before.version != after.version
