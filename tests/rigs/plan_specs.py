"""Specs of a small job as a user writes them, and what its preconditions say to them."""

from __future__ import annotations

from typing import Any

from hajob.domain.actions import Action
from hajob.plan.policy import check_spec, parse_spec

GOOD = (
    "--tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 64 --save /ckpt --load /ckpt --bf16 "
    "--use-distributed-optimizer --ckpt-format torch --enable-high-availability"
)


def spec(arguments: str | None = GOOD, **changes: Any) -> dict[str, Any]:
    """Build the spec of a job of four nodes; `arguments`: of its command; None: it runs a script."""
    trainer: dict[str, Any] = {
        "name": "trainer",
        "command": ["torchrun", "train.py"],
        "args": (arguments or "").split(),
    }
    if arguments is None:
        trainer = {"name": "trainer", "command": ["bash", "train.sh"]}
    made: dict[str, Any] = {
        "accelerator": {"product": "A2", "chipsPerNode": 2},
        "numNodes": 4,
        "parallelism": {"tensor": 2},
        "checkpoint": {"path": "/ckpt"},
        "template": {"spec": {"containers": [{"name": "helper"}, trainer]}},
    }
    for key, value in changes.items():
        made[key] = value
    return made


def unmet(made: dict[str, Any]) -> dict[Action, set[str]]:
    """List the preconditions that a spec does not meet, by action."""
    binding, advice, _ = check_spec(parse_spec(made))
    both = {action: (*binding[action], *advice[action]) for action in binding}
    return {action: {one.name for one in found} for action, found in both.items() if found}


def unknown(made: dict[str, Any]) -> set[str]:
    """List the preconditions that nobody can know of a spec."""
    _, _, unknowns = check_spec(parse_spec(made))
    return {one.name for found in unknowns.values() for one in found}
