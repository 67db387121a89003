"""Functions in whose stacks a rank that ends no step saves or evaluates, and does not hang."""

import re
from typing import Final

DEFAULT_SAVERS: Final = (
    "*save_checkpoint*,*save_ckpt*,*async_save*,*save_state_dict*,distributed/checkpoint/,dist_checkpointing/,"
    "evaluate*,do_eval*,_do_eval*"
)
"""Of Megatron, MindSpeed, MindFormers, DeepSpeed, and the directories of torch.distributed.checkpoint and Megatron's
dist_checkpointing, whose own functions are called `save`."""
_NAME: Final = re.compile(r"\*?[A-Za-z_][A-Za-z0-9_./]{0,126}\*?")


def compile_savers(listed: str) -> re.Pattern[str]:
    """Compile a list of names, separated by commas, into what is looked for in a stack.

    A name is a function's, or a part of a file's path; `*` before or after it stands for more letters of the word.

    Raises:
        ValueError: a name is none; names it.
    """
    names = [name.strip() for name in listed.split(",") if name.strip()]
    wrong = next((name for name in names if not _NAME.fullmatch(name)), None)
    if wrong is not None:
        raise ValueError(f"{wrong!r} is no name of a function or a path: give save_checkpoint*,my_project/saving/")
    if not names:
        return re.compile(r"(?!)")  # nothing is
    return re.compile("|".join(_pattern_of_name(name) for name in names))


def _pattern_of_name(name: str) -> str:
    before = "" if name.startswith("*") else r"\b"
    after = "" if name.endswith(("*", "/")) else r"\b"
    return before + re.escape(name.strip("*")) + after
