"""MindFormers' entry: `run_mindformer.py --config … --output_dir … --options runner_config.epochs=4`.

A configuration file says what is trained, options on the command line replace parts of it. The loop is the toy
trainer's, with the face of MindFormers (docs/internals/toy-trainer.md, "MindFormers").
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from e2e.trainer.mindformers_files import MINDIO_WORDS
from e2e.trainer.train import run

Config = dict[str, Any]


def parser() -> argparse.ArgumentParser:
    """The command line, as much of it as start scripts use."""
    result = argparse.ArgumentParser(prog="run_mindformer.py")
    result.add_argument("--config", type=Path, required=True)
    result.add_argument("--use_parallel", default="True")
    result.add_argument("--run_mode", choices=["train"], default="train")
    result.add_argument("--output_dir", type=Path)
    result.add_argument("--load_checkpoint", default="")
    result.add_argument("--resume_training", default="False")
    result.add_argument("--src_strategy_path_or_dir", type=Path)
    result.add_argument("--options", nargs="*", default=[], metavar="KEY=VALUE", help="replace a part of the config")
    return result


def configured(arguments: Sequence[str]) -> list[str]:
    """The toy trainer's own flags for a command line of MindFormers'. ValueError: an option that the file has not."""
    options = parser().parse_args(arguments)
    config: Config = yaml.safe_load(options.config.read_text())
    for option in options.options:
        key, _, value = option.partition("=")
        _replace(config, key.split("."), yaml.safe_load(value))
    if str(options.use_parallel).lower() != "true":
        raise ValueError("--use_parallel False: this training has several ranks")
    runner, sizes, saving = config["runner_config"], config["parallel_config"], _callback(config, "CheckpointMonitor")
    steps, output = config["train_dataset"]["steps_per_epoch"], options.output_dir or Path(config["output_dir"])
    loads = bool(options.load_checkpoint) and options.resume_training.lower() == "true"
    if (
        loads
        and config["use_legacy_format"]
        and any(word in os.environ.get("MS_ENABLE_TFT", "") for word in MINDIO_WORDS)
    ):
        _check_own_strategy(options.src_strategy_path_or_dir, int(os.environ.get("RANK_ID", "0")))
    flags = {
        "--tensor-model-parallel-size": sizes["model_parallel"],
        "--pipeline-model-parallel-size": sizes["pipeline_stage"],
        "--train-iters": runner["epochs"] * steps,
        "--steps-per-epoch": steps,
        "--micro-batch-size": runner["batch_size"],
        "--lr": config["optimizer"]["learning_rate"],
        "--seed": config["seed"],
        "--save": output,
        "--save-interval": saving["save_checkpoint_steps"],
        "--step-time-ms": config["toy"]["step_milliseconds"],
        "--log-dir": config["toy"]["log_dir"] or output / "log",
        **({"--load": output} if loads else {}),
    }
    switches = [] if config["use_legacy_format"] else ["--shared-format"]
    faults = [word for fault in config["toy"]["faults"] for word in ("--fault", fault)]
    return [*(str(word) for pair in flags.items() for word in pair), *switches, *faults]


def _check_own_strategy(directory: Path | None, rank: int) -> None:
    """Take the sorted name in the place of the rank, as MindFormers does, which does not see that it is another rank's.

    Raises:
        FileNotFoundError: no directory is named; MindFormers lists it all the same.
        ValueError: the shard of another rank would be loaded.
    """
    if directory is None:
        raise FileNotFoundError("src_strategy_path_or_dir is empty")
    names = sorted(path.name for path in directory.iterdir())
    if not names[rank].rpartition(".")[0].endswith(f"rank_{rank}"):
        raise ValueError(f"rank {rank} would load by {names[rank]}")


def _callback(config: Mapping[str, Any], kind: str) -> Config:
    found: Config = next(one for one in config["callbacks"] if one["type"] == kind)
    return found


def _replace(config: Any, path: Sequence[str], value: object) -> None:  # noqa: ANN401  mappings and lists in each other
    *above, last = (int(part) if part.isdecimal() else part for part in path)
    for part in above:
        config = config[part]
    if isinstance(config, dict) and last not in config:
        raise ValueError(f"the configuration has no {'.'.join(path)}")
    config[last] = value


if __name__ == "__main__":
    run(configured(sys.argv[1:]))
