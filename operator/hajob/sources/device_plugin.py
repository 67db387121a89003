"""The mode of MindCluster's device plugin, as the command line of its container says.

In its Volcano mode (`-volcanoType=true`) it serves pods of other schedulers with all chips of a node or none
(docs/admin/schedulers.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from hajob.sources.reading import items, text

_NAME: Final = "device-plugin"
_PLUGIN: Final = re.compile(r"(?:^|[\s/])(?:ascend-)?device-plugin(?:$|\s)")
_SPOKEN: Final = ("command", "args")
_MODE: Final = re.compile(r"-volcanoType(?:=(\w+))?(?:\s|$)")
_TRUE: Final = frozenset({None, "1", "t", "T", "true", "TRUE", "True"})


def command_line_of(container: Mapping[str, Any]) -> str:
    """Return command and arguments of a container as one line."""
    return " ".join(text(word) for part in _SPOKEN for word in items(container.get(part)))


def volcano_mode_of_plugin(container: Mapping[str, Any]) -> bool | None:
    """Return whether this container is a device plugin in Volcano mode; None where it is none.

    The flag stands in its command, often as a part of one long text for a shell.
    """
    # Asked of each container of each pod of the cluster: nearly always this is the answer.
    if not any(_NAME in text(word) for part in _SPOKEN for word in items(container.get(part))):
        return None
    words = command_line_of(container)
    if not _PLUGIN.search(words):
        return None
    found = _MODE.search(words)
    return found is not None and found[1] in _TRUE
