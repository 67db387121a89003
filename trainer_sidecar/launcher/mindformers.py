"""MindFormers' configuration, as far as it decides whether MindIO works and which shards a resumed training loads.

With MindIO on, MindFormers raises the same error in every rank for a `sink_size` other than 1 and for a configuration
without a CheckpointMonitor: such a start is refused with the field's name, before any rank runs.

Its legacy checkpoints are resumed by a strategy file for each rank. It lists `src_strategy_path_or_dir` and takes the
name in the place of the rank, sorted as text: from 11 ranks on `..._rank_10` stands before `..._rank_2`, and a rank
loads another rank's shard without an error. So the ranks get a directory in which the names sort as the ranks do, and
where the configuration names none, that of `output_dir`. Source: MindFormers 1.5 to 2.1, trainer/base_trainer.py,
`resume_ckpt_path_with_strategy`. docs/user/checkpoints.md#mindspore
"""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from typing import Any, Dict, List, NamedTuple, Tuple

from trainer_sidecar.launcher.arguments import read_options

STRATEGIES = "src_strategy_path_or_dir"
MONITOR = "CheckpointMonitor"
MINDIO_WORDS = ("TTP:1", "UCE:1", "ARF:1", "HCCE:1")
"""What MindFormers looks for in MS_ENABLE_TFT, by which its own checks are on."""
SCRIPT = "run_mindformer.py"
"""The script of MindFormers, which has an option for the directory of strategies."""
OUTPUT = "./output"
"""MindFormers' default of `output_dir`."""
_RANK = re.compile(r"rank_(\d+)(?!.*rank_\d)")
_TOP_LEVEL = {
    "load_checkpoint": "load_checkpoint",
    "resume_training": "resume_training",
    "output_dir": "output_dir",
    "mode": "context.mode",
    STRATEGIES: STRATEGIES,
}
"""Options of run_mindformer.py with names of their own, and the fields that they set."""


class Call(NamedTuple):
    """The script that msrun is to run, its arguments and its working directory."""

    script: str
    arguments: List[str]
    cwd: str


class Resumed(NamedTuple):
    """The arguments with which a training resumes, and remarks for the output."""

    arguments: List[str]
    notes: List[str]


def settle_fields(configuration: Dict[str, Any], arguments: List[str]) -> Dict[str, Any]:
    """Return the fields, by dotted name, as run_mindformer.py has them once it has read its arguments."""
    fields = _flatten(configuration)
    for name, value in read_options(arguments):
        field = _TOP_LEVEL.get(name, name)
        if field in _TOP_LEVEL.values() or "." in field:
            fields[field] = _read_value(value)
    return fields


def _flatten(configuration: Dict[str, Any], above: str = "") -> Dict[str, Any]:
    fields: Dict[str, Any] = {}
    for name, value in configuration.items():
        if isinstance(value, dict):
            fields.update(_flatten(value, above + name + "."))
        else:
            fields[above + name] = value
    return fields


def _read_value(text: str) -> object:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if re.match(r"-?\d+$", text) else text


def why_refused(fields: Dict[str, Any], mindio: str) -> str:
    """Return why every rank of this start would fail; empty where none would, as far as the configuration tells.

    `mindio`: what the job sets MS_ENABLE_TFT to.
    """
    if not fields or not any(word in mindio for word in MINDIO_WORDS):
        return ""
    # MindFormers compares with `!=`, so a size in quotes fails there as well.
    size = fields.get("runner_config.sink_size", 1)
    if size != 1:
        return "runner_config.sink_size is {}: MindIO repairs steps only with 1, so set it to 1".format(size)
    # A configuration without any list of callbacks may get it from the script.
    callbacks = fields.get("callbacks")
    if isinstance(callbacks, list) and not any(_kind_of_callback(one) == MONITOR for one in callbacks):
        return "callbacks has no {}, with which MindIO saves: add `- type: {}`".format(MONITOR, MONITOR)
    return ""


def notes_on_fields(fields: Dict[str, Any], mindio: str) -> List[str]:
    """Return what is worth knowing of a configuration that MindIO works with, or does not."""
    if not fields or not any(word in mindio for word in MINDIO_WORDS):
        return []
    notes = []
    if fields.get("context.mode") in (1, "1", "PYNATIVE_MODE"):
        notes.append("context.mode is pynative: MindIO repairs steps in graph mode (0) only; a fault ends in a restart")
    callbacks = fields.get("callbacks")
    for one in callbacks if isinstance(callbacks, list) else []:
        if _kind_of_callback(one) == MONITOR and one.get("async_save"):
            notes.append("async_save of {} is off: with MindIO MindFormers saves before it goes on".format(MONITOR))
    return notes


def _kind_of_callback(callback: object) -> str:
    return str(callback.get("type", "")) if isinstance(callback, dict) else ""


def resumed_arguments(fields: Dict[str, Any], call: Call, directory: str, mindio: str) -> Resumed:
    """Return the arguments with a directory of strategies that are listed in the order of the ranks.

    They are unchanged where the start resumes nothing, or not by strategies.

    `directory`: where the directory may be made. OSError: it cannot be made, or the script takes none though ranks
    would load others' shards.
    """
    arguments = call.arguments
    unchanged = Resumed(list(arguments), [])
    if not _resumes_by_strategies(fields, mindio):
        return unchanged
    given = str(fields.get(STRATEGIES) or "")
    place = given or os.path.join(str(fields.get("output_dir") or OUTPUT), "strategy")
    # Where other files lie beside the strategies, no order of names would help: it is left as it is.
    names = _strategies_in(os.path.join(call.cwd, place))
    if not names or (given and names == sorted(names)):
        return unchanged
    takes_option = os.path.basename(call.script) == SCRIPT or _without_option(arguments) != arguments
    if not takes_option and not given:
        return unchanged
    if not takes_option:
        raise OSError(
            "{} takes no --{}, and the names in {} are in another order".format(call.script, STRATEGIES, place)
        )
    mended = _link_in_order(os.path.join(call.cwd, place), names, directory)
    note = "MindFormers would load other ranks' shards by the names in {}".format(place)
    if not given:
        note = "{} is not set: {} is taken".format(STRATEGIES, place)
    return Resumed([*_without_option(arguments), "--" + STRATEGIES, mended], [note + "; see docs/user/checkpoints.md"])


def _resumes_by_strategies(fields: Dict[str, Any], mindio: str) -> bool:
    """Whether MindFormers takes `resume_ckpt_path_with_strategy`: in the legacy form, with MindIO, all shards kept."""
    return (
        bool(fields.get("resume_training"))
        and bool(fields.get("load_checkpoint"))
        and fields.get("use_legacy_format", True) is not False
        and not fields.get("remove_redundancy")
        and any(word in mindio for word in MINDIO_WORDS)
    )


def _strategies_in(directory: str) -> List[str]:
    """Return the strategy files by rank; empty unless there is one for each rank from 0."""
    try:
        found = [(_rank_of_file(name), name) for name in os.listdir(directory)]
    except OSError:
        return []
    ordered: List[Tuple[int, str]] = sorted(found)
    # With a gap nobody knows which rank a name stands for; MindFormers then says itself what is missing.
    whole = bool(ordered) and [rank for rank, _ in ordered] == list(range(len(ordered)))
    return [name for _, name in ordered] if whole else []


def _rank_of_file(name: str) -> int:
    found = _RANK.search(name)
    return int(found.group(1)) if found else -1


def _link_in_order(place: str, names: List[str], directory: str) -> str:
    """Link the files under names that sort as the ranks do, and keep their ends, which MindSpore reads.

    Every rank of the pod asks for it, and others may read it meanwhile: other files get another directory.
    """
    real = os.path.realpath(place)
    mended = os.path.join(directory, "strategies-{:08x}".format(zlib.crc32("\n".join([real, *names]).encode())))
    os.makedirs(mended, exist_ok=True)
    for rank, name in enumerate(names):
        with contextlib.suppress(FileExistsError):
            os.symlink(os.path.join(real, name), os.path.join(mended, "{:06d}_{}".format(rank, name)))
    return mended


def _without_option(arguments: List[str]) -> List[str]:
    option = "--" + STRATEGIES
    return [
        word
        for place, word in enumerate(arguments)
        if arguments[place - 1 : place] != [option] and word.partition("=")[0] != option
    ]
