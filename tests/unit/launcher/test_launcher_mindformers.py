"""MindFormers' configuration: what it fails with beside MindIO, and whose shards a resumed rank loads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainer_sidecar.launcher import mindformers, shim
from trainer_sidecar.launcher.launches import decide_on_call
from trainer_sidecar.launcher.program import ProgramError, ShimCall, Size

ON = "{TTP:1,UCE:1,ARF:1}"
LEGACY: dict[str, Any] = {
    "runner_config": {"epochs": 2, "sink_size": 1},
    "context": {"mode": 0},
    "callbacks": [{"type": "MFLossMonitor"}, {"type": "CheckpointMonitor", "async_save": True}],
    "resume_training": True,
    "load_checkpoint": "/output/checkpoint",
    "output_dir": "/output",
}


def fields(*arguments: str, **changes: Any) -> dict[str, Any]:
    return mindformers.settle_fields({**LEGACY, **changes}, list(arguments))


def strategies(directory: Path, ranks: int, form: str = "ckpt_strategy_rank_{}.ckpt") -> Path:
    directory.mkdir(parents=True)
    for rank in range(ranks):
        (directory / form.format(rank)).write_text(str(rank), encoding="utf-8")
    return directory


def resumed(
    found: dict[str, Any], arguments: list[str], own: str, cwd: str, script: str = "run_mindformer.py"
) -> mindformers.Resumed:
    return mindformers.resumed_arguments(found, mindformers.Call(script, arguments, cwd), own, ON)


def listed(arguments: list[str]) -> list[str]:
    """What each rank reads there: MindFormers takes the sorted name in the place of the rank."""
    place = Path(arguments[arguments.index("--src_strategy_path_or_dir") + 1])
    return [(place / name).read_text(encoding="utf-8") for name in sorted(one.name for one in place.iterdir())]


@pytest.mark.parametrize("size", [2, 10, -1, "1"])
def test_another_sink_size_is_refused_by_name(size: object) -> None:
    refused = mindformers.why_refused(fields(runner_config={"sink_size": size}), ON)
    assert refused.startswith(f"runner_config.sink_size is {size}")


def test_without_mindio_every_sink_size_is_right() -> None:
    assert not mindformers.why_refused(fields(runner_config={"sink_size": 2}), "{}")
    assert not mindformers.why_refused(fields(runner_config={}), ON), "the default is 1"


def test_the_command_line_comes_last() -> None:
    assert mindformers.why_refused(fields("--runner_config.sink_size", "4"), ON)
    assert not mindformers.why_refused(fields("--runner_config.sink_size=1", runner_config={"sink_size": 4}), ON)


def test_a_configuration_that_cannot_save_is_refused() -> None:
    assert "CheckpointMonitor" in mindformers.why_refused(fields(callbacks=[{"type": "MFLossMonitor"}]), ON)
    assert not mindformers.why_refused({}, ON), "nothing is known of it"


def test_what_only_weakens_the_protection_is_a_note() -> None:
    notes = mindformers.notes_on_fields(fields("--mode", "1"), ON)
    assert [note.split()[0] for note in notes] == ["context.mode", "async_save"]
    assert mindformers.notes_on_fields(fields("--mode", "1"), "{}") == []


def test_from_eleven_ranks_on_the_names_are_put_in_order(tmp_path: Path) -> None:
    place = strategies(tmp_path / "strategy", 12)
    given = ["--config", "llama.yaml", "--src_strategy_path_or_dir", str(place), "--seed", "1"]
    found = resumed(fields(*given), given, str(tmp_path / "own"), "/")
    assert listed(found.arguments) == [str(rank) for rank in range(12)]
    assert found.arguments[:4] == ["--config", "llama.yaml", "--seed", "1"]
    assert "other ranks' shards" in found.notes[0]
    again = resumed(fields(*given), given, str(tmp_path / "own"), "/")
    assert again == found, "every rank of the pod asks"


def test_ten_ranks_are_in_order_already(tmp_path: Path) -> None:
    given = ["--src_strategy_path_or_dir", str(strategies(tmp_path / "strategy", 10))]
    assert resumed(fields(*given), given, str(tmp_path), "/") == (given, [])


def test_a_missing_directory_is_that_of_the_output(tmp_path: Path) -> None:
    strategies(tmp_path / "out" / "strategy", 2)
    found = resumed(fields(output_dir="out"), [], str(tmp_path / "own"), str(tmp_path))
    assert listed(found.arguments) == ["0", "1"]
    assert found.notes[0].startswith("src_strategy_path_or_dir is not set: out/strategy is taken")


@pytest.mark.parametrize(
    "changes",
    [
        {"resume_training": False},
        {"load_checkpoint": ""},
        {"use_legacy_format": False},
        {"remove_redundancy": True},
    ],
)
def test_what_is_not_resumed_by_strategies_stays(tmp_path: Path, changes: Any) -> None:
    given = ["--src_strategy_path_or_dir", str(strategies(tmp_path / "strategy", 12))]
    found = resumed(fields(*given, **changes), given, str(tmp_path), "/")
    assert found.arguments == given


def test_another_script_that_mixes_shards_is_refused(tmp_path: Path) -> None:
    found = fields(src_strategy_path_or_dir=str(strategies(tmp_path / "strategy", 12)))
    with pytest.raises(OSError, match="takes no --src_strategy_path_or_dir"):
        resumed(found, [], str(tmp_path / "own"), "/", script="my_train.py")
    assert resumed(fields(output_dir=str(tmp_path)), [], "/", "/", script="my_train.py") == ([], [])


def test_files_that_are_not_one_for_each_rank_stay(tmp_path: Path) -> None:
    place = strategies(tmp_path / "strategy", 12)
    (place / "ckpt_strategy_rank_3.ckpt").unlink()
    given = ["--src_strategy_path_or_dir", str(place)]
    assert resumed(fields(*given), given, str(tmp_path), "/").arguments == given


def test_the_shim_reads_what_the_images_yaml_says(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(yaml.safe_dump({"runner_config": {"sink_size": 2, "epochs": 1}}))
    own = {"base_config": "base.yaml", "runner_config": {"sink_size": 1}, "model": {"big": "x" * 100}}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(own))
    words = ["--worker_num", "8", "run_mindformer.py", "--config", str(tmp_path / "own.yaml")]
    assert shim.read_configuration("msrun", words, sys.executable) == {"runner_config": {"sink_size": 1, "epochs": 1}}
    joined = [*words[:3], f"--config={tmp_path / 'own.yaml'}"]
    assert shim.read_configuration("msrun", joined, sys.executable) != {}


@pytest.mark.parametrize("words", [[], ["--config"], ["--config", "/nowhere.yaml"], ["--config", "/dev/null"]])
def test_what_cannot_be_read_is_not_known(words: list[str]) -> None:
    assert shim.read_configuration("msrun", words, sys.executable) == {}
    assert shim.read_configuration("torchrun", ["--config", "x"], "/no/python") == {}
    assert shim.read_configuration("msrun", ["--config", "x"], "/no/python") == {}


def test_a_call_with_such_a_configuration_is_refused() -> None:
    def made(size: int) -> ShimCall:
        configuration = {**LEGACY, "runner_config": {"sink_size": size}}
        words = ["run_mindformer.py", "--config", "llama.yaml"]
        return ShimCall("msrun", words, "/work", {}, "/usr/bin/python3", configuration=configuration)

    with pytest.raises(ProgramError, match="sink_size is 2"):
        decide_on_call(made(2), Size(0, 8, 16), None, ON)
    accepted = decide_on_call(made(1), Size(0, 8, 16), None, ON).program
    assert accepted is not None
    assert accepted.fields["output_dir"] == "/output"
    assert any("async_save" in note for note in accepted.notes)
