"""Faults of real nodes answer and publish as those of process nodes do, so that demo and benchmarks need not know."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from e2e.bench import __main__ as bench
from e2e.kubelets.configuration import DIRECTORY
from e2e.kubelets.faults import RealFaults
from hajob.api import constants as names

NODE = "node-1"


class Plane:
    """An API server that holds the pods of the node, and what was applied."""

    def __init__(self, chips_in_use: int) -> None:
        asked = {"resources": {"limits": {names.DEFAULT_RESOURCE_NAME: str(chips_in_use)}}}
        self.pods = [{"spec": {"containers": [asked, {}]}}] if chips_in_use else []
        self.applied: list[Any] = []
        self.api = SimpleNamespace(items=lambda _path, **_: self.pods)

    def apply(self, *objects: Any) -> None:
        self.applied += objects


def faults(plane: Plane) -> tuple[RealFaults, Any]:
    plugin = SimpleNamespace(healthy=[True, True], changed=lambda: None)
    node = SimpleNamespace(name=NODE, chips=2, plugin=plugin)
    return RealFaults(cast("Any", plane), cast("Any", SimpleNamespace(nodes={NODE: node}))), node


def told(plane: Plane) -> dict[str, str]:
    found: dict[str, str] = json.loads(plane.applied[-1]["data"]["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    return found


def test_a_sub_health_is_told_and_the_chip_is_kept() -> None:
    plane = Plane(chips_in_use=2)
    control, node = faults(plane)
    assert control.break_chip(NODE, 0, code="80E18400", level="SubHealthFault")["time"] > 0
    assert "80E18400" in told(plane)[f"{names.DEFAULT_RESOURCE_NAME}-Fault"]
    assert node.plugin.healthy == [True, True]
    assert plane.applied[-1]["metadata"]["name"] == f"mindx-dl-deviceinfo-{NODE}"


def test_a_broken_chip_is_offered_to_nobody() -> None:
    plane = Plane(chips_in_use=0)
    control, node = faults(plane)
    control.break_chip(NODE, 1)
    assert told(plane)[names.DEFAULT_RESOURCE_NAME] == "Ascend910-0"
    assert node.plugin.healthy == [True, False]


def test_chips_in_use_are_not_free() -> None:
    plane = Plane(chips_in_use=2)
    control, node = faults(plane)
    control.publish(node)
    assert told(plane)[names.DEFAULT_RESOURCE_NAME] == ""


def test_what_real_nodes_do_not_measure_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(DIRECTORY, "/nowhere")
    made = bench.Bench(cast("Any", None), bench.parse(["--only", "overhead"]))
    made.measure()
    assert "overhead: left out, not for real nodes" in capsys.readouterr().err
    assert made.rows == []


def test_a_node_that_is_on_again_is_ready_since_this_boot() -> None:
    """Else the next fault meets one that is still booting, which the API server has shown as ready all the time."""
    done: list[tuple[str, str]] = []
    nodes = SimpleNamespace(
        nodes={NODE: SimpleNamespace(name=NODE)},
        power_on=lambda name: done.append(("on", name)),
        wait_ready=lambda name: done.append(("ready", name)),
    )
    assert RealFaults(cast("Any", None), cast("Any", nodes)).power_on(NODE)["time"] > 0
    assert done == [("on", NODE), ("ready", NODE)]
