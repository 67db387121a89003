"""What an admin may write into `hajob-faults`, and what of it is refused by name while the rest counts."""

from __future__ import annotations

import pytest

from hajob.domain.hardware import Level
from hajob.faults.rules.settings import FaultSettings, parse_settings
from hajob.sources.node import node_view_of
from hajob.sources.reading import CONDITIONS, DRAIN_TAINTS, SickCondition


def settings(**data: str) -> tuple[FaultSettings, list[str]]:
    """The settings, and the places of what is refused."""
    found, reading = parse_settings({"metadata": {"name": "hajob-faults"}, "data": data}, 0)
    return found, [f"{one.where}: {one.found}" for one in reading.rejected]


@pytest.mark.parametrize(
    ("line", "condition"),
    [
        ("NPULost: SeparateNPU", SickCondition(Level.SEPARATE)),
        ('NPULost: {level: SubHealthFault, status: "Unknown"}', SickCondition(Level.SUB_HEALTH, "Unknown")),
        ("NPULost: {level: SeparateNPU}", SickCondition(Level.SEPARATE)),
        ("NPUHealthy: {level: SeparateNPU, status: False}", SickCondition(Level.SEPARATE, "False")),
        ("NPUHealthy: {level: SeparateNPU, status: 'True'}", SickCondition(Level.SEPARATE, "True")),
        ("GpuUnhealthy: SubHealthFault", SickCondition(Level.SUB_HEALTH)),
        ("NotReady: SubHealthFault", SickCondition(Level.SUB_HEALTH)),
        ("KernelDeadlock: NotHandleFault", SickCondition(Level.NOT_HANDLE)),
        ("KernelReady: SeparateNPU", SickCondition(Level.SEPARATE, "False")),  # a built-in one keeps its status
        ("KernelReady: {level: NotHandleFault}", SickCondition(Level.NOT_HANDLE, "False")),
    ],
)
def test_a_condition_has_a_level_and_a_status(line: str, condition: SickCondition) -> None:
    found, refused = settings(conditions=line)
    assert refused == []
    assert found.conditions == {**CONDITIONS, line.partition(":")[0]: condition}


@pytest.mark.parametrize("name", ["NPUHealthy", "npu-healthy", "DevicesReady", "Ready", "LinksOK"])
@pytest.mark.parametrize("form", ["SeparateNPU", "{level: SeparateNPU}"])
def test_a_condition_that_is_well_while_true_needs_a_status(name: str, form: str) -> None:
    """Else a healthy node would be kept out, and the sick one would not be seen."""
    found, refused = settings(conditions=f"{name}: {form}\nNPULost: SeparateNPU")
    assert (name in found.conditions, "NPULost" in found.conditions, len(refused)) == (False, True, 1)
    assert refused[0].startswith(f"data.conditions[{name}]")


@pytest.mark.parametrize(
    "form", ["{level: SeparateNPU, status: Maybe}", "{level: SeparateNPU, when: False}", "{status: False}", "[1]", "7"]
)
def test_another_form_of_a_condition_is_refused(form: str) -> None:
    found, refused = settings(conditions=f"X: {form}")
    assert ("X" in found.conditions, len(refused)) == (False, 1)


def test_drain_taints_take_the_place_of_the_built_in_ones() -> None:
    assert settings()[0].drain_taints == DRAIN_TAINTS
    found, refused = settings(drainTaints="example.com/leaving,\n our-drain, not a taint")
    assert found.drain_taints == {"example.com/leaving", "our-drain"}
    assert refused == ["data.drainTaints: 'not a taint' is no key of a taint"]


@pytest.mark.parametrize("key", sorted(DRAIN_TAINTS))
def test_a_taint_of_autoscaler_or_cloud_empties_a_node(key: str) -> None:
    raw = {"metadata": {"name": "n"}, "spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}
    assert node_view_of(raw).is_to_be_emptied
    assert not node_view_of(raw, {"example.com/leaving"}).is_to_be_emptied


def test_a_candidate_of_the_autoscaler_is_not_emptied_yet() -> None:
    taint = {"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}
    assert not node_view_of({"metadata": {"name": "n"}, "spec": {"taints": [taint]}}).is_to_be_emptied


def test_idle_chips_are_a_flag() -> None:
    assert not settings()[0].quarantine.idle_chips
    assert settings(quarantine="{idleChips: true, firstSeconds: 5}")[0].quarantine.idle_chips
    found, refused = settings(quarantine="{idleChips: 1, firstSeconds: 5}")
    assert (found.quarantine.idle_chips, found.quarantine.first_seconds, len(refused)) == (False, 5, 1)
