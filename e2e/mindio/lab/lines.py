# ruff: noqa: ANN401 - values of strangers pass through here
"""One literal per line: how the laboratory's processes talk to their driver."""

from __future__ import annotations

import ast
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_writing = threading.Lock()


def plain(value: Any) -> Any:
    """A value as literals can say it."""
    if isinstance(value, dict):
        return {plain(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if value is None or type(value) in {bool, int, float, str}:
        return value
    return repr(value)


def tell(event: str, **content: Any) -> None:
    """Write one event with the time of the monotonic clock, which all processes of a machine share."""
    line = repr({"event": event, "time": time.monotonic(), "pid": os.getpid()} | plain(content)) + "\n"
    with _writing:
        os.write(1, line.encode())


def listen(take: Callable[[dict[str, Any]], None]) -> None:
    """Hand over every command until stdin closes; then the driver is gone and so is this process."""
    for line in sys.stdin:
        take(ast.literal_eval(line))
    os._exit(9)
