"""What real MindSpore writes, read by the agent without it; skipped where no interpreter has MindSpore."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from e2e.trainer.framework_python import NoPythonError, mindspore_python
from trainer_sidecar.checkpoints.formats import look_into_file
from trainer_sidecar.checkpoints.mindspore import read_restore_list
from trainer_sidecar.checkpoints.verdict import Look

WRITE = """
import sys
from pathlib import Path
import mindspore
from mindspore import nn
from mindspore.parallel import restore_group_info_list
from mindspore.train.node_strategy_pb2 import ParallelGroupMap
directory = Path(sys.argv[1])
for name in ("ckpt", "safetensors"):
    appended = {"epoch_num": 5, "step_num": 47, "__exception_save__": True}
    mindspore.save_checkpoint(nn.Dense(4, 4), str(directory / f"net-5_1.{name}"), append_dict=appended, format=name)
groups = ParallelGroupMap()
item = groups.parallel_group_item.add()
item.group_name = "4-6301172352641561019"
item.parallel_group_ranks.dim.extend([0, 8])
groups.ckpt_restore_rank_list.dim.extend([0, 4, 300])
(directory / "group_info.pb").write_bytes(groups.SerializeToString())
print(*restore_group_info_list(str(directory / "group_info.pb")))
"""


@pytest.mark.slow
def test_files_of_real_mindspore_are_read_without_it(tmp_path: Path) -> None:
    """Steps of both formats, a file that is cut off, the ranks of the same shard; its owner alone may read a file."""
    try:
        python = mindspore_python()
    except NoPythonError as error:
        pytest.skip(str(error))
    done = subprocess.run([python, "-c", WRITE, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = tuple(map(int, done.stdout.splitlines()[-1].split()))
    assert read_restore_list((tmp_path / "group_info.pb").read_bytes()) == told == (0, 4, 300)
    for name in ("ckpt", "safetensors"):
        path = tmp_path / f"net-5_1.{name}"
        assert stat.S_IMODE(path.stat().st_mode) == stat.S_IRUSR
        assert look_into_file(path) == Look(step=47)
        cut = tmp_path / f"cut-5_1.{name}"
        cut.write_bytes(path.read_bytes()[:-3])
        assert not look_into_file(cut).whole
