"""What the start command of a training says of its layout and its checkpoints. Pure.

A manifest seldom holds the whole script, so what is not written in it is a question for a person. Names are those of
Megatron, MindSpeed-LLM and their example scripts (`TP=8`), and of MindFormers' configuration (`model_parallel: 8`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

_OPTIONS: Final = {
    "tensor": ("tensor-model-parallel-size", "TP", "model_parallel"),
    "pipeline": ("pipeline-model-parallel-size", "PP", "pipeline_stage"),
    "context": ("context-parallel-size", "CP", "context_parallel"),
    "expert": ("expert-model-parallel-size", "EP", "expert_parallel"),
}
_SAVE: Final = re.compile(
    r"(?:--save[= ]+|--output_dir[= ]+|\b(?:CKPT_SAVE_DIR|SAVE_PATH|SAVE_DIR)=)[\"']?(/[^\s\"';]+)"
)
_MPI_WORDS: Final = {
    "-np": 1, "-n": 1, "-c": 1, "-bind-to": 1, "--bind-to": 1, "-map-by": 1, "--map-by": 1, "-x": 1, "-host": 1,
    "--host": 1, "-hostfile": 1, "--hostfile": 1, "-ppn": 1, "-N": 1, "-mca": 2, "--mca": 2, "-genv": 2, "-env": 2,
}  # fmt: skip
"""Options of mpirun and mpiexec (Open MPI, Intel MPI, MPICH) with the number of words behind each."""
_MPI_STARTERS: Final = ("mpirun", "mpiexec", "mpiexec.hydra", "horovodrun")


def degrees_of_command(words: Sequence[str]) -> dict[str, int]:
    """Return the degrees of parallelism that a command line names, by field of `spec.parallelism`."""
    line = " ".join(words)
    found = {}
    for field, names in _OPTIONS.items():
        spelled = "|".join((rf"--{names[0]}[= ]+", rf"\b{names[1]}=[\"']?", rf"\b{names[2]}[:=] *"))
        if told := re.search(rf"(?:{spelled})(\d{{1,5}})\b", line):
            found[field] = int(told.group(1))
    return found


def checkpoint_directory(words: Sequence[str]) -> str:
    """Return the directory in which a command line has the checkpoints written; empty where it does not say."""
    found = _SAVE.search(" ".join(words))
    return found.group(1).rstrip("/") if found else ""


def names_mindspore(words: Sequence[str]) -> bool:
    """Return whether a command line starts MindSpore."""
    return re.search(r"\bmsrun\b|mindformer|mindspore", " ".join(words), re.IGNORECASE) is not None


def command_without_mpi(words: Sequence[str], launcher: str) -> list[str] | None:
    """Return the command of one pod that an `mpirun` line starts on all of them.

    Args:
        words: the whole line, words of a shell's `-c` included.
        launcher: that starts the ranks of one pod: torchrun or msrun.

    Returns:
        None: it is no such line, or none whose program is Python.
    """
    rest = shlex.split(words[-1]) if len(words) > 2 and words[-2] == "-c" else list(words)
    # Assignments before the program are the shell's, not an argument.
    while rest and "=" in rest[0]:
        rest = rest[1:]
    if not rest or rest[0].rpartition("/")[2] not in _MPI_STARTERS:
        return None
    rest = rest[1:]
    while rest and rest[0].startswith("-"):
        rest = rest[1 + _MPI_WORDS.get(rest[0], 0) :]
    if not rest or not rest[0].rpartition("/")[2].startswith("python"):
        return None
    # The launchers run Python unbuffered themselves.
    script = [word for word in rest[1:] if word != "-u"]
    return [launcher, *script]
