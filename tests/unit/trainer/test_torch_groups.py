"""Groups of the GPT in real PyTorch: one that is dropped by a quick rank must not be lost to a slow one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.loopback import own_address
from tests.rigs.torch_store import torch_python

LEFT_OVER = """
from types import SimpleNamespace
import torch
from e2e.torch_trainer.optimizer import ShardedAdam
model = torch.nn.Linear(2, 1)
optimizer = ShardedAdam(model, SimpleNamespace(ranks=[0], world=SimpleNamespace(rank=0)), 0.1)
def gradient():
    optimizer.clear_gradients()
    model(torch.ones(1, 2)).sum().backward()
    return optimizer.gradient()
whole = gradient()
model(torch.ones(1, 2)).sum().backward()  # and nobody takes it
print(torch.equal(whole, gradient()))
"""
PROGRAM = Path(__file__).with_name("groups_in_a_race.py")


@pytest.mark.slow
@pytest.mark.skipif(not torch_python(), reason="no torch: apt-get install python3-torch, or HAJOB_TORCH_PYTHON")
def test_a_group_for_one_use_outlives_its_quicker_rank() -> None:
    """gloo closes a dropped group's connections; who is about to connect hears "closed by peer" and repairs nothing."""
    paths = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "operator")])
    done = subprocess.run(
        [torch_python(), PROGRAM, own_address()],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["connected"] * 4, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not torch_python(), reason="no torch: apt-get install python3-torch, or HAJOB_TORCH_PYTHON")
def test_a_broken_off_backward_pass_leaves_nothing() -> None:
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(
        [torch_python(), "-c", LEFT_OVER], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["True"], done.stderr
