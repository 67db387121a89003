"""MindFormers' face of the trainer: its command line, its place, its files as Hajob checks them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.loopback import own_address, own_port
from e2e.trainer import proof
from e2e.trainer.checkpoint import CheckpointError
from e2e.trainer.container import IMAGE
from e2e.trainer.mindformers import configured
from e2e.trainer.mindformers_files import MOST_FILES, RankFiles, load, packed, write_strategy
from e2e.trainer.settings import MINDSPORE, place_from, settings_from
from e2e.trainer.store_client import Client
from hajob.domain.layout import Layout, Sharding
from tests.rigs.checkpoint_verdicts import carry_out_verdict
from tests.rigs.toy_trainer import MINDSPORE_PLACE, run_toy_trainer
from trainer_sidecar.checkpoints.directory import Directory
from trainer_sidecar.checkpoints.mindspore_forms import evaluate_all_forms

CONFIG = ["--config", str(IMAGE / "configs/pretrain_toy.yaml")]
LAYOUT = Layout(num_nodes=2, chips_per_node=2, tensor=2, sharding=Sharding.NONE)  # ranks 0 and 2, 1 and 3 are alike


def test_a_configuration_says_what_is_trained() -> None:
    options = ["runner_config.epochs=6", "callbacks.1.save_checkpoint_steps=30", "toy.faults=[rank=3 at=clean do=fail]"]
    flags = configured([*CONFIG, "--output_dir", "/out", "--options", *options])
    settings = settings_from(flags, MINDSPORE_PLACE)
    assert (settings.train_iters, settings.epoch, settings.save_interval) == (300, 50, 30)
    assert (settings.layout.tensor, settings.layout.data, settings.layout.copies) == (2, 4, 4)
    assert (settings.save, settings.load, settings.faults) == (Path("/out"), None, ("rank=3 at=clean do=fail",))
    assert settings_from(configured([*CONFIG, "--options", "use_legacy_format=False"]), MINDSPORE_PLACE).shared_format
    assert not settings.shared_format
    resuming = ["--load_checkpoint", "/out/checkpoint", "--resume_training", "True"]
    assert settings_from(configured([*CONFIG, "--output_dir", "/out", *resuming]), MINDSPORE_PLACE).load == Path("/out")


@pytest.mark.parametrize("arguments", [["--options", "runner_config.epoch=6"], ["--use_parallel", "False"]])
def test_a_command_line_that_does_not_fit_is_named(arguments: list[str]) -> None:
    with pytest.raises(ValueError, match=r"runner_config\.epoch|use_parallel"):
        configured([*CONFIG, *arguments])


def test_the_place_is_what_msrun_gives() -> None:
    torchs = {"RANK": "7", "WORLD_SIZE": "2", "MASTER_ADDR": "10.9.9.9", "TTP_ADDR": "10.9.9.9"}
    place = place_from({**MINDSPORE_PLACE, **torchs}, MINDSPORE)
    assert (place.rank, place.world, place.store_host, place.controller_port) == (1, 8, "127.0.0.1", 8000)
    for name in ("MS_NODE_ID", "MS_TFT_PORT", "MS_TFT_IP", "MS_SCHED_HOST", "RANK_ID"):
        with pytest.raises(KeyError, match=name):
            place_from({key: value for key, value in MINDSPORE_PLACE.items() if key != name}, MINDSPORE)
    with pytest.raises(ValueError, match="MS_NODE_ID is 0, RANK_ID is 1"):
        place_from({**MINDSPORE_PLACE, "MS_NODE_ID": "0"}, MINDSPORE)


def state(step: int) -> dict[str, np.ndarray]:
    return {"parameters": np.full((2, 3), step, dtype="<f4"), "master": np.zeros(4, dtype="<f4")}


def saved(output: Path, step: int, ranks: range = range(4)) -> list[Path]:
    paths = []
    for rank in ranks:
        write_strategy(output, rank)
        files = RankFiles.begin(output, rank)
        paths.append(files.write(step, state(step)))
        files.record(step, paths[-1].name)
    return paths


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    (path,) = saved(tmp_path, 65, range(3, 4))
    assert path.relative_to(tmp_path) == Path("checkpoint/rank_3/toy_rank_3-65_1.safetensors")
    step, arrays = load(path)
    assert (step, sorted(arrays)) == (65, ["master", "parameters"])
    assert np.array_equal(arrays["parameters"], state(65)["parameters"])
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CheckpointError, match="cut off"):
        load(path)
    path.write_bytes(packed({"parameters": np.zeros(1, dtype="<f4")}))
    with pytest.raises(CheckpointError, match="step_num"):
        load(path)


def test_a_later_process_gives_its_files_another_name(tmp_path: Path) -> None:
    first, second = saved(tmp_path, 10, range(1)), saved(tmp_path, 12, range(1))
    third = RankFiles.begin(tmp_path, 0)
    assert [path.name for path in (*first, *second)] == [
        "toy_rank_0-10_1.safetensors",
        "toy_rank_0_1-12_1.safetensors",
    ]
    assert third.prefix == "toy_rank_0_2"
    os.utime(first[0], ns=(2**62, 2**62))
    assert third.newest() == first[0], "what was written last, whatever its step"


def test_the_oldest_file_goes_when_there_are_too_many(tmp_path: Path) -> None:
    files = RankFiles.begin(tmp_path, 0)
    for step in range(1, MOST_FILES + 3):
        path = files.write(step, state(step))
        os.utime(path, ns=(step * 10**9, step * 10**9))
    assert sorted(path.name for path in files.directory.glob("*.safetensors")) == [
        f"toy_rank_0-{step}_1.safetensors" for step in range(3, MOST_FILES + 3)
    ]


def test_hajob_checks_and_fills_what_the_toy_saves(tmp_path: Path) -> None:
    saved(tmp_path, 60)
    for rank in (0, 3):  # MindIO's choice: one of each coordinate
        RankFiles.begin(tmp_path, rank).write(65, state(65))
    verdict = evaluate_all_forms(Directory(tmp_path), LAYOUT)
    assert (verdict.name, verdict.step, verdict.refused, len(verdict.copies)) == ("65_1", 65, (), 2)
    carry_out_verdict(tmp_path, verdict)
    newest = [RankFiles.begin(tmp_path, rank).newest() for rank in range(4)]
    assert [load(path)[0] for path in newest if path is not None] == [65] * 4
    metas = [json.loads((tmp_path / f"checkpoint/rank_{rank}/meta.json").read_text()) for rank in range(4)]
    assert {meta["last_epoch"] for meta in metas} == {65}


def test_the_scheduler_of_the_image_is_where_workers_meet() -> None:
    port = own_port()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "e2e/trainer/packages")]),
        "MS_ROLE": "MS_SCHED",
        "MS_SCHED_HOST": own_address(),
        "MS_SCHED_PORT": str(port),
    }
    from trainer_sidecar.controller_host.scheduler import PROGRAM

    scheduler = subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment)
    try:
        client = Client(own_address(), port)
        client.set("address/0", ["127.0.0.1", 1])
        assert client.get("address/0") == ["127.0.0.1", 1]
    finally:
        scheduler.kill()
        scheduler.wait()


def test_a_training_goes_on_from_the_newer_form(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    options = ["--mindformers", "--", "--train-iters"]
    run_toy_trainer(tmp_path / "calm", *options, "30")
    run_toy_trainer(tmp_path / "one", *options, "20", "--shared-format", "--save", str(saved), "--save-interval", "10")
    (saved / "checkpoint/iteration_00000020/opt-0000001-0000002.safetensors").unlink()
    verdict = evaluate_all_forms(Directory(saved), Layout(num_nodes=1, chips_per_node=2, sharding=Sharding.NONE))
    assert (verdict.name, verdict.step) == ("checkpoint/iteration_00000010", 10)
    assert [one.name for one in verdict.refused] == ["checkpoint/iteration_00000020"]
    carry_out_verdict(saved, verdict)
    resuming = ["--shared-format", "--load", str(saved)]
    run_toy_trainer(tmp_path / "two", "--compare", str(tmp_path / "calm"), *options, "30", *resuming)
    events = proof.load(tmp_path / "two")
    assert [one["step"] for one in events if one["event"] == "load_checkpoint"] == [10, 10]
