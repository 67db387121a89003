from pathlib import Path

import numpy as np
import pytest

from e2e.trainer import checkpoint
from e2e.trainer.checkpoint import CheckpointError
from e2e.trainer.layout import Coordinate, Layout
from e2e.trainer.optimizer import Shard

LAYOUT = Layout(tensor=2, data=4, pipeline=2)
PLACE = Coordinate(1, 0, 1)


def shard(number: int, step: int = 5) -> Shard:
    values = np.random.default_rng(number).standard_normal((3, 10)).astype(np.float32)
    return Shard(values[0], values[1], values[2], step)


def saved(root: Path) -> list[Shard]:
    shards = [shard(0), shard(1)]
    checkpoint.write(root, 5, PLACE, LAYOUT, shards, seed=1)
    checkpoint.commit(root, 5)
    return shards


def test_what_is_saved_comes_back_bit_for_bit(tmp_path: Path) -> None:
    shards = saved(tmp_path)
    assert checkpoint.newest(tmp_path) == 5
    content = checkpoint.load(tmp_path, 5, PLACE, LAYOUT)
    for number, original in enumerate(shards):
        back = checkpoint.shard_of(content, number, 2)
        assert back.step == 5
        for key, array in original.arrays().items():
            assert back.arrays()[key].tobytes() == array.tobytes()
    assert content.parameters.tobytes() == b"".join(one.master.tobytes() for one in shards)


def test_layout_of_directories(tmp_path: Path) -> None:
    saved(tmp_path)
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert files == [
        "iter_0000005/mp_rank_01_001/distrib_optim.pt",
        "iter_0000005/mp_rank_01_001/model_optim_rng.pt",
        "latest_checkpointed_iteration.txt",
    ]
    assert checkpoint.rank_directory(Coordinate(1, 0, 0), Layout(2, 2, 1)) == "mp_rank_01"


def test_shards_of_different_steps_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="step 4, not at 5"):
        checkpoint.write(tmp_path, 5, PLACE, LAYOUT, [shard(0), shard(1, step=4)], seed=1)


def test_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    saved(tmp_path)
    path = tmp_path / "iter_0000005" / "mp_rank_01_001" / "distrib_optim.pt"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(CheckpointError, match=r"distrib_optim\.pt cannot be read"):
        checkpoint.load(tmp_path, 5, PLACE, LAYOUT)


def test_missing_coordinate_is_named(tmp_path: Path) -> None:
    saved(tmp_path)
    with pytest.raises(CheckpointError, match=r"mp_rank_00_000.*missing"):
        checkpoint.load(tmp_path, 5, Coordinate(0, 0, 0), LAYOUT)


def test_damaged_tracker_is_named(tmp_path: Path) -> None:
    (tmp_path / checkpoint.TRACKER).write_text("release")
    with pytest.raises(CheckpointError, match="release"):
        checkpoint.newest(tmp_path)
