"""No rank starts before its pod has the rank table that the coordinator names; files appear whole."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.agent_node import NodeRig, pod_settings
from trainer_sidecar.agent.node import Node
from trainer_sidecar.agent.supervise.rank_table import RankTableFile

CONTENT = b'{"status":"completed"}'


def table(version: str = "a", content: bytes = CONTENT) -> pb.RankTable:
    return pb.RankTable(version=version, content=zlib.compress(content), pod_uids=["uid-0", "uid-1"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hccl.json"


@pytest.fixture
def rig(path: Path) -> NodeRig:
    rig = NodeRig()
    rig.node = Node(replace(pod_settings(), rank_table=path), rig.clock)
    rig.node.ports.send_launcher = rig.commands.append
    rig.node.ports.write_rank_table = RankTableFile(path, lambda: 1000.0).write_table
    rig.node.begin_conversation(higher_fence=True)
    rig.script()
    return rig


def wanted(rank: int = 2) -> pb.RankOrder:
    return pb.RankOrder(rank=rank, incarnation=1, run=True)


def give(rig: NodeRig, given: pb.RankTable) -> None:
    rig.node.apply_coordinator_message(pb.CoordinatorToAgent(rank_table=given))


def started(rig: NodeRig) -> list[int]:
    return [command["rank"] for command in rig.commands if command["kind"] == "start"]


@pytest.mark.parametrize("table_first", [True, False])
def test_a_rank_waits_for_the_table_that_is_named(rig: NodeRig, path: Path, *, table_first: bool) -> None:
    rig.order(wanted())
    assert not started(rig)
    if table_first:
        give(rig, table())
        assert not started(rig), "it is not known whether it is true for all pods"
        rig.order(wanted(), rank_table="a")
    else:
        rig.order(wanted(), rank_table="a")
        assert not started(rig)
        give(rig, table())
    assert started(rig) == [2]
    assert path.read_bytes() == CONTENT


def test_a_table_that_was_replaced_starts_nothing(rig: NodeRig) -> None:
    give(rig, table("a"))
    rig.order(wanted(), rank_table="b")
    assert not started(rig)
    give(rig, table("b", b'{"status":"completed","server_count":"2"}'))
    assert started(rig) == [2]


def test_a_table_that_cannot_be_written_is_told(rig: NodeRig, path: Path) -> None:
    path.mkdir()
    rig.order(wanted(), rank_table="a")
    give(rig, table())
    (problem,) = rig.report().problems
    assert (problem.code, "cannot write the rank table" in problem.message) == ("RankTableNotWritten", True)
    path.rmdir()
    rig.node.tick_every_second()
    assert started(rig) == [2]
    assert not rig.report().problems


def test_a_pod_without_a_table_waits_for_none() -> None:
    rig = NodeRig()
    rig.script()
    rig.order(wanted())
    assert started(rig) == [2]


def test_versions_rise_with_each_table(path: Path) -> None:
    """TaskD's msrun waits for a higher one."""
    file = RankTableFile(path, lambda: 1000.0)
    file.begin_file()
    assert json.loads(path.read_text()) == {"status": "initializing"}
    seen = []
    for content in (CONTENT, CONTENT, b"{}"):
        assert not file.write_table(table(content=content))
        seen.append(path.with_name("version").read_text())
    assert seen == ["1000", "1000", "1001"]
    RankTableFile(path).begin_file()
    assert path.read_bytes() == b"{}", "an agent that is restarted takes nothing away"
    assert path.stat().st_mode & 0o777 == 0o644
