"""From the words of a pod spec to the words a process is started with.

A container of a process node is a process of the machine: no image, no mount namespace. So besides Kubernetes' own
``$(NAME)`` expansion there is a second one, which puts the real directory in the place of each mount path. Both are
pure string work and live together, because their order matters: ``$(DIR)`` may expand to a mount path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

_LEADS = "\\s=:,\"'`;|&<>()\\[\\]{}"


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Expand ``$(NAME)`` as Kubernetes does: ``$$`` is one ``$``, an unknown name stays as it is written."""
    pieces: list[str] = []
    position = 0
    while (dollar := text.find("$", position)) != -1:
        pieces.append(text[position:dollar])
        following = text[dollar + 1 : dollar + 2]
        end = text.find(")", dollar) if following == "(" else -1
        if following == "$":
            pieces.append("$")
            position = dollar + 2
        elif end != -1:
            name = text[dollar + 2 : end]
            pieces.append(variables.get(name, f"$({name})"))
            position = end + 1
        else:
            pieces.append("$")
            position = dollar + 1
    pieces.append(text[position:])
    return "".join(pieces)


def mount_replacer(mounts: Mapping[str, str]) -> Callable[[str], str]:
    """A function that puts the real place of every mount into a text.

    A mount path counts where a path can begin (at the start, after white space or one of ``= : , " '`` and the
    shell's separators) and where it ends as a whole (at the end, before ``/`` or one of those). The longest mount
    path wins; what was put in is not looked at again.
    """
    real = {path.rstrip("/"): place for path, place in mounts.items() if path.rstrip("/")}
    if not real:
        return lambda text: text
    names = "|".join(re.escape(path) for path in sorted(real, key=len, reverse=True))
    pattern = re.compile(rf"(?<![^{_LEADS}])({names})(?=$|[/{_LEADS}])")
    return lambda text: pattern.sub(lambda match: real[match[1]], text)


def expand_all(texts: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """``expand`` for each of ``texts``."""
    return [expand(text, variables) for text in texts]
