"""How much protection is left, told before anything has run."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.plan.policy import policy_from_spec
from hajob.plan.recoverability import missing_protection, protection_in_words
from hajob.plan.simulate import SimulationRequest, simulate_loss

BASE = ("--bf16", "--use-distributed-optimizer", "--save", "/ckpt", "--load", "/ckpt", "--train-iters", "100")
SAVING = ("--save-interval", "10", "--ckpt-format", "torch")
REPAIRS = ("Retry", "InPlace", "Replace", "Shrink", "Checkpoint")


def spec(*arguments: str, entry: str = "pretrain_gpt.py", sizes: dict[str, int] | None = None) -> dict[str, Any]:
    sizes = {"tensor": 2, **(sizes or {})}
    flags = ["--tensor-model-parallel-size", str(sizes["tensor"])]
    if "expert" in sizes:
        flags += ["--expert-model-parallel-size", str(sizes["expert"])]
    container = {"name": "trainer", "image": "i", "command": ["torchrun", entry, *BASE, *SAVING, *flags, *arguments]}
    return {
        "accelerator": {"product": "A2"},
        "numNodes": 2,
        "parallelism": sizes,
        "checkpoint": {"path": "/ckpt"},
        "template": {"spec": {"containers": [container]}},
    }


def test_nothing_is_said_where_nothing_is_missing() -> None:
    assert protection_in_words(policy_from_spec(spec())) == ""


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("--lora-target-modules", "q_proj"), "NoLora"),
        (("--swap-optimizer",), "NoSwapOptimizer"),
        (("--swap-attention",), "NoSwapAttention"),
        (("--use-dist-ckpt",), "NoDistributedCheckpoint"),
    ],
)
def test_what_a_script_switches_off_is_named(arguments: tuple[str, ...], name: str) -> None:
    missing = missing_protection(policy_from_spec(spec(*arguments)))
    assert {action for action, names in missing.items() if name in names} == set(REPAIRS)
    assert name in protection_in_words(policy_from_spec(spec(*arguments)))


@pytest.mark.parametrize(("entry", "name"), [("posttrain_gpt.py", "HandlersRegistered"), ("train_fsdp2.py", "NoFsdp2")])
def test_an_entry_without_protection_is_named(entry: str, name: str) -> None:
    assert protection_in_words(policy_from_spec(spec(entry=entry))).startswith(
        "actions left: Restart; preconditions not met: "
    )
    assert name in protection_in_words(policy_from_spec(spec(entry=entry)))


@pytest.mark.parametrize(
    ("sizes", "name"),
    [
        ({"expert": 8}, "ExpertDataParallelAboveOne"),
        ({"tensor": 16}, "DataParallelAboveOne"),
    ],
)
def test_groups_that_cannot_be_halved_are_named(sizes: dict[str, int], name: str) -> None:
    missing = missing_protection(policy_from_spec(spec(sizes=sizes)))
    assert name in missing["InPlace"]  # type: ignore[index]


def test_an_odd_expert_group_is_named() -> None:
    odd = {
        **spec(sizes={"tensor": 1, "expert": 2, "expertTensor": 1}),
        "numNodes": 3,
        "accelerator": {"product": "A2", "chipsPerNode": 2},
    }
    assert "CopiesDivideExpertDataParallel" in missing_protection(policy_from_spec(odd))["InPlace"]  # type: ignore[index]


def test_simulate_says_how_much_protection_is_left() -> None:
    answer = simulate_loss(spec("--swap-attention"), SimulationRequest(ranks=(3,)))
    assert answer.protection.startswith("actions left: Restart; preconditions not met: ")
