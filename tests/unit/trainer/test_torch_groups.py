"""Groups of the GPT in real PyTorch: one that is dropped by a quick rank must not be lost to a slow one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.loopback import own_address
from tests.rigs.torch_store import torch_python

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
