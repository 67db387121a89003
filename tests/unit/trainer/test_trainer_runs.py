"""The trainer with MindIO as real processes, without Kubernetes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.cluster.processes import marked
from e2e.trainer import proof
from e2e.trainer.compare import differences

ITERATIONS = ["--", "--train-iters", "30"]
SMALL = ["--tensor", "2", "--data", "2"]


def run(log_dir: Path, *arguments: str, code: int = 0, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "e2e.trainer.local", "--log-dir", str(log_dir), "--timeout", "200", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("calm")
    run(directory, *SMALL, *ITERATIONS)
    return directory


def test_no_helper_outlives_its_training(tmp_path: Path) -> None:
    """Ranks leave them in sessions of their own, as data loaders are left."""
    mark = str(tmp_path)
    run(tmp_path, *SMALL, *ITERATIONS, A_TEST=mark)
    assert list(marked(mark, "A_TEST")) == []


@pytest.mark.parametrize(("rank", "moment"), [(3, "forward"), (0, "update")])
def test_killed_rank_comes_back_and_the_weights_are_equal(calm: Path, tmp_path: Path, rank: int, moment: str) -> None:
    run(tmp_path, *SMALL, "--kill", f"{rank}@12", "--at", moment, "--compare", str(calm), *ITERATIONS)


def test_flipped_byte_in_a_restored_shard_shows(calm: Path, tmp_path: Path) -> None:
    run(tmp_path, *SMALL, "--kill", "3@12", *ITERATIONS, TOY_FLIP_RESTORED_BYTE="1")
    assert differences(calm, tmp_path)


def test_training_goes_on_from_the_checkpoint_of_a_dump(calm: Path, tmp_path: Path) -> None:
    where = ["--save", str(tmp_path / "saved"), "--load", str(tmp_path / "saved")]
    run(tmp_path / "one", *SMALL, "--kill", "1@12", "--strategy", "dump", *ITERATIONS, *where)
    run(tmp_path / "two", *SMALL, "--compare", str(calm), *ITERATIONS, *where)


def test_two_ranks_killed_in_a_pipeline_of_the_other_order(tmp_path: Path) -> None:
    layout = ["--tensor", "1", "--pipeline", "2", "--data", "2", "--tp-pp-dp"]
    run(tmp_path / "calm", *layout, *ITERATIONS)
    kills = ["--kill", "0@12", "--kill", "3@12"]
    run(tmp_path / "hit", *layout, *kills, "--compare", str(tmp_path / "calm"), *ITERATIONS)


def test_memory_fault_is_repaired_in_place(calm: Path, tmp_path: Path) -> None:
    fault = ["--fault", "rank=3 step=12 do=raise text=UCE_ERROR"]
    run(tmp_path, *SMALL, "--strategy", "retry", "--compare", str(calm), *ITERATIONS, *fault)
    events = proof.load(tmp_path)
    assert proof.survivors_kept(events, []) == []
    assert proof.restored_elsewhere(events, {3: 1}) == []


def test_training_with_fewer_ranks_ends_with_the_same_weights(tmp_path: Path) -> None:
    four = ["--data", "4"]
    run(tmp_path / "calm", *four, *ITERATIONS)
    hit = [*four, "--kill", "3@12", "--strategy", "downgrade", "--compare", str(tmp_path / "calm")]
    run(tmp_path / "hit", *hit, *ITERATIONS, "--enable-elastic-training")
    assert "iteration " in (tmp_path / "hit" / "output-rank2.log").read_text(), "the last that is left prints"
    shrunk = proof.of(proof.load(tmp_path / "hit"), "downgrade")
    assert [event["active"] for event in shrunk] == [[0, 1, 2]] * 3
