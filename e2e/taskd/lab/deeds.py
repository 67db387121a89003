"""What the processes of the lab write down, each deed a line of JSON in one file: who, and the deed's words."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

VARIABLE: Final = "TASKD_LAB_DEEDS"
Deed = tuple[str, str]


def write_deed(who: str, *words: object) -> int:
    """Add a deed; returns 0, which MindIO's functions return when all is well."""
    line = json.dumps([who, " ".join(str(word) for word in words)]) + "\n"
    descriptor = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)
    return 0


def read_deeds(file: Path) -> list[Deed]:
    """All deeds so far; a controller that was ended and begun anew is one deed, `restart`."""
    found: list[Deed] = []
    for line in file.read_text().splitlines() if file.exists() else ():
        who, words = json.loads(line)
        if words == "start" and found and ("mindio", "destroy") in found:
            found[len(found) - 1 - found[::-1].index(("mindio", "destroy"))] = (who, "restart")
        else:
            found.append((who, words))
    return found
