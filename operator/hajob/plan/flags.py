"""What the trainer's own arguments say, where the template shows them.

Most images start with a script whose inside nobody sees from here; then nothing is known and nothing is claimed.
Where the container's command or arguments carry Megatron's or MindSpeed's flags they are read, also out of a
`bash -c "..."` text, so that a contradiction is told before the first fault (docs/preconditions.md).
"""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Flags:
    """The visible arguments; `visible` is False when the trainer's flags are hidden in a script."""

    values: Mapping[str, str] = field(default_factory=dict)
    visible: bool = False

    def has(self, name: str) -> bool | None:
        """Whether a switch is given; None when nothing is visible."""
        return name in self.values if self.visible else None

    def lacks(self, name: str) -> bool | None:
        """Whether a switch is absent; None when nothing is visible."""
        return name not in self.values if self.visible else None

    def text(self, name: str) -> str | None:
        """Value of an option, None when it is absent or nothing is visible."""
        return self.values.get(name)

    def number(self, name: str) -> int | None:
        """Value of an option as a number; None when absent, hidden, or no number (a shell variable)."""
        value = self.values.get(name, "")
        return int(value) if value.isdigit() else None


def read_flags(template: Mapping[str, Any]) -> Flags:
    """Read the trainer container's command and arguments out of a pod template."""
    containers = (template.get("spec") or {}).get("containers") or []
    for container in containers:
        if isinstance(container, Mapping) and container.get("name") == TRAINER:
            return parse(_words([*(container.get("command") or []), *(container.get("args") or [])]))
    return Flags()


def _words(parts: Iterable[object]) -> list[str]:
    """Split what a shell would split; text that no shell could read is taken word by word."""
    words: list[str] = []
    for part in map(str, parts):
        try:
            words += shlex.split(part, comments=True) if any(c.isspace() for c in part) else [part]
        except ValueError:
            words += part.split()
    return words


def parse(words: Iterable[str]) -> Flags:
    """Parse `--name value`, `--name=value` and bare `--name`; underscores and dashes are the same."""
    values: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            name = name.replace("_", "-")
            values[name] = value
        elif name:
            values[name] = values[name] or word
            name = ""
    return Flags(values, visible=bool(_TELLING & set(values)))
