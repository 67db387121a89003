"""What is injected is read as what it says, whoever carries it out, and recovery takes it back."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from e2e import inject as demo
from e2e.nodes.control import NodeControl
from e2e.nodes.faults import ChipFault, HardwareFault, SwitchFault, device_info, node_info
from hajob.cli import inject
from hajob.cli.cluster import ClusterError
from hajob.cli.facts import facts_of_objects
from hajob.cli.injection import DEFAULTS, Injection, InjectionKind, device_config_map, node_config_map
from hajob.cli.main import build_parser
from hajob.domain.hardware import Level
from hajob.sources import registry
from hajob.sources.fault_codes import LEVEL_WORDS
from hajob.sources.reading import Terms
from tests.rigs import hardware_objects
from tests.rigs.command_objects import FakeCommandObjects

NOW_MS = 1_795_255_200_000
DEVICES = "/api/v1/namespaces/kube-system/configmaps/mindx-dl-deviceinfo-n1"
NODED = "/api/v1/namespaces/mindx-dl/configmaps/mindx-dl-nodeinfo-n1"
LEVELS = {
    InjectionKind.CHIP: Level.RESTART_CHIP,
    InjectionKind.SUB_HEALTH: Level.SUB_HEALTH,
    InjectionKind.LINK_DOWN: Level.NOT_HANDLE,
    InjectionKind.MEMORY: Level.RESTART_BUSINESS,
    InjectionKind.SWITCH: Level.SEPARATE,
    InjectionKind.NODE: Level.SEPARATE,
}


def injected(*words: str, objects: FakeCommandObjects | None = None) -> FakeCommandObjects:
    parser = argparse.ArgumentParser()
    inject.add_arguments(parser)
    found = objects or FakeCommandObjects()
    inject.write_injection(inject.read_injection(parser.parse_args(words)), found, NOW_MS)
    return found


def seen(objects: FakeCommandObjects) -> list[tuple[str, Level | None]]:
    readings = [
        registry.read_object(objects.found[path], Terms(NOW_MS)) for path in (DEVICES, NODED) if path in objects.found
    ]
    assert [one.rejected for one in readings] == [[] for _ in readings]
    return [(fact.code, fact.level) for one in readings for fact in one.facts]


def test_what_was_injected_is_told_to_programs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = FakeCommandObjects()
    monkeypatch.setattr(inject, "KubernetesObjects", lambda **_: objects)
    for output in ("json", "name"):
        arguments = build_parser(["inject"]).parse_args(["inject", "chip", "n1", "3", "-o", output])
        assert arguments.run(arguments) == 0
    *told, name = capsys.readouterr().out.splitlines()
    read = json.loads("\n".join(told))
    told_of = ("n1", 3, "chip", DEFAULTS[InjectionKind.CHIP][0])
    assert (read["node"], read["chip"], read["kind"], read["code"]) == told_of
    assert name == "node/n1"


@pytest.mark.parametrize("kind", [kind for kind in InjectionKind if kind is not InjectionKind.RECOVER])
def test_what_is_injected_is_read_and_taken_back(kind: InjectionKind) -> None:
    objects = injected(kind, "n1", "3")
    assert seen(objects) == [(DEFAULTS[kind][0], LEVELS[kind])]
    assert seen(injected("recover", "n1", objects=objects)) == []


def test_any_code_and_level_of_a_chip() -> None:
    objects = injected("chip", "n1", "0", "--code", "80E18401", "--level", "PreSeparateNPU")
    injected("chip", "n1", "1", "--code", "x", objects=objects)
    assert seen(objects) == [("80E18401", Level.PRE_SEPARATE), ("x", Level.RESTART_CHIP)]
    injected("recover", "n1", "0", objects=objects)
    assert seen(objects) == [("x", Level.RESTART_CHIP)]


def test_an_injection_joins_what_the_plugin_says() -> None:
    told = hardware_objects.device_info(node="n1")
    found = registry.read_object(
        device_config_map(told, Injection.with_usual_values(InjectionKind.CHIP, "n1", 5), NOW_MS), Terms(NOW_MS)
    )
    assert ([fact.code for fact in found.facts], found.rejected) == (["80E01801", "40F84E00"], [])


def test_process_nodes_write_what_the_command_writes() -> None:
    code, level = DEFAULTS[InjectionKind.SWITCH]
    switch = SwitchFault(code, level, NOW_MS / 1000)
    body = device_info("n1", "huawei.com/Ascend910", [0], [], NOW_MS / 1000, switches=[switch])
    both = (body, device_config_map(None, Injection.with_usual_values(InjectionKind.SWITCH, "n1"), NOW_MS))
    readings = [registry.read_object(one, Terms(NOW_MS)) for one in both]
    assert readings[0] == readings[1]
    assert [fact.code for fact in readings[0].facts] == [code]


@pytest.mark.parametrize(
    "words", [("chip", "n1"), ("chip", "n1", "0", "--level", "x"), ("node", "n1", "--level", "RestartNPU")]
)
def test_what_makes_no_sense_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"needs the number|is none of|NodeD knows"):
        injected(*words)
    assert demo.main(words) == 2


def test_nodes_are_told_of_faults_with_known_levels_only() -> None:
    body = node_config_map(
        Injection.with_usual_values(InjectionKind.NODE, "n1", level="PreSeparateFault"), "2026-11-22T00:00:00Z"
    )
    assert [fact.level for fact in registry.read_object(body, Terms(NOW_MS)).facts] == [Level.PRE_SEPARATE]


class Nodes(NodeControl):
    """A node set that writes down what it is told."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"))
        self.told: list[tuple[str, dict[str, Any]]] = []

    def call(self, command: str, **arguments: object) -> dict[str, Any]:
        self.told.append((command, arguments))
        return {"nodes": [{"name": "n1", "chips": 2}]}


def test_a_demo_is_told_by_its_control_socket() -> None:
    nodes = Nodes()
    for kind in InjectionKind:
        demo.carry_out(Injection.with_usual_values(kind, "n1", None if kind is InjectionKind.RECOVER else 1), nodes)
    assert [command for command, _ in nodes.told] == [
        *["break-chip"] * 4,
        "set-switch-faults",
        "set-node-faults",
        "state",
        *["repair-chip"] * 2,
        "set-switch-faults",
        "set-node-faults",
    ]


class BrokenNode(NodeControl):
    """A node of the demo: what it was told, in the objects that its device plugin and NodeD write."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"))
        self.chips: list[ChipFault] = []
        self.switches: list[SwitchFault] = []
        self.hardware: list[HardwareFault] = []

    def call(self, command: str, **told: Any) -> dict[str, Any]:
        time = NOW_MS / 1000
        if command == "break-chip":
            self.chips.append(ChipFault(told["chip"], told["code"], told["level"], time, told["kind"]))
        elif command == "repair-chip":
            self.chips = [fault for fault in self.chips if fault.chip != told["chip"]]
        elif command == "set-switch-faults":
            self.switches = [SwitchFault(one["code"], one["level"], time) for one in told["faults"]]
        elif command == "set-node-faults":
            found = told["faults"]
            self.hardware = [
                HardwareFault(one["device"], one["deviceId"], tuple(one["codes"]), one["level"]) for one in found
            ]
        return {"nodes": [{"name": "n1", "chips": 2}]}

    def facts(self) -> dict[str, str]:
        now = NOW_MS / 1000
        written = [device_info("n1", "huawei.com/Ascend910", [], self.chips, now, switches=self.switches)]
        written += [node_info("n1", self.hardware, now)] if self.hardware else []
        read = facts_of_objects([*written], None, NOW_MS)
        assert read["rejected"] == []
        return {row["code"]: row["level"] for row in read["facts"]}


def test_every_kind_is_made_in_a_demo_read_and_mended() -> None:
    node, kinds = BrokenNode(), [kind for kind in InjectionKind if kind is not InjectionKind.RECOVER]
    for number, kind in enumerate(kinds):
        demo.carry_out(Injection.with_usual_values(kind, "n1", number % 2), node)
    assert node.facts() == {code: LEVEL_WORDS[level] for code, level in (DEFAULTS[kind] for kind in kinds)}
    demo.carry_out(Injection.with_usual_values(InjectionKind.RECOVER, "n1", 0), node)
    assert "40F84E00" not in node.facts()
    demo.carry_out(Injection.with_usual_values(InjectionKind.RECOVER, "n1"), node)
    assert node.facts() == {}


def test_without_a_demo_that_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "control_sockets", list)
    assert demo.main(["recover", "n1"]) == 1
    assert "nothing runs" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [kind for kind in InjectionKind if kind is not InjectionKind.RECOVER])
def test_a_node_that_is_not_there_has_no_faults(kind: InjectionKind) -> None:
    objects = FakeCommandObjects()
    before = dict(objects.found)
    with pytest.raises(ClusterError, match="there is no node n9: kubectl get nodes"):
        injected(kind, "n9", "3", objects=objects)
    assert objects.found == before


def test_faults_of_a_node_that_is_gone_can_be_taken_back() -> None:
    objects = injected("chip", "n1", "3")
    del objects.found["/api/v1/nodes/n1"]
    assert seen(injected("recover", "n1", objects=objects)) == []
