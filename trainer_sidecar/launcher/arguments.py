"""The training's arguments, as Megatron and MindSpeed-LLM read them: what a restart would load, and how to correct it.

Most example scripts save to one directory and load from another, without the optimizer and from iteration 0
(`--finetune`), so that a restart of the unchanged script starts over. docs/protocols/launcher.md#environment
"""

from __future__ import annotations

import os
from collections import deque
from typing import Dict, Iterable, Iterator, List, NamedTuple, Tuple

TRACKER = "latest_checkpointed_iteration.txt"
LOAD_STEP = "HAJOB_LOAD_STEP"
"""Variable of a rank: the step of the verified checkpoint that this start of the job loads."""
RESUME_POLICY = "HAJOB_RESUME_POLICY"
ARGUMENTS = "Arguments"
WITHOUT_MINDIO = "HAJOB_WITHOUT_MINDIO"
"""Variable of a rank: the job trains without MindIO, so that no rank will register."""
HIGH_AVAILABILITY = "enable-high-availability"
"""Option with which a start script switches MindIO on by itself."""
AGAINST_RESUMING = ("finetune", "no-load-optim", "no-load-rng", "ckpt-step")


def read_options(words: Iterable[str]) -> Iterator[Tuple[str, str]]:
    """Yield name and value of each option, as they are written; of several values the first, of none ""."""
    rest = deque(words)
    while rest:
        word = rest.popleft()
        if not word.startswith("--"):
            continue  # a further value, or one that belongs to an option with a single dash
        name, equals, value = word[2:].partition("=")
        if not equals and rest and not rest[0].startswith("--"):
            value = rest.popleft()
        yield name, value


def parse_options(words: Iterable[str]) -> Dict[str, str]:
    """Return options by name without dashes, each with a value or ""; the last wins, underscores become dashes."""
    return {name.replace("_", "-"): value for name, value in read_options(words)}


def means_to_resume(found: Dict[str, str]) -> bool:
    """Return whether a start loads what an earlier one has saved, with optimizer and step."""
    save, load = found.get("save", ""), found.get("load", "")
    same = bool(save) and os.path.normpath(save) == os.path.normpath(load)
    return same and "finetune" not in found


class ResumedArguments(NamedTuple):
    """Arguments that resume, and a description of the changes for the output."""

    arguments: List[str]
    changes: List[str]


def resumed_arguments(arguments: List[str]) -> ResumedArguments:
    """Return the arguments with `--load` set to the `--save` directory, without options that start over.

    Without `--save` they are unchanged.
    """
    save = parse_options(arguments).get("save", "")
    if not save:
        return ResumedArguments(list(arguments), [])
    kept: List[str] = []
    changes: List[str] = []
    position = 0
    while position < len(arguments):
        words = _option_at(arguments, position)
        name = words[0][2:].partition("=")[0].replace("_", "-") if words[0].startswith("--") else ""
        if name in AGAINST_RESUMING:
            changes.append("without {}".format(" ".join(words)))
        elif name == "load":
            pass  # the last one counts, and is set below
        else:
            kept += words
        position += len(words)
    if parse_options(arguments).get("load", "") != save:
        changes.append("with --load {}".format(save))
    return ResumedArguments([*kept, "--load", save], changes)


def _option_at(arguments: List[str], position: int) -> List[str]:
    """Return the word at a position, with its value if it is one of the removed options that have one."""
    word = arguments[position]
    name = word[2:].replace("_", "-") if word.startswith("--") else ""
    has_value = name in ("load", "ckpt-step") and position + 1 < len(arguments)
    return arguments[position : position + 2] if has_value else [word]


def is_resumed_start(environment: Dict[str, str], arguments: List[str]) -> bool:
    """Return whether to change this start's arguments.

    That is so if the job says so, from the second start on, and if a save exists.
    """
    attempt = environment.get("HAJOB_ATTEMPT", "")
    if environment.get(RESUME_POLICY) != ARGUMENTS or not attempt.isdigit() or int(attempt) < 2:
        return False
    return LOAD_STEP in environment or read_tracked_step(parse_options(arguments).get("save", "")) is not None


def read_tracked_step(directory: str) -> int | None:
    """Return the step after which a training that loads from here continues; None: no save, or it can't be told."""
    try:
        with open(os.path.join(directory, TRACKER)) as file:
            text = file.read(32).strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
