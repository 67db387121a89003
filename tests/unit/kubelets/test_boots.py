"""A node that boots again is the same machine, and is not taken for ready by what it said before."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from e2e.kubelets.configuration import BRIDGE, NodeLayout
from e2e.kubelets.nodes import RealNode, RealNodes, hardware_address


def test_a_machine_keeps_its_hardware_address() -> None:
    assert hardware_address(BRIDGE) == "02:00:0a:d2:00:01"
    assert hardware_address("10.210.0.11") == "02:00:0a:d2:00:0b"


@pytest.mark.parametrize(("told", "ready"), [("old", False), ("new", True)])
def test_a_node_is_ready_by_what_it_says_of_this_boot(tmp_path: Path, told: str, ready: bool) -> None:
    node = RealNode(NodeLayout(tmp_path, "node-1", 1, "/group", tmp_path), 2)
    condition = {"type": "Ready", "status": "True"}
    allocatable = {"huawei.com/Ascend910": "2"}
    status = {"nodeInfo": {"bootID": told}, "conditions": [condition], "allocatable": allocatable}
    api = SimpleNamespace(find=lambda _: {"status": status})
    run = SimpleNamespace(identity="abc-1", directory=tmp_path)
    nodes = RealNodes(cast("Any", SimpleNamespace(run=run, api=api)), tmp_path)

    assert not nodes.is_ready(node), "it has not booted yet"
    node.layout.boot.write_text("new\n")
    assert nodes.is_ready(node) is ready
