"""The trainer's own arguments, as far as the pod template shows them.

Most images start with a script whose contents the operator cannot see; then nothing is known and nothing claimed. If
the container's command or arguments carry Megatron's or MindSpeed's flags, they are read, also from a
`bash -c "..."` text, so that a contradiction is reported before the first fault (docs/user/preconditions.md).
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

TRAINER: Final = "trainer"
_TELLING: Final = frozenset(
    {
        "tensor-model-parallel-size",
        "pipeline-model-parallel-size",
        "micro-batch-size",
        "global-batch-size",
        "use-distributed-optimizer",
        "enable-high-availability",
        "train-iters",
    }
)
"""A command line with none of these does not show the trainer's arguments."""

_PROGRAMS: Final = ("torchrun", "msrun", "python", "accelerate", "deepspeed")
"""A command that names one of these shows all of the trainer's arguments; a script may add others to what is seen."""

_WITHIN_A_WORD: Final = re.compile(r"(?<=[^\s;&|()])#")
"""A `#` within a word: no comment to a shell, but `shlex` would drop the rest of the line."""
_HASH: Final = "\ue000"
"""Placeholder for such a `#` during the split; a private-use character, in no command."""


@dataclass(frozen=True, slots=True)
class TrainerFlags:
    """Visible arguments of the trainer.

    Attributes:
        values: option to its value, empty for a switch.
        visible: at least one of them is the trainer's.
        complete: the command starts the trainer itself, so an absent flag is not given; a start script may add flags.
        entry: the script or module that the launcher runs, "" while unknown.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    visible: bool = False
    complete: bool = True
    entry: str = ""

    def has_switch(self, name: str) -> bool | None:
        """Return whether a switch is given; None when that cannot be seen."""
        if name in self.values:
            return True
        return False if self.visible and self.complete else None

    def lacks_switch(self, name: str) -> bool | None:
        """Return whether a switch is absent; None when that cannot be seen."""
        given = self.has_switch(name)
        return None if given is None else not given

    def text_of_option(self, name: str) -> str | None:
        """Return the value of an option, None when it is absent or nothing is visible."""
        return self.values.get(name)

    def number_of_option(self, name: str) -> int | None:
        """Return the value of an option as a number; None when absent, hidden, or no number (a shell variable)."""
        value = self.text_of_option(name)
        return int(value) if value is not None and value.isdecimal() else None

    def with_variable(self, name: str, value: str) -> "TrainerFlags":
        """Return the flags with this variable's value in them, as the shell or the kubelet would put it in."""
        used = re.compile(rf"\$(?:{name}\b|\{{{name}\}}|\({name}\))")
        values = {flag: used.sub(lambda _: value, text) if "$" in text else text for flag, text in self.values.items()}
        return replace(self, values=values)


def read_flags(template: Mapping[str, Any]) -> TrainerFlags:
    """Read the trainer container's command and arguments out of a pod template."""
    containers = (template.get("spec") or {}).get("containers") or []
    for container in containers:
        if isinstance(container, Mapping) and container.get("name") == TRAINER:
            words = _split_arguments([*(container.get("command") or []), *(container.get("args") or [])])
            found = parse_flags(words)
            programs = [place for place, word in enumerate(words) if _is_program_word(word)]
            after = words[programs[-1] :] if programs and found.visible else []
            return replace(found, complete=bool(programs), entry=next((w for w in after if w.endswith(".py")), ""))
    return TrainerFlags()


def read_launched_command(words: Sequence[str]) -> TrainerFlags:
    """Read the command that a start script has launched: script or module, then its arguments.

    A given flag can contradict recovery; an absent one proves nothing, as a settings file may set it.
    """
    found = parse_flags(words[1:])
    return replace(found, complete=False, entry=words[0] if words and found.visible else "")


def _is_program_word(word: str) -> bool:
    return word.rpartition("/")[2].startswith(_PROGRAMS)


def _split_arguments(parts: Iterable[object]) -> list[str]:
    """Split arguments as a shell would; text that no shell can parse is split at white space."""
    words: list[str] = []
    for part in map(str, parts):
        try:
            words += _split_shell_text(part) if any(c.isspace() for c in part) else [part]
        except ValueError:
            words += part.split()
    return words


def _split_shell_text(text: str) -> list[str]:
    """Return the words of a shell's text, without its comments."""
    return [word.replace(_HASH, "#") for word in shlex.split(_WITHIN_A_WORD.sub(_HASH, text), comments=True)]


def parse_flags(words: Iterable[str]) -> TrainerFlags:
    """Parse `--name value`, `--name=value` and bare `--name`; underscores and dashes are the same."""
    values: dict[str, str] = {}
    for word, following in pairwise((*words, "--")):
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            values[name.replace("_", "-")] = value or ("" if following.startswith("--") else following)
    return TrainerFlags(values, visible=bool(_TELLING & set(values)))
